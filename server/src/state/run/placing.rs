//! A run's steps on one clock: those in memory, and those that are read back from disk.

use std::sync::Arc;

use analysis::records::StepRecords;
use wire::ids::Step;
use wire::live::Waterfall;

use super::Run;
use crate::state::recall::older::{Older, PlacedSteps};
use crate::state::steps::incoming::Closed;
use crate::state::steps::placed::{Placed, leave_out_late};
use crate::store::StepRange;
use crate::store::folder::RunFolder;

impl Run {
    /// Stores a step that was read back from disk, and returns it. Ranks whose records arrived too late for its analysis
    /// stay missing.
    pub fn recall(&mut self, mut closed: Closed) -> Placed {
        if let Some(analyzed) = self.steps.find_analyzed(closed.records.step) {
            leave_out_late(&mut closed.records, analyzed);
        }
        let records = Arc::new(closed.records);
        self.recalled.push(records.clone(), closed.bytes);
        self.place(records)
    }

    /// Marks the records of these steps as unreadable on disk. Verdicts no longer offer one of the steps as an example,
    /// unless its records are in memory. Only analyzed steps are marked, because no other step is ever offered.
    pub fn hide(&mut self, steps: StepRange) {
        let analyzed = self.steps.analyzed().iter().map(|analyzed| analyzed.step);
        let gone: Vec<Step> =
            analyzed.filter(|&step| steps.contains(step) && !self.has_records(step)).collect();
        self.recalled.hide(gone);
    }

    /// Returns true if the records of a step are in memory.
    #[must_use]
    pub fn has_records(&self, step: Step) -> bool {
        self.find(Some(step)).is_some()
    }

    /// Returns the records of one step, or of the newest complete one if `step` is `None`, if they are in memory.
    fn find(&self, step: Option<Step>) -> Option<&Arc<StepRecords>> {
        self.steps.find(step).or_else(|| self.recalled.find(step?))
    }

    /// Returns one step on the ranks' clocks, or the newest complete one if `step` is `None`. Returns `None` if its
    /// records are not in memory.
    #[must_use]
    pub fn placed(&self, step: Option<Step>) -> Option<Placed> {
        Some(self.place(self.find(step)?.clone()))
    }

    /// Returns the first `most` steps from `first` to `last`, for exports. If older steps of the range are in `folder`,
    /// returns only those.
    #[must_use]
    pub fn placed_steps(
        &self,
        first: Step,
        last: Step,
        most: usize,
        folder: Option<RunFolder>,
    ) -> PlacedSteps {
        let is_older = |step: Step| self.steps.kept_from().is_none_or(|oldest_kept| step < oldest_kept);
        if let Some(folder) = folder.filter(|_| is_older(first)) {
            let last_older =
                self.steps.kept_from().map_or(last, |oldest_kept| Step(oldest_kept.0.saturating_sub(1)));
            let steps = StepRange { first, last: last.min(last_older) };
            let analyzed = self.steps.analyzed_between(steps.first, steps.last).into_iter();
            let incomplete = analyzed.filter(|step| !step.complete).collect();
            let (fits, numbers_by_function) = (self.fits(), self.numbers_by_function());
            let older = Older { folder, steps, fits, numbers_by_function, incomplete };
            return PlacedSteps { placed: Vec::new(), older: Some(older) };
        }
        let kept = self.steps.kept_between(first, last).take(most);
        PlacedSteps { placed: kept.map(|records| self.place(records.clone())).collect(), older: None }
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
