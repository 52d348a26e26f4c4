//! What readers see: immutable, cheap to clone, replaced as a whole.

use std::collections::BTreeMap;
use std::sync::Arc;

use analysis::step::StepAnalysis;
use wire::ids::RunId;
use wire::live::{FLAG_MISSING, FLAG_SHADOW, Part, StepColumns};
use wire::views::{Report, RunSummary};

/// All runs at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// By id.
    pub runs: BTreeMap<RunId, Arc<RunSnapshot>>,
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

/// One run at one moment.
#[derive(Clone, Debug)]
pub struct RunSnapshot {
    /// The line of the list.
    pub summary: RunSummary,
    /// The report: over the recent steps of a live run, over all kept steps of an ended one.
    pub report: Arc<Report>,
    /// The newest steps, oldest first; live readers take what is new to them.
    pub steps: Arc<Vec<Arc<StepAnalysis>>>,
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
        for rank in 0..ranks as usize {
            push_cell(&mut out, step, rank);
        }
    }
    out
}

fn push_cell(out: &mut StepColumns, step: &StepAnalysis, rank: usize) {
    let analysis = step.ranks.get(rank).and_then(Option::as_ref);
    for part in Part::ALL {
        // A shadow step has no marks: its parts are unknown, not zero.
        let nanos = analysis.filter(|_| !step.shadow).map_or(f32::NAN, |rank| rank.part(part) as f32);
        out.parts[part as usize].push(nanos);
    }
    out.rank_nanos.push(analysis.map_or(f32::NAN, |rank| rank.step_nanos as f32));
    out.lateness.push(analysis.and_then(|rank| rank.lateness_nanos).map_or(f32::NAN, |nanos| nanos as f32));
    let missing = if analysis.is_none() { FLAG_MISSING } else { 0 };
    let shadow = if step.shadow { FLAG_SHADOW } else { 0 };
    out.flags.push(missing | shadow);
}
