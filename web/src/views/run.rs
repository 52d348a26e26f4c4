//! The page of one run: its heading, its tabs, and the selected view.

mod alert;
mod export;
mod timeline;

use leptos::prelude::*;
use leptos_router::components::Outlet;
use leptos_router::hooks::use_params_map;
use model::route::{Tab, tab_in};
use model::trust::problem;
use wire::views::RunSummary;

use self::alert::Alert;
use self::export::Export;
use self::timeline::Timeline;
use crate::commands::CommandList;
use crate::keys;
use crate::live::Live;
use crate::range::Range;
use crate::route::{Address, RunId};
use crate::step_chart::StepCharts;
use crate::widgets::StateChip;

/// The page of one run.
#[component]
pub fn Run() -> impl IntoView {
    let live = expect_context::<Live>();
    let address = expect_context::<Address>();
    let params = use_params_map();
    let run = RunId::new(Memo::new(move |_| params.with(|params| params.get("run").unwrap_or_default())));
    provide_context(run);
    let range = Range::new(live, address);
    provide_context(range);
    let charts = StepCharts::new(range, address, run);
    provide_context(charts);
    live.show(run, Memo::new(move |_| range.selected_ends()));
    range.hold_while_paused();
    let list = expect_context::<CommandList>();
    Effect::new(move |_| match list.steps.get() {
        Some(true) => range.follow(),
        Some(false) => range.select_all(),
        None => {}
    });

    let tab = Memo::new(move |_| address.path.with(|path| tab_in(path)).unwrap_or(Tab::Overview));
    charts.bind_keys(tab);
    keys::global(move |key| {
        let number = key.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        let Some(tab) = number.and_then(|at| Tab::ALL.get(at)) else { return false };
        address.go(&address.keeping(&tab.path(&run.get_untracked())));
        true
    });
    let none = move || live.no_such_run.get();
    view! {
        <Show when=none>
            <section class="empty" data-testid="no-such-run">
                <h1>"The server does not know the run "<code>{move || run.get()}</code></h1>
                <p>"It may have been removed, or it may report to another server."</p>
                <p><a href="/">"All runs"</a></p>
            </section>
        </Show>
        <div class="page" class:hidden=none>
            <Heading tab=tab run=run />
            <Alert />
            <Timeline />
            <Outlet />
        </div>
    }
}

/// A badge on the Health view, if something limits the trust in the figures.
#[component]
fn Badge() -> impl IntoView {
    let live = expect_context::<Live>();
    move || {
        let problem = live.newest.with(|run| run.as_ref().and_then(|run| problem(&run.report)));
        problem.map(|what| view! { <span class="badge" title=what data-testid="badge"><span aria-hidden="true">"!"</span><span class="unseen">{what}</span></span> })
    }
}

#[component]
fn Heading(tab: Memo<Tab>, run: RunId) -> impl IntoView {
    let address = expect_context::<Address>();
    let live = expect_context::<Live>();
    // The run as it is now, even while earlier steps are selected.
    let said = move |read: &dyn Fn(&RunSummary) -> String| {
        live.newest.with(|run| run.as_ref().map(|run| read(&run.summary)).unwrap_or_default())
    };
    let exporting = RwSignal::new(false);
    // Shows nothing until the run is known.
    let state = move || live.newest.with(|run| run.as_ref().map(|run| run.summary.state));
    let name = move || match said(&|s| s.name.clone()) {
        name if name.is_empty() => run.get(),
        name => name,
    };
    let ranks = move || {
        said(&|s| format!("{} / {}", units::count(s.ranks_reporting.into()), units::ranks(s.ranks_expected)))
    };
    let started = move || {
        let now = live.now.get();
        let word = |s: &RunSummary| if s.imported { "imported" } else { "started" };
        said(&|s| format!("{} {}", word(s), units::ago((now - s.started_unix_millis as f64) / 1000.0)))
    };
    // Read from the columns, which arrive up to twenty times per second. The report arrives twice per second.
    let last_step = move || {
        live.drawn.track();
        let newest = live.steps.with_value(|steps| steps.step.last().copied());
        newest.map_or_else(|| said(&|s| s.last_step.map_or_else(|| "—".into(), units::count)), units::count)
    };
    view! {
        <Export open=exporting />
        <header class="run-head">
            <h1>{name}</h1>
            {move || state().map(|state| view! { <StateChip state=state /> })}
            <span class="facts">
                <span>{ranks}</span>
                <span class:hidden=move || state().is_none()>"step "<b class="tabular" data-testid="last-step">{last_step}</b></span>
                <span>{started}</span>
            </span>
            <span class="grow"></span>
            <button data-testid="export" title="Export traces, tables and the report (E)" on:click=move |_| exporting.set(true)>
                "Export…"
            </button>
        </header>
        <nav class="tabs" aria-label="Views of this run">
            {Tab::ALL
                .map(|shown| {
                    view! {
                        <a
                            href=move || address.keeping(&shown.path(&run.get()))
                            aria-current=move || (tab.get() == shown).then_some("page")
                            data-testid=format!("tab-{}", shown.name().to_ascii_lowercase())
                        >
                            {shown.name()}
                            {(shown == Tab::Health).then(|| view! { <Badge /> })}
                        </a>
                    }
                })
                .collect_view()}
        </nav>
    }
}
