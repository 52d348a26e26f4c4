//! The pace at which the ranks of a run send batches, and at which its report is renewed. A batch costs a rank about the
//! same however many records it has, so ranks send fewer while no one views their run.

use std::time::Duration;

use wire::clock::ServerNanos;
use wire::request::Requests;

/// The time between batches of a viewed run. It is the largest part of the 250 ms from gradient to pixel.
const VIEWED: Duration = Duration::from_millis(100);
/// The time between batches of other runs. A killed rank loses this much, and alerts are late by this much.
const UNVIEWED: Duration = Duration::from_millis(500);
/// The shortest time between reports of a viewed run, in nanoseconds. A report covers hundreds of steps.
const REPORT_VIEWED_NANOS: i64 = 250_000_000;
/// The shortest time between reports of other runs, in nanoseconds. The server often shares its processors with ranks.
const REPORT_UNVIEWED_NANOS: i64 = 1_000_000_000;
/// The time for which a run is viewed after a request, in nanoseconds. A live stream repeats its request each second, and
/// a person who reads a report may ask for more.
const AFTER_REQUEST_NANOS: i64 = 5_000_000_000;
/// The time for which a new run counts as viewed, in nanoseconds: whoever starts a job looks at its first steps.
const AFTER_START_NANOS: i64 = 10_000_000_000;

/// When a run was last viewed.
#[derive(Default)]
pub(super) struct Pace {
    viewed: Option<ServerNanos>,
}

impl Pace {
    /// Records that a page shows the run, or that a request reads it.
    pub(super) fn view(&mut self, now: ServerNanos) {
        self.viewed = Some(now);
    }

    /// Adds the time between batches to what a rank is asked for. `began` is the time of the run's first batch.
    pub(super) fn set(&self, asked: Requests, began: ServerNanos, now: ServerNanos) -> Requests {
        // Evidence of a verdict or a hang is to be there soon.
        let is_evidence = asked.burst.is_some() || asked.stacks.is_some() || asked.trace.is_some();
        let is_soon = is_evidence || self.is_viewed(began, now);
        Requests { batch_interval: Some(if is_soon { VIEWED } else { UNVIEWED }), ..asked }
    }

    /// Returns the shortest time between two reports, in nanoseconds.
    pub(super) fn report_every_nanos(&self, began: ServerNanos, now: ServerNanos) -> i64 {
        if self.is_viewed(began, now) { REPORT_VIEWED_NANOS } else { REPORT_UNVIEWED_NANOS }
    }

    fn is_viewed(&self, began: ServerNanos, now: ServerNanos) -> bool {
        let is_read = |viewed| now - viewed < AFTER_REQUEST_NANOS;
        now - began < AFTER_START_NANOS || self.viewed.is_some_and(is_read)
    }
}

#[cfg(test)]
mod tests {
    use wire::request::RecordingRequest;

    use super::*;

    #[test]
    fn ranks_send_often_at_the_start_for_evidence_and_while_someone_views_the_run() {
        const BEGAN: i64 = 1_000;
        let at = |seconds: i64| ServerNanos(BEGAN + seconds * 1_000_000_000);
        let mut pace = Pace::default();
        let interval = |pace: &Pace, asked, seconds| pace.set(asked, at(0), at(seconds)).batch_interval;
        let none = Requests::default();
        assert_eq!([0, 9].map(|now| interval(&pace, none, now)), [Some(VIEWED); 2]);
        assert_eq!([10, 60].map(|now| interval(&pace, none, now)), [Some(UNVIEWED); 2]);
        let reports = |pace: &Pace, seconds| pace.report_every_nanos(at(0), at(seconds));
        assert_eq!([9, 10].map(|now| reports(&pace, now)), [REPORT_VIEWED_NANOS, REPORT_UNVIEWED_NANOS]);
        let request = Some(RecordingRequest { number: 1, millis: 1 });
        for asked in [Requests { burst: request, ..none }, Requests { stacks: request, ..none }] {
            let set = pace.set(asked, at(0), at(60));
            assert_eq!(set, Requests { batch_interval: Some(VIEWED), ..asked });
        }
        pace.view(at(60));
        assert_eq!([60, 64].map(|now| interval(&pace, none, now)), [Some(VIEWED); 2]);
        assert_eq!(interval(&pace, none, 65), Some(UNVIEWED));
        assert_eq!([64, 65].map(|now| reports(&pace, now)), [REPORT_VIEWED_NANOS, REPORT_UNVIEWED_NANOS]);
    }
}
