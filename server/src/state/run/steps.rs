//! Queries for a run's steps.

use std::sync::Arc;

use analysis::records::StepRecords;
use analysis::step::StepAnalysis;
use wire::ids::Step;
use wire::live::Waterfall;

use super::Run;
use crate::state::incoming::Closed;
use crate::state::older::{Between, Older};
use crate::state::steps::Placed;
use crate::store::StepRange;
use crate::store::folder::RunFolder;

impl Run {
    /// Returns the newest `most` analyzed steps, oldest first.
    #[must_use]
    pub fn newest_steps(&self, most: usize) -> Vec<Arc<StepAnalysis>> {
        let analyzed = self.steps.analyzed();
        analyzed.iter().skip(analyzed.len().saturating_sub(most)).cloned().collect()
    }

    /// Returns the analyzed steps in memory from `first` to `last`, oldest first.
    #[must_use]
    pub fn steps_between(&self, first: Step, last: Step) -> Vec<Arc<StepAnalysis>> {
        let analyzed = self.steps.analyzed();
        let from = analyzed.partition_point(|step| step.step < first);
        let past = analyzed.partition_point(|step| step.step <= last);
        analyzed.range(from..past.max(from)).cloned().collect()
    }

    /// Returns the analysis of a step, or `None` if it is not in memory.
    #[must_use]
    pub fn analyzed(&self, step: Step) -> Option<&Arc<StepAnalysis>> {
        self.steps.find_analyzed(step)
    }

    /// Returns the newest complete step that was observed in full. If there is none, returns the newest complete step
    /// that is not a shadow step.
    #[must_use]
    pub fn newest_whole(&self) -> Option<Step> {
        let whole = || self.steps.analyzed().iter().rev().filter(|step| step.complete && !step.shadow);
        whole().find(|step| step.is_observed_in_full()).or_else(|| whole().next()).map(|step| step.step)
    }

    /// Returns the first and the last analyzed step in memory.
    #[must_use]
    pub fn analyzed_range(&self) -> Option<(Step, Step)> {
        let analyzed = self.steps.analyzed();
        Some((analyzed.front()?.step, analyzed.back()?.step))
    }

    /// Stores a step that was read back from disk, and returns it.
    pub fn recall(&mut self, closed: Closed) -> Placed {
        let records = self.steps.recall(closed);
        self.place(records)
    }

    /// Marks the records of these steps as unreadable on disk. Verdicts no longer offer one of the steps as an example,
    /// unless its records are in memory.
    pub fn hide(&mut self, steps: StepRange) {
        self.steps.hide(steps);
    }

    /// Returns true if the records of a step are in memory.
    #[must_use]
    pub fn has_records(&self, step: Step) -> bool {
        self.steps.find(Some(step)).is_some()
    }

    /// Returns one step on the ranks' clocks, or the newest complete one if `step` is `None`. Returns `None` if its
    /// records are not in memory.
    #[must_use]
    pub fn placed(&self, step: Option<Step>) -> Option<Placed> {
        Some(self.place(self.steps.find(step)?.clone()))
    }

    /// Returns the first `most` steps from `first` to `last`, for exports. If older steps of the range are in `folder`,
    /// returns only those.
    #[must_use]
    pub fn between(&self, first: Step, last: Step, most: usize, folder: Option<RunFolder>) -> Between {
        let is_older = |step: Step| self.steps.kept_from().is_none_or(|from| step < from);
        if let Some(folder) = folder.filter(|_| is_older(first)) {
            let before = self.steps.kept_from().map_or(last, |from| Step(from.0.saturating_sub(1)));
            let steps = StepRange { first, last: last.min(before) };
            let analyzed = self.steps_between(steps.first, steps.last).into_iter();
            let incomplete = analyzed.filter(|step| !step.complete).collect();
            let (fits, numbers_by_function) = (self.fits(), self.numbers_by_function());
            let older = Older { folder, steps, fits, numbers_by_function, incomplete };
            return Between { placed: Vec::new(), older: Some(older) };
        }
        let kept = self.steps.kept_between(first, last).take(most);
        Between { placed: kept.map(|records| self.place(records.clone())).collect(), older: None }
    }

    fn place(&self, records: Arc<StepRecords>) -> Placed {
        Placed::new(records, &self.fits(), self.numbers_by_function())
    }

    /// Returns the waterfall of one step, or of the newest complete one if `step` is `None`. Returns `None` if its
    /// records are not in memory.
    #[must_use]
    pub fn waterfall(&self, step: Option<Step>) -> Option<Waterfall> {
        Some(self.placed(step)?.waterfall())
    }
}
