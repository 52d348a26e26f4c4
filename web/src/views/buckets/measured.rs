//! What the ranks do in the measured range of the step.

use leptos::prelude::*;
use model::buckets::measured::totals;
use viz::palette;

use super::StepSelection;
use crate::widgets::Swatch;

/// The totals of the measured range, and how to measure if there is none.
#[component]
pub fn Measured(selection: StepSelection) -> impl IntoView {
    move || {
        let measured = selection.measured.get().zip(selection.shown.get());
        let Some((range, all)) = measured else {
            return view! {
                <p class="quiet below">"Drag across the waterfall to measure a range; M measures what is visible."</p>
            }
            .into_any();
        };
        let kinds = totals(&all, range)
            .into_iter()
            .map(|(kind, nanos)| {
                let paint = palette::slice(kind);
                view! {
                    <li>
                        <Swatch color=paint.color pattern=paint.pattern />
                        {kind.name()}
                        " "
                        <b>{units::nanos(nanos)}</b>
                    </li>
                }
            })
            .collect_view();
        let head = format!(
            "{}, from {} to {}: mean of {}",
            units::nanos(range.len()),
            units::nanos(range.start),
            units::nanos(range.end),
            units::ranks(all.rank.len() as u32)
        );
        view! {
            <div class="measured" data-testid="measured" role="status">
                <p>{head}</p>
                <ul class="legend">{kinds}</ul>
                <button class="quiet" on:click=move |_| selection.measured.set(None)>"Clear"</button>
            </div>
        }
        .into_any()
    }
}
