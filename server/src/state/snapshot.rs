//! What readers see: immutable, cheap to clone, replaced as a whole.

use std::collections::BTreeMap;
use std::sync::Arc;

use analysis::baseline;
use analysis::step::StepAnalysis;
use wire::ids::RunId;
use wire::live::{FLAG_MISSING, FLAG_SHADOW, StepColumns};
use wire::views::{Report, RunSummary};

/// All runs at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// By id.
    pub runs: BTreeMap<RunId, Arc<RunSnapshot>>,
    /// Runs that are set aside, and why.
    pub aside: BTreeMap<RunId, String>,
}

impl Snapshot {
    /// The list of runs, newest first.
    #[must_use]
    pub fn summaries(&self) -> Vec<RunSummary> {
        let mut summaries: Vec<RunSummary> = self.runs.values().map(|run| run.summary.clone()).collect();
        summaries.sort_by_key(|run| std::cmp::Reverse(run.started_unix_millis));
        summaries
    }
}

impl Snapshot {
    /// `report` with its measured scaling efficiency, which other runs decide.
    #[must_use]
    pub fn measure(&self, mut report: Report) -> Report {
        let summaries = self.runs.values().map(|run| &run.summary);
        baseline::measure(&mut report, summaries, |run| self.runs.get(run)?.as_baseline());
        report
    }
}

/// One run at one moment.
#[derive(Clone, Debug)]
pub struct RunSnapshot {
    /// The line of the list.
    pub summary: RunSummary,
    /// The report: over the recent steps of a live run, over all kept steps of an ended one. `None` while the run is on
    /// disk only.
    pub report: Option<Arc<Report>>,
    /// While the run is on disk only, and may be a baseline: the part of its report that a baseline needs.
    pub baseline: Option<Arc<Report>>,
    /// The newest steps, oldest first; live readers take what is new to them.
    pub steps: Arc<Vec<Arc<StepAnalysis>>>,
}

impl RunSnapshot {
    fn as_baseline(&self) -> Option<Arc<Report>> {
        self.report.clone().or_else(|| self.baseline.clone())
    }
}

/// `steps` as columns; `reset` tells the reader to forget what it has.
#[must_use]
pub fn columns(steps: &[Arc<StepAnalysis>], ranks: u32, reset: bool) -> StepColumns {
    let mut out = StepColumns { reset, ranks, ..StepColumns::default() };
    for step in steps {
        out.step.push(step.step.0);
        out.ended_unix_nanos.push(step.window.map_or(0, |(_, end)| end.0.max(0).unsigned_abs()));
        out.step_nanos.push(step.step_nanos() as f32);
        out.samples.push(step.present().map(|(_, rank)| rank.samples).sum());
        out.overlap.push(step.overlap().map_or(f32::NAN, |overlap| overlap as f32));
        for (column, mean) in out.parts.iter_mut().zip(mean_parts(step)) {
            column.push(mean);
        }
        let shadow = if step.shadow { FLAG_SHADOW } else { 0 };
        out.flags.push(shadow | if step.complete { 0 } else { FLAG_MISSING });
    }
    out
}

/// The mean over ranks of each part. A shadow step has no marks: its parts are unknown, not zero.
fn mean_parts(step: &StepAnalysis) -> [f32; 8] {
    let mut sums = [0u64; 8];
    let mut present = 0u64;
    for (_, rank) in step.present() {
        present += 1;
        sums.iter_mut().zip(rank.parts).for_each(|(sum, nanos)| *sum += nanos);
    }
    if present == 0 || step.shadow {
        return [f32::NAN; 8];
    }
    sums.map(|sum| (sum as f64 / present as f64) as f32)
}
