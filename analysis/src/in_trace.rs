//! Evidence from traces: the operator or kernel that takes a slow rank longer than another.

use std::sync::Arc;

use wire::ids::{Rank, Step};
use wire::traces::TraceSummary;
use wire::views::captures::TraceComparison;

use crate::finding::{Evidence, Finding};
use crate::traces;

/// The smallest difference that is evidence, as a share of the step.
const LEAST_SHARE: f64 = 0.05;

/// Adds what differs most to a finding on slow compute, if a trace of one of its ranks is compared with another rank's.
pub(crate) fn explain(finding: &mut Finding, compared: Option<&TraceComparison>) {
    if finding.verdict.cause.is_slow_compute() {
        compared.into_iter().for_each(|compared| add(finding, compared));
    }
}

/// Adds what differs most between the first rank that a finding names and the first other rank with a trace, if the run is
/// imported. The traces are of the steps that are judged.
pub(crate) fn explain_imported(finding: &mut Finding, summaries: &[Option<Arc<TraceSummary>>]) {
    let Some(culprit) = &finding.verdict.culprit else { return };
    let named = culprit.ranks();
    let of = |at: usize| Some((Rank(at as u32), &**summaries.get(at)?.as_ref()?));
    let own = named.first().and_then(|rank| of(*rank as usize));
    let other = (0..summaries.len()).filter(|at| !named.contains(&(*at as u32))).find_map(of);
    if let Some((own, other)) = own.zip(other) {
        let compared = traces::compare(own, other, Step(finding.verdict.steps.0));
        add(finding, &compared);
    }
}

fn add(finding: &mut Finding, compared: &TraceComparison) {
    let Some(culprit) = &finding.verdict.culprit else { return };
    let is_of_it =
        culprit.ranks().contains(&compared.rank.0) && !culprit.ranks().contains(&compared.against.0);
    let Some(row) = compared.rows.first().filter(|_| is_of_it) else { return };
    if row.difference() >= LEAST_SHARE * compared.own.step_nanos {
        let (other_rank, step) = (compared.against.0, compared.first_step.0);
        let of = Evidence::InTrace { name: row.name.clone(), nanos: row.difference(), other_rank, step };
        finding.evidence.insert(0, of);
    }
}
