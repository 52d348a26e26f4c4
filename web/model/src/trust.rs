//! Whether something limits the trust in a report, for the badge of the Health view and its sentence.

use wire::batch::total;
use wire::views::{Figure, GapKind, OwnOverhead, Report};

/// The overhead of Paceline itself from which the badge is shown, as a share of the step: the agent's budget.
const OVERHEAD: f64 = 0.01;

/// Returns what limits the trust in a report; `None` if nothing does.
#[must_use]
pub fn problem(report: &Report) -> Option<&'static str> {
    let is_loss =
        |kind| matches!(kind, GapKind::StoredBatches | GapKind::RefusedBatches | GapKind::Checksums);
    if !report.drops.is_empty() {
        Some("records were lost")
    } else if report.gaps.iter().any(|gap| is_loss(gap.kind)) {
        Some("batches are missing or damaged")
    } else if report.own_overhead.known().is_some_and(|overhead| overhead.low > OVERHEAD) {
        Some("recording costs more than 1 % of a step")
    } else {
        None
    }
}

/// Says whether the figures of a report can be trusted: what was lost, what is missing, and what recording costs.
#[must_use]
pub fn sentence(report: &Report) -> String {
    let lost = total(report.drops.iter().flat_map(|rank| &rank.drops).map(|drop| drop.count));
    let (lost, missing) = (lost_words(lost, report.drops.len()), report.reasons().len());
    match overhead_words(&report.own_overhead) {
        Some(overhead) => format!("{lost}, {}, and {overhead}.", missing_words(missing)),
        // The cost of recording is one of the missing figures.
        None if missing <= 1 => format!("{lost}, and what recording costs is not measured."),
        None => format!("{lost}, and {}, among them what recording costs.", missing_words(missing)),
    }
}

fn lost_words(lost: u64, ranks: usize) -> String {
    match lost {
        0 => "No record was lost".into(),
        1 => "1 record was lost".into(),
        lost => format!("{} records of {} were lost", units::count(lost), units::ranks(ranks as u32)),
    }
}

fn missing_words(missing: usize) -> String {
    match missing {
        0 => "no figure is missing".into(),
        1 => "1 figure is missing".into(),
        missing => format!("{missing} figures are missing"),
    }
}

/// Says what recording costs; `None` if that is not measured. An interval that contains 0 does not tell the cost from
/// nothing.
fn overhead_words(overhead: &Figure<OwnOverhead>) -> Option<String> {
    let found = overhead.known()?;
    Some(if found.low <= 0.0 {
        format!("recording costs less than {} of a step", units::percent(found.high.max(0.0)))
    } else {
        format!("recording costs {} of a step", units::percent(found.ratio))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_counted_and_nothing_is_not() {
        assert_eq!(lost_words(0, 0), "No record was lost");
        assert_eq!(lost_words(1, 1), "1 record was lost");
        assert_eq!(lost_words(12_000, 3), "12,000 records of 3 ranks were lost");
        assert_eq!([0, 1, 2].map(missing_words)[1..], ["1 figure is missing", "2 figures are missing"]);
    }
}
