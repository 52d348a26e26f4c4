//! The page of one run: its heading, its tabs, and the selected view.

use leptos::prelude::*;
use wire::views::RunSummary;

use super::{
    buckets::Buckets, export::export, health::health, overview::overview, ranks::Ranks, scaling::scaling,
    served::served, timeline::Timeline,
};
use crate::cells::{Kept, Memo, Var, act, flag, memo, part, text};
use crate::html::shown;
use crate::keys;
use crate::live::Live;
use crate::range::Range;
use crate::route::{Page, Router, Tab};
use crate::widgets::{Views as _, state_chip};

/// The run that the views below show.
#[derive(Clone, Copy)]
pub struct RunId(Kept<String>);

impl RunId {
    /// Returns the id as text.
    pub fn get(&self) -> String {
        self.0.get()
    }
}

/// Creates the page of one run.
#[component]
pub fn Run(id: String) -> impl IntoView {
    let live = expect_context::<Live>();
    let router = expect_context::<Router>();
    let run = RunId(Kept::new(id));
    provide_context(run);
    let range = Range::new(live, router);
    provide_context(range);
    live.rewind(run.get(), range.at);
    range.hold_while_paused();

    let tab = memo(move || match router.page() {
        Page::Run(_, tab) => tab,
        _ => Tab::Overview,
    });
    keys::global(move |key| {
        let number = key.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        let Some(tab) = number.and_then(|at| Tab::ALL.get(at)) else { return false };
        router.go(&router.keeping(&tab.path(&run.get())));
        true
    });
    let body = part(move || match tab.get() {
        Tab::Overview => overview(),
        Tab::Ranks => view! { <Ranks /> }.into_any(),
        Tab::Buckets => view! { <Buckets /> }.into_any(),
        Tab::Scaling => scaling(),
        Tab::Devices => served("devices"),
        Tab::Health => health(),
    });
    let none = move || live.no_such_run.get();
    view! {
        <Show when=none>
            <section class="empty" data-testid="no-such-run">
                <h1>"The server does not know the run "<code>{run.get()}</code></h1>
                <p>"It may have been removed, or it may report to another server."</p>
                <p><a href="/">"All runs"</a></p>
            </section>
        </Show>
        <div class="page" class:hidden=none>
            <Heading tab=tab run=run />
            // Scaling compares whole runs, and Devices shows the current state, so neither can be rewound.
            <div class:hidden=flag(move || matches!(tab.get(), Tab::Scaling | Tab::Devices))><Timeline /></div>
            {body}
        </div>
    }
}

#[component]
fn Heading(tab: Memo<Tab>, run: RunId) -> impl IntoView {
    let router = expect_context::<Router>();
    let live = expect_context::<Live>();
    let of = move |read: &dyn Fn(&RunSummary) -> String| {
        live.run.with(|run| run.as_ref().map(|run| read(&run.summary)).unwrap_or_default())
    };
    let exporting = Var::new(false);
    // Shows nothing until the run is known.
    let state = move || live.run.with(|run| run.as_ref().map(|run| run.summary.state));
    let name = move || match of(&|s| s.name.clone()) {
        name if name.is_empty() => run.get(),
        name => name,
    };
    let ranks = move || of(&|s| format!("{} / {} ranks", s.ranks_reporting, s.ranks_expected));
    let started = move || {
        let now = live.now.get();
        of(&|s| format!("started {}", units::ago((now - s.started_unix_millis as f64) / 1000.0)))
    };
    // Read from the columns, which arrive up to twenty times per second. The report arrives twice per second.
    let last_step = move || {
        live.drawn.track();
        let newest = live.steps.with(|steps| steps.step.last().copied());
        newest.map_or_else(|| of(&|s| s.last_step.map_or_else(|| "—".into(), units::count)), units::count)
    };
    view! {
        {export(exporting)}
        <header class="run-head">
            <h1>{text(name)}</h1>
            {shown("", text(move || state().map_or_else(String::new, state_chip)))}
            <span class="facts">
                <span>{text(ranks)}</span>
                <span class:hidden=flag(move || state().is_none())>"step "<b class="tabular" data-testid="last-step">{text(last_step)}</b></span>
                <span>{text(started)}</span>
            </span>
            <span class="grow"></span>
            <button data-testid="export" title="Export traces, tables and the report (E)" on:click=act(move |_| exporting.set(true))>
                "Export…"
            </button>
        </header>
        <nav class="tabs" aria-label="Views of this run">
            {Tab::ALL
                .map(|each| {
                    view! {
                        <a
                            href=text(move || router.keeping(&each.path(&run.get())))
                            aria-current=move || (tab.get() == each).then_some("page")
                            data-testid=format!("tab-{}", each.name().to_ascii_lowercase())
                        >
                            {each.name()}
                        </a>
                    }
                })
                .views()}
        </nav>
    }
}
