//! What a view fetches again and again while its run continues.

use std::future::Future;
use std::pin::Pin;

use leptos::prelude::*;
use leptos::task::spawn_local;

use crate::live::Live;
use crate::route::RunId;

/// An interval for what is fetched only when something else is wanted, in milliseconds. It is never used up.
const NO_INTERVAL_MILLIS: f64 = 1e9;

/// Fetches what `wanted` names about the run of this page: whenever that changes, when the server is back, and about every
/// `interval_millis` while data of the run arrive, if there is an interval. Nothing is fetched again while the page is hidden.
///
/// `fetch` is passed the id of the run. The last answer stays until the next one has arrived. It also stays if the server
/// does not answer; a notice says that. If nothing is wanted, there is no answer. `wanted` must be a signal that changes only
/// with what it names.
pub fn polled<K, T, F>(
    interval_millis: impl Into<Signal<Option<f64>>>,
    wanted: impl Into<Signal<Option<K>>>,
    fetch: impl Fn(String, K) -> F + 'static,
) -> Signal<Option<T>>
where
    K: Clone + Send + Sync + 'static,
    T: Clone + Send + Sync + 'static,
    F: Future<Output = Option<T>> + 'static,
{
    let (wanted, answer, turns) = (wanted.into(), RwSignal::new(None), Turns::default());
    let ask = move |run: String| -> Option<Request> {
        let number = turns.ask();
        let Some(wanted) = wanted.get() else {
            turns.take(number);
            answer.set(None);
            return None;
        };
        let request = untrack(|| fetch(run, wanted));
        Some(Box::pin(async move {
            if let Some(found) = request.await
                && turns.take(number)
            {
                // The view may be gone by now.
                let _gone = answer.try_set(Some(found));
            }
        }))
    };
    repeat(interval_millis.into(), Box::new(ask));
    answer.into()
}

/// A request that sets its answer. It is boxed, so that what follows is compiled once and not once per answer.
type Request = Pin<Box<dyn Future<Output = ()>>>;

fn repeat(interval_millis: Signal<Option<f64>>, ask: Box<dyn Fn(String) -> Option<Request>>) {
    let (live, run) = (expect_context::<Live>(), expect_context::<RunId>());
    let turn = live.turn(Signal::derive(move || interval_millis.get().unwrap_or(NO_INTERVAL_MILLIS)));
    Effect::new(move |_| {
        live.connected.track();
        if interval_millis.get().is_some() {
            turn.track();
        }
        if let Some(request) = ask(run.get()) {
            spawn_local(request);
        }
    });
}

/// The order of requests and answers, which may overtake each other.
#[derive(Clone, Copy, Default)]
struct Turns {
    /// The number of the newest request.
    asked: StoredValue<u32>,
    /// The number of the newest request that was answered.
    answered: StoredValue<u32>,
}

impl Turns {
    /// Returns the number of a new request.
    fn ask(self) -> u32 {
        let next = |asked: &mut u32| {
            *asked += 1;
            *asked
        };
        self.asked.try_update_value(next).unwrap_or_default()
    }

    /// Returns true if the answer to a request is newer than what is known. The view may be gone by now.
    fn take(self, number: u32) -> bool {
        let take = |answered: &mut u32| {
            let is_newer = number > *answered;
            *answered = number.max(*answered);
            is_newer
        };
        self.answered.try_update_value(take).unwrap_or(false)
    }
}
