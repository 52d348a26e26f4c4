//! The faults of a run, remembered for longer than its report covers.

use wire::views::{PastFault, Report, Verdict, VerdictState};

use crate::state::budget::RECENT_STEPS;

/// The largest number of remembered faults. The oldest are forgotten first.
const MAX_FAULTS: usize = 64;

/// The faults that the reports of a run have found, oldest first.
#[derive(Debug, Default)]
pub struct Faults {
    known: Vec<PastFault>,
}

impl Faults {
    /// Adds to `report` what only earlier reports show: the onset of faults that are still present, and faults that are
    /// over.
    pub fn complete(&mut self, report: &mut Report) {
        let (covered_from, covered_to) = report.step_range.unwrap_or((u64::MAX, 0));
        // A fault can cost too little of more steps than that to be found.
        let is_partial = report.steps <= RECENT_STEPS as u64;
        let (mut past, mut shown) = (Vec::new(), Vec::new());
        let in_steps = |verdict: &&mut Verdict| !verdict.cause.is_outside_steps();
        // What is lost outside of steps is in every report on the whole run.
        for verdict in report.verdicts.iter_mut().filter(in_steps) {
            let fault = self.extended(PastFault::from(&*verdict));
            let is_over = verdict.state == VerdictState::Resolved;
            if !is_over {
                verdict.steps.0 = verdict.steps.0.min(fault.steps.0);
            }
            let is_cut = is_over && fault.steps.0 < covered_from;
            if is_cut { &mut past } else { &mut shown }.push(fault);
        }
        let found: Vec<PastFault> = past.iter().chain(&shown).cloned().collect();
        for mut fault in self.known.drain(..) {
            let note = report.notes.iter().find(|note| is_same(&PastFault::from(*note), &fault));
            let is_covered = is_partial && fault.steps.0 >= covered_from && fault.steps.1 <= covered_to;
            match note {
                // The fault costs less than before, but it is not over.
                Some(note) if note.state != VerdictState::Resolved => {
                    fault.steps.1 = fault.steps.1.max(note.steps.1);
                    shown.push(fault);
                }
                // A fault that the report covers but does not find was none.
                None if is_covered => {}
                _ => past.push(ended_before(fault, &found)),
            }
        }
        past.sort_by_key(|fault| fault.steps);
        past.drain(..past.len().saturating_sub(MAX_FAULTS));
        report.past_faults.clone_from(&past);
        self.known = [past, shown].concat();
    }

    /// Returns `fault` with the steps in which earlier reports found it, which are then no longer known.
    fn extended(&mut self, mut fault: PastFault) -> PastFault {
        if let Some(at) = self.known.iter().position(|known| is_same(known, &fault)) {
            let (first, last) = self.known.remove(at).steps;
            fault.steps = (first.min(fault.steps.0), last.max(fault.steps.1));
        }
        fault
    }
}

fn is_same(first: &PastFault, second: &PastFault) -> bool {
    let overlap = first.steps.0 <= second.steps.1 && second.steps.0 <= first.steps.1;
    (&first.culprit, first.cause) == (&second.culprit, second.cause) && overlap
}

/// Returns `fault` without the steps for which the report now names another cause for the same culprit.
fn ended_before(mut fault: PastFault, found: &[PastFault]) -> PastFault {
    let begun = found.iter().filter(|other| other.culprit == fault.culprit).map(|other| other.steps.0);
    if let Some(renamed) = begun.filter(|&first| first > fault.steps.0).min() {
        fault.steps.1 = fault.steps.1.min(renamed - 1);
    }
    fault
}

#[cfg(test)]
mod tests {
    use wire::views::{Cause, Culprit};

    use super::*;
    use crate::export::report::tests::fixed;

    /// Returns the fixed report over `range` with one verdict on rank 2.
    fn report(range: (u64, u64), cause: Cause, state: VerdictState, steps: (u64, u64)) -> Report {
        let mut report = Report { step_range: Some(range), ..fixed() };
        let verdict = &mut report.verdicts[0];
        (verdict.culprit, verdict.onset) = (Some(Culprit::Rank(2)), None);
        (verdict.cause, verdict.state, verdict.steps) = (cause, state, steps);
        report
    }

    fn healthy(range: (u64, u64)) -> Report {
        Report { step_range: Some(range), verdicts: Vec::new(), ..fixed() }
    }

