//! The controls above the waterfall: the step, and the ranks that are drawn.

use leptos::prelude::*;
use model::buckets::rows::Rows;
use model::buckets::steps;

use super::StepSelection;
use crate::api;
use crate::download;
use crate::live::Live;
use crate::route::RunId;
use crate::theme::Theme;

/// The choice of the step, facts about it, and its files.
#[component]
pub fn Controls(selection: StepSelection) -> impl IntoView {
    let theme = expect_context::<Theme>();
    let run = expect_context::<RunId>();
    let save_png = move |_| download::png("waterfall.png", "waterfall", theme.inks().ground);
    let trace = move || {
        let step = selection.shown_step().map(|step| (step, step));
        api::export_url(&run.get(), "perfetto", step)
    };
    view! {
        <div class="panel-head">
            <Stepper selection=selection />
            <Notable selection=selection />
            <span class="facts tabular" data-testid="waterfall-facts">{move || facts(selection)}</span>
            <span class="error" role="status">{move || selection.error.get().unwrap_or_default()}</span>
            <span class="grow"></span>
            <a class="button quiet" download="" href=trace>"Perfetto trace of this step"</a>
            <button class="quiet" on:click=save_png>"PNG"</button>
        </div>
    }
}

fn facts(selection: StepSelection) -> String {
    let Some(all) = selection.shown.get() else { return String::new() };
    let bound = all.clock_bound.iter().copied().fold(f64::NAN, f64::max);
    let clocks = if bound.is_nan() {
        "clock bounds unknown".into()
    } else {
        format!("clocks within {}", units::nanos(bound))
    };
    format!("{} · {} · {clocks}", units::nanos(all.span_nanos), units::ranks(all.rank.len() as u32))
}

/// The number of the step, and the ways to the steps beside it.
#[component]
fn Stepper(selection: StepSelection) -> impl IntoView {
    let live = expect_context::<Live>();
    let entered = move |event: leptos::ev::Event| {
        if let Ok(step) = event_target_value(&event).trim().replace(',', "").parse() {
            selection.go_to(Some(step));
        }
    };
    let number = move || selection.shown_step().map(|step| step.to_string()).unwrap_or_default();
    view! {
        <div class="stepper" role="group" aria-label="Step">
            <button
                aria-label="Previous step"
                title="Previous step (,)"
                on:click=move |_| selection.neighbor(live, -1)
            >
                "‹"
            </button>
            <label class="field">
                <span>"Step"</span>
                <input inputmode="numeric" data-testid="step" prop:value=number on:change=entered />
            </label>
            <button
                aria-label="Next step"
                title="Next step (.)"
                on:click=move |_| selection.neighbor(live, 1)
            >
                "›"
            </button>
        </div>
    }
}

/// The ways to the newest, the worst and a typical step.
#[component]
fn Notable(selection: StepSelection) -> impl IntoView {
    let live = expect_context::<Live>();
    let go = move |choose: fn(&[(u64, f64)]) -> Option<u64>| {
        let visible = untrack(|| selection.range.visible());
        let (observed, all): (Vec<_>, Vec<_>) = live.steps.with_value(|steps| {
            let row = |row: usize| (steps.step[row], f64::from(steps.step_nanos[row]));
            let rows = || steps.rows_in(visible);
            (rows().filter(|&at| steps.is_observed_in_full(at)).map(row).collect(), rows().map(row).collect())
        });
        if let Some(step) = choose(&observed).or_else(|| choose(&all)) {
            selection.go_to(Some(step));
        }
    };
    view! {
        <div class="segments" role="group" aria-label="Newest or selected step">
            <button
                data-testid="follow"
                aria-pressed=move || selection.step.get().is_none().to_string()
                title="Follow the newest step (F)"
                on:click=move |_| selection.toggle_follow()
            >
                "Follow"
            </button>
            <button
                data-testid="worst-step"
                title="The longest of the visible steps that were observed in full"
                on:click=move |_| go(steps::worst)
            >
                "Worst step"
            </button>
            <button
                data-testid="typical-step"
                title="The visible step whose time is the median of those that were observed in full"
                on:click=move |_| go(steps::typical)
            >
                "Typical step"
            </button>
        </div>
    }
}

/// The choice of the drawn ranks.
#[component]
pub fn RowControls(selection: StepSelection) -> impl IntoView {
    let rows = Rows::ALL
        .map(|rows| {
            let choose = move |_| {
                let address = selection.address;
                address.set([("rows", Some(rows.key().into())), ("ranks", None)]);
            };
            view! {
                <button
                    data-testid=format!("rows-{}", rows.key())
                    aria-pressed=move || (selection.rows.get() == rows).to_string()
                    on:click=choose
                >
                    {rows.name()}
                </button>
            }
        })
        .collect_view();
    let pin = move || match selection.rank.get() {
        Some(rank) if selection.pinned.with(|pinned| pinned.contains(&rank)) => format!("Unpin rank {rank}"),
        Some(rank) => format!("Pin rank {rank}"),
        None => "Select a rank to pin it".into(),
    };
    view! {
        <div class="panel-head">
            <div class="segments" role="group" aria-label="Drawn ranks">{rows}</div>
            <button
                data-testid="pin"
                title="Keep the selected rank in view (P)"
                disabled=move || selection.rank.get().is_none()
                on:click=move |_| selection.toggle_pin()
            >
                {pin}
            </button>
            <span class="quiet" data-testid="folded">{move || folded(selection)}</span>
        </div>
    }
}

fn folded(selection: StepSelection) -> String {
    let all = selection.shown.with(|shown| shown.as_ref().map_or(0, |all| all.rank.len()));
    let drawn = selection.drawn.with(|drawn| drawn.as_ref().map_or(0, |drawn| drawn.gantt.rows()));
    match all.saturating_sub(drawn) {
        0 => String::new(),
        1 => "1 other rank is folded".into(),
        more => format!("{} other ranks are folded", units::count(more as u64)),
    }
}
