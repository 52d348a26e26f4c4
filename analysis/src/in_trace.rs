//! Evidence from traces: the operator or kernel that takes a slow rank longer than another.

use wire::views::captures::TraceComparison;

use crate::finding::{Evidence, Finding};

/// The smallest difference that is evidence, as a share of the step.
const LEAST_SHARE: f64 = 0.05;

/// Adds what differs most to a finding on slow compute, if a trace of one of its ranks is compared with another rank's.
pub(crate) fn explain(finding: &mut Finding, compared: Option<&TraceComparison>) {
    let Some(compared) = compared else { return };
    let Some(culprit) = &finding.verdict.culprit else { return };
    let is_slow_compute = finding.verdict.cause.is_slow_compute();
    let is_of_it =
        culprit.ranks().contains(&compared.rank.0) && !culprit.ranks().contains(&compared.against.0);
    let Some(row) = compared.rows.first().filter(|_| is_slow_compute && is_of_it) else { return };
    if row.difference() >= LEAST_SHARE * compared.own.step_nanos {
        let (other_rank, step) = (compared.against.0, compared.first_step.0);
        let of = Evidence::InTrace { name: row.name.clone(), nanos: row.difference(), other_rank, step };
        finding.evidence.insert(0, of);
    }
}
