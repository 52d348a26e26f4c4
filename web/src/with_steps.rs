//! What a view of steps shows while the run has none: why, instead of empty charts and tables.

use leptos::prelude::*;
use wire::views::Report;

use crate::live::Live;

/// Shows its children once the run has a step, and says before that why there is none.
#[component]
pub fn WithSteps(children: ChildrenFn) -> impl IntoView {
    let live = expect_context::<Live>();
    // A run that has not loaded is not one without steps.
    let reason = Memo::new(move |_| {
        live.drawn.track();
        let is_drawn = live.steps.with_value(|steps| !steps.step.is_empty());
        live.newest.with(|run| run.as_ref().and_then(|run| why_none(&run.report, is_drawn)))
    });
    view! {
        <Show when=move || reason.get().is_none() fallback=move || {
            view! {
                <section class="panel" data-testid="no-steps">
                    <h2>{move || reason.get().map(|(title, _)| title)}</h2>
                    <p class="quiet">{move || reason.get().map(|(_, why)| why)}</p>
                </section>
            }
        }>
            {children()}
        </Show>
    }
}

/// Says why a run has no steps; `None` if it has some.
fn why_none(report: &Report, is_drawn: bool) -> Option<(&'static str, String)> {
    if report.steps > 0 || is_drawn {
        return None;
    }
    let title = if report.state.has_ended() { "This run has no steps" } else { "No step yet" };
    let why = report.period_nanos.reason().map(|why| units::capitalized(&why.to_string()) + ".");
    Some((title, why.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use wasm_bindgen_test::wasm_bindgen_test;
    use wire::views::RunState;

    use super::*;
    use crate::fixture::{empty_report, show};
    use crate::mounted::mount_in_run;

    #[wasm_bindgen_test]
    async fn a_run_without_steps_says_so_and_shows_its_charts_once_it_has_one() {
        let (page, live) = mount_in_run(|| view! { <WithSteps><p class="chart">"chart"</p></WithSteps> });
        assert_eq!(page.text(".chart"), "chart", "the run has not loaded");
        show(live, Report { state: RunState::Completed, ..empty_report() });
        page.settle().await;
        assert!(page.find(".chart").is_none());
        assert!(page.text("[data-testid=no-steps]").starts_with("This run has no steps"));
        show(live, Report { steps: 1, ..empty_report() });
        page.settle().await;
        assert_eq!(page.text(".chart"), "chart");
    }
}
