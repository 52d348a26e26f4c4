//! The onset of faults that are still present, remembered for longer than the live report covers.

use std::collections::BTreeMap;

use wire::views::{Cause, Culprit, Report, VerdictState};

/// The first and the newest step of each fault, by the named ranks and the cause.
#[derive(Debug, Default)]
pub(super) struct Began {
    by_fault: BTreeMap<(Vec<u32>, Cause), (u64, u64)>,
}

impl Began {
    /// Corrects the onset of each fault that reaches back to the first step of `report` to the step in which the fault
    /// was first seen. Faults that the report does not contain are forgotten.
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
    fn a_fault_keeps_its_onset_when_the_report_no_longer_covers_it() {
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
        assert_eq!(seen((2_000, 2_500), VerdictState::Active), (2_000, 2_500), "absent in between");
    }
}
