//! A finding and a replay for tests of the modules that judge steps, or refine findings by later evidence.

use wire::views::what_if::Phase;
use wire::views::{Cause, Confidence, Culprit, Verdict};

use crate::finding::{Finding, Statement};
use crate::replay::Replay;

/// Returns a finding on rank 1 over steps 2 to 6.
pub(crate) fn finding_on_rank_1(cause: Cause) -> Finding {
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

/// Returns an exact replay of a step: what even ranks save, and what each rank saves, in nanoseconds.
pub(crate) fn replay(measured_nanos: f64, alike_nanos: f32, ranks: Vec<f32>) -> Replay {
    Replay {
        measured_nanos,
        simulated_nanos: measured_nanos,
        skew_nanos: 0.0,
        even_nanos: 0.0,
        even_slowest_nanos: 0.0,
        alike_nanos,
        ranks,
        phases: Phase::ALL.map(|_| 0.0),
        collectives: Vec::new(),
        unpredictable: None,
        before_nanos: 0.0,
        after_nanos: 0.0,
        group: None,
    }
}
