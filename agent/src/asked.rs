//! The newest requests from the server. The drain thread stores them, and the threads that answer them read them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use wire::request::{RecordingRequest, Requests, TraceRequest};

/// The number of bits that hold a request's length, which is at most 5,000 ms. The request's number, in milliseconds
/// since 1970, takes 41 bits.
const MILLIS_BITS: u32 = 16;

/// The newest requests.
#[derive(Clone, Default)]
pub(crate) struct Asked {
    /// The newest request for a burst.
    pub burst: Newest,
    /// The newest request for stacks.
    pub stacks: Newest,
    /// The newest request for a trace.
    trace: Arc<Mutex<Option<TraceRequest>>>,
}

impl Asked {
    pub(crate) fn store(&self, requests: Requests) {
        requests.burst.into_iter().for_each(|request| self.burst.store(request));
        requests.stacks.into_iter().for_each(|request| self.stacks.store(request));
        if let Some(request) = requests.trace {
            let mut newest = self.trace.lock().unwrap_or_else(PoisonError::into_inner);
            *newest = newest.filter(|known| known.number >= request.number).or(Some(request));
        }
    }

    /// Returns the newest request for a trace if its number is larger than `done`.
    pub(crate) fn trace_after(&self, done: u64) -> Option<TraceRequest> {
        let newest = *self.trace.lock().unwrap_or_else(PoisonError::into_inner);
        newest.filter(|request| request.number > done)
    }
}

/// The newest request of a kind. Reading it neither blocks nor removes it.
#[derive(Clone, Default)]
pub(crate) struct Newest(Arc<AtomicU64>);

impl Newest {
    fn store(&self, request: RecordingRequest) {
        let packed = (request.number << MILLIS_BITS) | u64::from(request.millis);
        self.0.fetch_max(packed, Ordering::Relaxed);
    }

    /// Returns the newest request if its number is larger than `done`.
    pub(crate) fn newer_than(&self, done: u64) -> Option<RecordingRequest> {
        let packed = self.0.load(Ordering::Relaxed);
        let millis = (packed & ((1 << MILLIS_BITS) - 1)) as u16;
        let request = RecordingRequest { number: packed >> MILLIS_BITS, millis };
        (request.number > done).then_some(request)
    }
}

#[cfg(test)]
mod tests {
    use wire::ids::Step;

    use super::*;

    #[test]
    fn a_request_is_new_once_and_an_older_one_never_replaces_a_newer_one() {
        let asked = Newest::default();
        assert_eq!(asked.newer_than(0), None);
        let (older, newer) =
            (RecordingRequest { number: 7, millis: 5_000 }, RecordingRequest { number: 9, millis: 1 });
        [older, newer, older].into_iter().for_each(|request| asked.store(request));
        assert_eq!(
            (asked.newer_than(0), asked.newer_than(8), asked.newer_than(9)),
            (Some(newer), Some(newer), None)
        );
    }

    #[test]
    fn an_older_request_for_a_trace_never_replaces_a_newer_one() {
        let asked = Asked::default();
        assert_eq!(asked.trace_after(0), None);
        let [older, newer] = [7, 9].map(|number| TraceRequest { number, first: Step(1), steps: 3 });
        for request in [older, newer, older] {
            asked.store(Requests { trace: Some(request), ..Requests::default() });
        }
        assert_eq!([asked.trace_after(0), asked.trace_after(9)], [Some(newer), None]);
    }
}
