//! The closed steps of a run, first waiting for analysis, then analyzed, within the budgets. Open steps are
//! [`incoming`].
//!
//! [`Work`] holds all that an analysis needs, so the task that owns the runs hands it to a thread and continues. A run
//! has one step in analysis at a time, so that steps stay in order.

pub(super) mod course;
mod gathered;
pub mod incoming;
pub mod kept;
pub mod placed;
mod queue;

use std::collections::VecDeque;
use std::sync::Arc;

use analysis::records::StepRecords;
use analysis::replay::ReplayedCollective;
use analysis::report;
use analysis::step::{CollectiveAnalysis, RankAnalysis, StepAnalysis};
use timing::clocks::ClockFit;
use wire::ids::Step;

use super::budget;
use course::Course;
use gathered::ALLOCATION_BYTES;
use incoming::{CLAIMED_RANK_BYTES, Closed};
use kept::Kept;
use placed::{Done, Placed, Work};

/// The closed steps of a run.
#[derive(Default)]
pub struct Steps {
    waiting: VecDeque<Closed>,
    waiting_bytes: usize,
    /// The size of the step that is being analyzed, in bytes.
    under_way: Option<usize>,
    kept: Kept,
    analyzed: VecDeque<Arc<StepAnalysis>>,
    analyzed_bytes: usize,
    /// Whether analyzed steps had to leave.
    has_forgotten: bool,
    /// The number of steps that were skipped because they arrived faster than this machine analyzes them.
    given_up: u64,
    course: Course,
}

impl Steps {
    /// Sets the largest size of the records in memory, in bytes.
    pub fn keep(&mut self, bytes: usize) {
        self.kept = Kept::new(bytes);
    }

    /// Adds closed steps, oldest first.
    pub fn wait(&mut self, closed: Vec<Closed>) {
        for closed in closed {
            self.waiting_bytes += closed.bytes;
            self.waiting.push_back(closed);
        }
        while self.waiting_bytes > budget::WAITING_BYTES && self.waiting.len() > 1 {
            self.give_up_oldest();
        }
    }

    fn give_up_oldest(&mut self) {
        if let Some(oldest) = queue::pop(&mut self.waiting) {
            self.waiting_bytes -= oldest.bytes;
            self.given_up += 1;
        }
    }

    /// Returns the next step to analyze, unless one is being analyzed.
    pub fn next(&mut self, fits: impl FnOnce() -> (Vec<Option<ClockFit>>, bool)) -> Option<Work> {
        if self.under_way.is_some() {
            return None;
        }
        let Closed { records, bytes } = queue::pop(&mut self.waiting)?;
        self.waiting_bytes -= bytes;
        self.under_way = Some(bytes);
        let (fits, numbers_by_function) = fits();
        Some(Work { placed: Placed::new(Arc::new(records), &fits, numbers_by_function), bytes })
    }

