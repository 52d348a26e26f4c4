//! The newest burst request from the server. The drain thread stores it, and the thread that records bursts reads it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use wire::burst::BurstRequest;

/// The number of bits that hold a request's length, which is at most 5,000 ms. The request's number, in milliseconds
/// since 1970, takes 41 bits.
const MILLIS_BITS: u32 = 16;

/// The newest request. Reading it neither blocks nor removes it.
#[derive(Clone, Default)]
pub(crate) struct Asked(Arc<AtomicU64>);

impl Asked {
    pub(crate) fn store(&self, request: BurstRequest) {
        let packed = (request.number << MILLIS_BITS) | u64::from(request.millis);
        self.0.fetch_max(packed, Ordering::Relaxed);
    }

    /// Returns the newest request if its number is larger than `done`.
    pub(crate) fn after(&self, done: u64) -> Option<BurstRequest> {
        let packed = self.0.load(Ordering::Relaxed);
        let millis = (packed & ((1 << MILLIS_BITS) - 1)) as u16;
        let request = BurstRequest { number: packed >> MILLIS_BITS, millis };
        (request.number > done).then_some(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_new_once_and_an_older_one_never_replaces_a_newer_one() {
        let asked = Asked::default();
        assert_eq!(asked.after(0), None);
        let (older, newer) =
            (BurstRequest { number: 7, millis: 5_000 }, BurstRequest { number: 9, millis: 1 });
        [older, newer, older].into_iter().for_each(|request| asked.store(request));
        assert_eq!((asked.after(0), asked.after(8), asked.after(9)), (Some(newer), Some(newer), None));
    }
}
