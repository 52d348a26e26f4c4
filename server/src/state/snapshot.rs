//! Snapshots: views of the runs that readers are given. A snapshot is immutable, cheap to clone, and replaced as a
//! whole.

use std::collections::BTreeMap;
use std::sync::Arc;

use analysis::baseline::{self, Baseline};
use analysis::step::StepAnalysis;
use wire::batch::total;
use wire::ids::RunId;
use wire::live::{FLAG_MISSING, FLAG_SHADOW, Part, StepColumns};
use wire::views::{Report, RunSummary};

/// All runs at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub runs: BTreeMap<RunId, Arc<RunSnapshot>>,
    /// The runs that are set aside, with the reason for each.
    pub aside: BTreeMap<RunId, String>,
}

impl Snapshot {
    /// Returns the summaries of all runs, newest first.
    #[must_use]
    pub fn summaries(&self) -> Vec<RunSummary> {
        let mut summaries: Vec<RunSummary> = self.runs.values().map(|run| run.summary.clone()).collect();
        summaries.sort_by_key(|run| std::cmp::Reverse(run.started_unix_millis));
        summaries
    }
}

impl Snapshot {
    /// Returns `report` with its measured scaling efficiency, which depends on other runs.
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
    /// The run's summary.
    pub summary: RunSummary,
    /// The report: over the recent steps of a live run, and over all steps in memory of an ended one. `None` while the
    /// run is on disk only.
    pub report: Option<Arc<Report>>,
    /// What other runs are measured against, if the run is on disk only.
    pub baseline: Option<Baseline>,
    /// The newest steps, oldest first. A live reader takes those that it has not seen yet.
    pub steps: Arc<Vec<Arc<StepAnalysis>>>,
    /// The number of the first step of the newest attempt, if the agents of the job count from 0.
    pub first_step_of_attempt: u64,
}

impl RunSnapshot {
    fn as_baseline(&self) -> Option<Baseline> {
        self.report.as_deref().and_then(Baseline::from_report).or_else(|| self.baseline.clone())
    }
}

/// Converts `steps` to columns. `reset` asks the reader to drop the steps that it has.
#[must_use]
pub fn columns(steps: &[Arc<StepAnalysis>], ranks: u32, reset: bool) -> StepColumns {
    let mut out = StepColumns { reset, ranks, ..StepColumns::default() };
    for step in steps {
        out.step.push(step.step.0);
        out.ended_unix_nanos.push(step.window.map_or(0, |(_, end)| end.0.max(0).unsigned_abs()));
        out.step_nanos.push(step.step_nanos() as f32);
        out.samples.push(total(step.present().map(|(_, rank)| rank.samples)));
        let overlap = step.overlap().filter(|_| step.is_observed_in_full());
        out.overlap.push(overlap.map_or(f32::NAN, |overlap| overlap as f32));
        for (column, mean) in out.parts.iter_mut().zip(mean_parts(step)) {
            column.push(mean);
        }
        let shadow = if step.shadow { FLAG_SHADOW } else { 0 };
        out.flags.push(shadow | if step.complete { 0 } else { FLAG_MISSING });
    }
    out
}

/// Returns the mean of each part over the ranks. The parts of a step that was not observed in full are unknown, not zero.
fn mean_parts(step: &StepAnalysis) -> [f32; Part::COUNT] {
    let mut sums = [0u64; Part::COUNT];
    let mut present = 0u64;
    for (_, rank) in step.present() {
        present += 1;
        sums.iter_mut().zip(rank.parts).for_each(|(sum, nanos)| *sum += nanos);
    }
    if present == 0 || !step.is_observed_in_full() {
        return [f32::NAN; Part::COUNT];
    }
    sums.map(|sum| (sum as f64 / present as f64) as f32)
}