    fn past(faults: &mut Faults, mut report: Report) -> Vec<(Cause, (u64, u64))> {
        faults.complete(&mut report);
        report.past_faults.iter().map(|fault| (fault.cause, fault.steps)).collect()
    }

    #[test]
    fn a_fault_keeps_its_onset_when_the_report_no_longer_covers_it() {
        let mut faults = Faults::default();
        let mut seen = |steps: (u64, u64)| {
            let mut report = report((steps.1 - 500, steps.1), Cause::Input, VerdictState::Active, steps);
            faults.complete(&mut report);
            (report.verdicts[0].steps, report.past_faults.len())
        };
        assert_eq!(seen((80, 500)), ((80, 500), 0));
        assert_eq!(seen((311, 811)), ((80, 811), 0));
        assert_eq!(seen((700, 1_200)), ((80, 1_200), 0));
        assert_eq!(seen((2_000, 2_500)), ((2_000, 2_500), 1), "absent in between");
    }

    #[test]
    fn a_fault_that_is_over_is_still_known_when_the_report_no_longer_covers_it() {
        let mut faults = Faults::default();
        let resolved = VerdictState::Resolved;
        assert!(past(&mut faults, report((2, 513), Cause::Input, resolved, (100, 199))).is_empty());
        // The report covers a part of the fault.
        let partly = report((150, 661), Cause::Input, resolved, (150, 199));
        assert_eq!(past(&mut faults, partly), [(Cause::Input, (100, 199))]);
        // What is left is too short for a verdict, or nothing is left.
        assert_eq!(past(&mut faults, healthy((190, 701))), [(Cause::Input, (100, 199))]);
        assert_eq!(past(&mut faults, healthy((9_000, 9_511))), [(Cause::Input, (100, 199))]);
    }

    #[test]
    fn a_fault_that_the_report_covers_but_does_not_find_is_forgotten() {
        let mut faults = Faults::default();
        past(&mut faults, report((2, 200), Cause::Input, VerdictState::Active, (100, 200)));
        assert!(past(&mut faults, healthy((2, 300))).is_empty());
        assert!(past(&mut faults, healthy((900, 1_411))).is_empty());
    }

    #[test]
    fn a_fault_that_is_too_short_for_a_report_over_many_steps_is_still_known() {
        let mut faults = Faults::default();
        past(&mut faults, report((2, 513), Cause::Input, VerdictState::Resolved, (100, 130)));
        let whole = Report { steps: 3_000, ..healthy((2, 3_001)) };
        assert_eq!(past(&mut faults, whole), [(Cause::Input, (100, 130))]);
    }

    #[test]
    fn a_fault_that_has_become_a_note_is_still_known() {
        let mut faults = Faults::default();
        let fault = report((2, 200), Cause::Input, VerdictState::Resolved, (100, 130));
        past(&mut faults, fault.clone());
        let noted = Report { notes: fault.verdicts, ..healthy((2, 400)) };
        assert_eq!(past(&mut faults, noted), [(Cause::Input, (100, 130))]);
    }

    #[test]
    fn a_fault_that_goes_on_at_a_lower_cost_is_not_over() {
        let mut faults = Faults::default();
        past(&mut faults, report((2, 513), Cause::Input, VerdictState::Active, (100, 513)));
        let cheaper = report((300, 811), Cause::Input, VerdictState::Active, (300, 811));
        assert!(past(&mut faults, Report { notes: cheaper.verdicts, ..healthy((300, 811)) }).is_empty());
        // It ends after all.
        assert_eq!(past(&mut faults, healthy((900, 1_411))), [(Cause::Input, (100, 811))]);
    }

    #[test]
    fn a_fault_ends_where_a_later_report_names_another_cause() {
        let mut faults = Faults::default();
        past(&mut faults, report((2, 513), Cause::Host, VerdictState::Active, (100, 513)));
        let renamed = report((200, 711), Cause::Compute, VerdictState::Active, (200, 711));
        assert_eq!(past(&mut faults, renamed), [(Cause::Host, (100, 199))]);
    }

    #[test]
    fn the_number_of_faults_is_bounded() {
        let mut faults = Faults::default();
        for fault in 0..100 {
            let (first, last) = (fault * 1_000, fault * 1_000 + 100);
            past(&mut faults, report((first, last), Cause::Input, VerdictState::Resolved, (first, last)));
        }
        let known = past(&mut faults, healthy((1_000_000, 1_000_500)));
        assert_eq!((known.len(), known[MAX_FAULTS - 1].1), (MAX_FAULTS, (99_000, 99_100)));
    }
}
