//! A finding for tests of the modules that refine findings by later evidence.

use wire::views::{Cause, Confidence, Culprit, Verdict, VerdictState};

use crate::finding::{Finding, Statement};

/// Returns a finding on rank 1 over steps 2 to 6.
pub(crate) fn against_rank_1(cause: Cause) -> Finding {
    Finding {
        verdict: Verdict {
            culprit: Some(Culprit::Rank(1)),
            cause,
            cost_nanos_per_step: 5_000_000,
            cost_share: 0.1,
            device_hours_per_day: Some(4.8),
            state: VerdictState::Active,
            affected_steps: 5,
            confidence: Confidence::High,
            sentence: String::new(),
            evidence: Vec::new(),
            counter_evidence: Vec::new(),
            example_step: None,
            persistence: None,
            steps: (2, 6),
            onset: None,
            code: None,
        },
        statement: Statement::Late { episodes: 1 },
        reason: None,
        evidence: Vec::new(),
        counter_evidence: Vec::new(),
    }
}
