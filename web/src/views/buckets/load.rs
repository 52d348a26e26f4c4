//! The waterfall of the view, fetched from the server.

use std::sync::Arc;

use leptos::prelude::*;
use wire::live::Waterfall;

use crate::api;
use crate::polled::polled;
use crate::range::Range;

/// The shortest interval between waterfalls while following the newest step, in milliseconds. Faster changes cannot be
/// read.
const FOLLOW_MILLIS: f64 = 500.0;

/// A fetched waterfall.
#[derive(Clone, Copy)]
pub struct Fetched {
    /// The waterfall of all ranks. It stays until the next one has loaded.
    pub shown: Memo<Option<Arc<Waterfall>>>,
    /// The reason why the requested step cannot be shown.
    pub error: Memo<Option<String>>,
}

/// Fetches `step`, and again when it has arrived; the newest step again and again if `step` is `None`.
pub fn fetch(step: Memo<Option<u64>>, range: Range) -> Fetched {
    let fetched = polled(
        Signal::derive(move || step.get().is_none().then_some(FOLLOW_MILLIS)),
        Memo::new(move |_| Some((step.get(), step.get().is_some_and(|step| range.has_arrived(step))))),
        |run, (step, _)| async move { Some(api::waterfall(&run, step).await.map(Arc::new)) },
    );
    let keep = move |old: Option<&Option<Arc<Waterfall>>>| {
        fetched.get().and_then(Result::ok).or_else(|| old.cloned().flatten())
    };
    Fetched {
        // Waterfalls are large. Two that were fetched one after the other are not compared.
        shown: Memo::new_with_compare(keep, |_, _| true),
        error: Memo::new(move |_| fetched.get().and_then(Result::err)),
    }
}
