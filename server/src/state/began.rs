//! When faults that are still there began, remembered for longer than the live report looks back.

use std::collections::BTreeMap;

use wire::views::{Cause, Culprit, Report, VerdictState};

/// The first and the newest step that had the fault, by the ranks that are named and by its cause.
#[derive(Debug, Default)]
pub(super) struct Began {
    by_fault: BTreeMap<(Vec<u32>, Cause), (u64, u64)>,
}

impl Began {
    /// Corrects the beginning of each fault that reaches back to the first step of `report`: it began when it was first
    /// seen to. Faults that the report does not have are forgotten.
    pub(super) fn date(&mut self, report: &mut Report) {
        let mut seen = BTreeMap::new();
        for verdict in &mut report.verdicts {
            let Some(ranks) = verdict.culprit.as_ref().map(Culprit::ranks).filter(|ranks| !ranks.is_empty())
            else {
                continue;
            };
            let fault = (ranks.to_vec(), verdict.cause);
            let (first, last) = &mut verdict.steps;
            if let Some((began, until)) = self.by_fault.get(&fault)
                && verdict.state != VerdictState::Resolved
                && *until >= *first
            {
                *first = (*began).min(*first);
            }
            seen.insert(fault, (*first, *last));
        }
        self.by_fault = seen;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::report::tests::fixed;

    #[test]
    fn a_fault_began_when_it_was_first_seen_also_when_the_report_does_not_look_back_so_far() {
        let mut began = Began::default();
        let mut seen = |steps, state| {
            let mut report = fixed();
            (report.verdicts[0].steps, report.verdicts[0].state) = (steps, state);
            began.date(&mut report);
            report.verdicts[0].steps
        };
        assert_eq!(seen((80, 500), VerdictState::Active), (80, 500));
        assert_eq!(seen((300, 811), VerdictState::Active), (80, 811));
        assert_eq!(seen((700, 1_200), VerdictState::Active), (80, 1_200));
        assert_eq!(seen((2_000, 2_500), VerdictState::Active), (2_000, 2_500), "it was away in between");
    }
}