    /// Returns true if a step could be analyzed now.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.under_way.is_none() && !self.waiting.is_empty()
    }

    /// Returns true if every closed step is analyzed.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.under_way.is_none() && self.waiting.is_empty()
    }

    /// Stores an analyzed step.
    pub fn finish(&mut self, done: Done) {
        self.under_way = None;
        if report::is_observed(&done.analysis) {
            self.course.push(done.analysis.step_nanos() as f64);
        }
        self.kept.push(done.records, done.bytes);
        self.analyzed_bytes += analyzed_bytes(&done.analysis);
        self.analyzed.push_back(done.analysis);
        while self.analyzed.len() > budget::ANALYZED_STEPS
            || (self.analyzed_bytes > budget::ANALYZED_BYTES && self.analyzed.len() > 1)
        {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some(oldest) = queue::pop(&mut self.analyzed) {
            self.has_forgotten = true;
            self.analyzed_bytes -= analyzed_bytes(&oldest);
        }
    }

    /// Drops the older half of the steps in memory. Their records are still on disk.
    pub fn halve(&mut self) {
        self.kept.shrink_to(self.kept.bytes() / 2);
        let (analyzed, waiting) = (self.analyzed_bytes / 2, self.waiting_bytes / 2);
        while self.analyzed_bytes > analyzed && self.analyzed.len() > 1 {
            self.forget_oldest();
        }
        while self.waiting_bytes > waiting && !self.waiting.is_empty() {
            self.give_up_oldest();
        }
    }

    /// Returns the size of all steps in memory, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.waiting_bytes + self.under_way.unwrap_or(0) + self.kept.bytes() + self.analyzed_bytes
    }

    /// Returns the number of steps that were skipped without analysis.
    #[must_use]
    pub fn given_up(&self) -> u64 {
        self.given_up
    }

    /// Returns the step time over the whole run, even of steps that are no longer in memory.
    #[must_use]
    pub fn course(&self) -> &Course {
        &self.course
    }

    /// Returns true if every step that was analyzed is still in memory.
    #[must_use]
    pub fn has_all_analyzed(&self) -> bool {
        !self.has_forgotten
    }

    /// Returns the analyzed steps in memory, oldest first.
    #[must_use]
    pub fn analyzed(&self) -> &VecDeque<Arc<StepAnalysis>> {
        &self.analyzed
    }

    /// Returns the records of one step, or of the newest complete one if `step` is `None`, unless they have left memory.
    #[must_use]
    pub fn find(&self, step: Option<Step>) -> Option<&Arc<StepRecords>> {
        self.kept.find(step)
    }

    /// Returns the analysis of a step, if it is in memory.
    #[must_use]
    pub fn find_analyzed(&self, step: Step) -> Option<&Arc<StepAnalysis>> {
        let at = self.analyzed.partition_point(|analyzed| analyzed.step < step);
        self.analyzed.get(at).filter(|analyzed| analyzed.step == step)
    }

    /// Returns the newest `most` analyzed steps, oldest first.
    #[must_use]
    pub fn newest(&self, most: usize) -> Vec<Arc<StepAnalysis>> {
        self.analyzed.iter().skip(self.analyzed.len().saturating_sub(most)).cloned().collect()
    }

    /// Returns the analyzed steps in memory from `first` to `last`, oldest first.
    #[must_use]
    pub fn analyzed_between(&self, first: Step, last: Step) -> Vec<Arc<StepAnalysis>> {
        let start = self.analyzed.partition_point(|step| step.step < first);
        let past = self.analyzed.partition_point(|step| step.step <= last);
        self.analyzed.range(start..past.max(start)).cloned().collect()
    }

    /// Returns the newest complete step that was observed in full. If there is none, returns the newest complete step
    /// that is not a shadow step.
    #[must_use]
    pub fn newest_whole(&self) -> Option<Step> {
        let whole = || self.analyzed.iter().rev().filter(|step| step.complete && !step.shadow);
        whole().find(|step| step.is_observed_in_full()).or_else(|| whole().next()).map(|step| step.step)
    }

    /// Returns the first and the last analyzed step in memory.
    #[must_use]
    pub fn range(&self) -> Option<(Step, Step)> {
        Some((self.analyzed.front()?.step, self.analyzed.back()?.step))
    }

    /// Returns the oldest step whose records are in memory. The records of all later steps are in memory too.
    #[must_use]
    pub fn kept_from(&self) -> Option<Step> {
        self.kept.iter().next().map(|records| records.step)
    }

    /// Returns the records in memory of the steps from `first` to `last`.
    pub fn kept_between(&self, first: Step, last: Step) -> impl Iterator<Item = &Arc<StepRecords>> {
        self.kept.iter().filter(move |records| first <= records.step && records.step <= last)
    }
}

/// Returns the approximate size of an analyzed step, in bytes.
fn analyzed_bytes(step: &StepAnalysis) -> usize {
    let replay = step.replay.as_ref().map_or(0, |replay| {
        replay.ranks.len() * size_of::<f32>() + replay.collectives.len() * size_of::<ReplayedCollective>()
    });
    let present = step.present().count();
    // Each rank, the step, its ranks, its collectives, and what is replayed of both.
    let allocations = present + 5;
    size_of::<StepAnalysis>()
        + 2 * size_of::<Arc<StepAnalysis>>()
        + step.ranks.len() * CLAIMED_RANK_BYTES
        + present * size_of::<RankAnalysis>()
        + step.collectives.len() * size_of::<CollectiveAnalysis>()
        + replay
        + allocations * ALLOCATION_BYTES
}
