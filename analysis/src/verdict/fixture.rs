//! A finding for tests of the modules that refine findings by later evidence.

use wire::views::{Cause, Confidence, Culprit, Verdict};

use crate::finding::{Finding, Statement};

/// Returns a finding on rank 1 over steps 2 to 6.
pub(crate) fn against_rank_1(cause: Cause) -> Finding {
    let verdict = Verdict {
        cost_nanos_per_step: 5_000_000,
        cost_share: 0.1,
        device_hours_per_day: Some(4.8),
        affected_steps: 5,
        confidence: Confidence::High,
        steps: (2, 6),
        ..Verdict::new(Culprit::Rank(1), cause)
    };
    Finding::new(verdict, Statement::Late { episodes: 1 })
}
