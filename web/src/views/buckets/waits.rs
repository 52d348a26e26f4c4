//! Who waits for whom, in one sentence.

use leptos::prelude::*;
use model::buckets::waits::{Waits, sentence, waits, worst_bucket};

use super::StepSelection;

/// The sentence about the selected bucket, or about the one for which the ranks wait longest.
#[component]
pub fn WaitSentence(selection: StepSelection) -> impl IntoView {
    let found = Memo::new(move |_| {
        let all = selection.shown.get()?;
        let bucket = selection.bucket.get().or_else(|| worst_bucket(&all))?;
        let waits = waits(&all, bucket)?;
        Some((sentence(&all, &waits), all.rank[waits.last], waits))
    });
    let no_rank = move || {
        selection.shown.with(|step| match step {
            Some(step) if step.only_enqueued => {
                "This step was not observed in full: when its collectives ran is not known, only when they were launched."
            }
            Some(_) => "No rank waits in this step: all ranks start their collectives together.",
            None => "",
        })
    };
    let words = move || found.get().map_or_else(|| no_rank().to_owned(), |(sentence, _, _)| sentence);
    let show = move |_| {
        if let Some((_, last, Waits { bucket, .. })) = found.get_untracked() {
            selection.select(Some(bucket), Some(last));
        }
    };
    let is_selected = move || {
        found.with(|found| {
            found.as_ref().is_none_or(|(_, last, waits)| {
                selection.bucket.get() == Some(waits.bucket) && selection.rank.get() == Some(*last)
            })
        })
    };
    view! {
        <p class="lead with-action">
            <span data-testid="waits">{words}</span>
            <button class="quiet" data-testid="show-waits" class:hidden=is_selected on:click=show>
                "Show it"
            </button>
        </p>
    }
}
