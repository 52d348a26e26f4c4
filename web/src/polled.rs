//! What a view fetches again and again while its run goes on.

use std::future::Future;

use leptos::prelude::*;

use crate::live::Live;
use crate::route::RunId;

/// An interval for what is fetched only when something else is wanted, in milliseconds. It is never used up.
const NO_INTERVAL_MILLIS: f64 = 1e9;

/// Fetches what `wanted` names about the run of this page: whenever that changes, when the server is back, and about every
/// `interval_millis` while data of the run arrive, if there is an interval. Nothing is fetched again while the page is hidden.
///
/// `fetch` is passed the id of the run. The last answer stays until the next one has arrived, and if there is none: a notice
/// tells that the server does not answer. If nothing is wanted, there is no answer.
pub fn polled<K, T, F>(
    interval_millis: impl Into<Signal<Option<f64>>>,
    wanted: impl Fn() -> Option<K> + Send + Sync + 'static,
    fetch: impl Fn(String, K) -> F + 'static,
) -> Memo<Option<T>>
where
    K: Clone + PartialEq + Send + Sync + 'static,
    T: Clone + Send + Sync + 'static,
    F: Future<Output = Option<T>> + 'static,
{
    let (live, run) = (expect_context::<Live>(), expect_context::<RunId>());
    let interval_millis = interval_millis.into();
    let turn = live.turn(Signal::derive(move || interval_millis.get().unwrap_or(NO_INTERVAL_MILLIS)));
    let wanted = Memo::new(move |_| wanted());
    let fetched = LocalResource::new(move || {
        live.connected.track();
        if interval_millis.get().is_some() {
            turn.track();
        }
        let answer = wanted.get().map(|wanted| fetch(run.get(), wanted));
        async move {
            match answer {
                Some(answer) => Some(answer.await),
                None => None,
            }
        }
    });
    let keep = move |old: Option<&Option<T>>| match fetched.get() {
        Some(None) => None,
        answer => answer.flatten().flatten().or_else(|| old.cloned().flatten()),
    };
    // Answers are large, and comparing two of them costs more than drawing them again.
    Memo::new_with_compare(keep, |_, _| true)
}
