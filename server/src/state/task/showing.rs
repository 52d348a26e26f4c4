//! When a run in memory is reported and shown again.

use std::sync::Arc;

use wire::clock::ServerNanos;

use crate::state::collection::Held;
use crate::state::snapshot::RunSnapshot;

/// The divisor for the share of time that reports of a run may take. A report over 1,024 ranks takes about 0.1 s.
pub(super) const REPORT_SHARE: i64 = 10;
/// The number of steps in a snapshot, which is how far a live reader may fall behind. Older steps are sent on request.
const LIVE_STEPS: usize = 2_000;

impl Held {
    /// Marks the run as changed if its state has changed, or if its report is older than `interval` nanoseconds: with time
    /// alone a rank falls silent and a hang grows older.
    pub(super) fn look_at_the_clock(&mut self, now: ServerNanos, interval: i64) {
        let aged = self.reported_at.is_none_or(|at| now - at >= interval);
        if self.has_new_state(now) || (aged && !self.run.is_over(now)) {
            self.changed();
        }
    }

    pub(super) fn changed(&mut self) {
        (self.dirty, self.is_stale) = (true, true);
    }

    pub(super) fn has_new_state(&self, now: ServerNanos) -> bool {
        self.report.as_ref().map(|report| report.state) != Some(self.run.state(now))
    }

    pub(super) fn report_is_due(&self, now: ServerNanos) -> bool {
        let interval = self.pace.report_every_nanos(self.run.first_seen(), now);
        let interval = interval.max(self.report_took_nanos.saturating_mul(REPORT_SHARE));
        self.has_new_state(now) || self.reported_at.is_none_or(|at| now - at >= interval)
    }

    /// Returns a new snapshot: the newest steps and the newest report. Returns `None` before the first report.
    pub(super) fn show(&mut self, now: ServerNanos) -> Option<Arc<RunSnapshot>> {
        let report = self.report.clone()?;
        self.dirty = false;
        let snapshot = Arc::new(RunSnapshot {
            summary: self.run.summary(&report, now),
            report: Some(report),
            baseline: None,
            steps: Arc::new(self.run.steps().newest(LIVE_STEPS)),
            first_step_of_attempt: self.run.first_step_of_attempt(),
        });
        self.shown = Some(snapshot.clone());
        for opener in self.openers.drain(..) {
            let _gone = opener.send(Some(snapshot.clone()));
        }
        Some(snapshot)
    }
}
