//! The worst verdict of a run in a few words.

use wire::views::{VerdictState, WorstVerdict};

use crate::verdict::who;

/// Formats a verdict for the list of runs: `Rank 1 · input · −28 %`. The share is what the step would lose without the
/// fault. A fault that is not active says so.
#[must_use]
pub fn short(worst: &WorstVerdict) -> String {
    let percent = worst.cost_share * 100.0;
    // Two significant digits are enough to compare faults.
    let saving = format!("{} %", units::signed(-percent, u8::from(percent.abs() < 9.95).into()));
    let state = match worst.state {
        VerdictState::Active => "",
        VerdictState::Recurring => " · recurring",
        VerdictState::Resolved => " · resolved",
    };
    format!("{} · {} · {saving}{state}", who(worst.culprit.as_ref()), worst.cause.words())
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::views::{Cause, Culprit};

    fn text(culprit: Option<Culprit>, state: VerdictState) -> String {
        short(&WorstVerdict { culprit, cause: Cause::MoreWork, state, cost_share: 0.28 })
    }

    #[test]
    fn a_verdict_is_short() {
        assert_eq!(text(Some(Culprit::Rank(1)), VerdictState::Active), "Rank 1 · more work · −28 %");
        let ranks = |ranks: std::ops::Range<u32>| Some(Culprit::Ranks(ranks.collect()));
        assert_eq!(text(ranks(2..4), VerdictState::Resolved), "Ranks 2 and 3 · more work · −28 % · resolved");
        assert_eq!(text(ranks(0..9), VerdictState::Recurring), "9 ranks · more work · −28 % · recurring");
        assert_eq!(text(Some(Culprit::All), VerdictState::Active), "All ranks · more work · −28 %");
        assert_eq!(text(None, VerdictState::Active), "No rank · more work · −28 %");
    }
}
