//! What only collectives show of a slow rank. In an unmodified job without marks, everything before a collective is taken
//! for compute, and a host that hands work over late looks the same. A burst tells them apart.

use wire::views::{Cause, Confidence};

use crate::finding::{Evidence, Finding, Reason};

/// Corrects a finding on slow compute where compute is inferred: to the host if the rank's device is idle, and to an unknown
/// cause without any evidence that its kernels are slow. Comes after all evidence is added.
pub(super) fn explain(finding: &mut Finding) {
    let verdict = &mut finding.verdict;
    if verdict.cause != Cause::Compute {
        return;
    }
    // What a rank runs is seen, whatever phase it belongs to.
    if finding.reason == Some(Reason::OwnCode) {
        verdict.cause = Cause::Host;
        return;
    }
    let shows = |is: fn(&Evidence) -> bool| finding.evidence.iter().any(is);
    if shows(|evidence| matches!(evidence, Evidence::SlowerKernels { .. } | Evidence::InTrace { .. })) {
        return;
    }
    if shows(|evidence| matches!(evidence, Evidence::IdlerDevice { .. })) {
        verdict.cause = Cause::Host;
        return;
    }
    (verdict.cause, verdict.confidence) = (Cause::Unknown, Confidence::Medium);
    finding.reason = Some(Reason::OnlyCollectives);
}

/// Corrects a finding on a job whose files hold only collectives: all other time is `other`, whether the rank computed or its host
/// was late.
pub(super) fn explain_unrecorded(finding: &mut Finding) {
    let verdict = &mut finding.verdict;
    if matches!(verdict.cause, Cause::Compute | Cause::Host) {
        (verdict.cause, verdict.confidence) = (Cause::Unknown, Confidence::Medium);
        finding.reason = Some(Reason::OnlyCollectives);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::fixture::finding_on_rank_1;
    use crate::wording;

    fn explained(cause: Cause, evidence: Vec<Evidence>) -> Finding {
        let mut finding = Finding { evidence, ..finding_on_rank_1(cause) };
        explain(&mut finding);
        finding
    }

    #[test]
    fn slow_compute_that_is_only_inferred_is_of_an_unknown_cause() {
        let found = wording::verdict(explained(Cause::Compute, Vec::new()));
        assert_eq!((found.cause, found.confidence), (Cause::Unknown, Confidence::Medium));
        let text =
            "Rank 1 is late because of its compute or its host (it is not recorded which), which costs";
        assert!(found.sentence.starts_with(text), "{}", found.sentence);
    }

    #[test]
    fn time_that_is_not_recorded_is_not_the_hosts() {
        let mut finding = finding_on_rank_1(Cause::Host);
        explain_unrecorded(&mut finding);
        let found = wording::verdict(finding);
        assert_eq!((found.cause, found.confidence), (Cause::Unknown, Confidence::Medium));
        assert!(
            found.sentence.contains("its compute or its host (it is not recorded which)"),
            "{}",
            found.sentence
        );
    }

    #[test]
    fn a_burst_shows_which_it_is() {
        let idler = Evidence::IdlerDevice { own: 0.4, other: 0.1, other_rank: 0 };
        let slower = Evidence::SlowerKernels { share: 0.2, other_rank: 0, burst_seconds: 1.0 };
        assert_eq!(explained(Cause::Compute, vec![idler.clone()]).verdict.cause, Cause::Host);
        let slow = explained(Cause::Compute, vec![slower, idler]).verdict;
        assert_eq!((slow.cause, slow.confidence), (Cause::Compute, Confidence::High));
        assert_eq!(explained(Cause::Input, Vec::new()).verdict.cause, Cause::Input);
    }
}
