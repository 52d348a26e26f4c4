//! Whether something limits the trust in a report, for the badge of the Health view.

use wire::views::{GapKind, Report};

/// The own overhead that is worth a badge, as a share of the step. It is the budget of an agent.
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
