//! The steps of a run that were looked up on disk: those that were read back, up to a size, and those that cannot be shown.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use analysis::records::StepRecords;
use wire::ids::Step;

use crate::state::budget;

/// The records of a step, and their size.
struct RecalledStep {
    records: Arc<StepRecords>,
    bytes: usize,
}

/// The steps of a run that were looked up on disk.
#[derive(Default)]
pub struct Recalled {
    /// The steps that were read back, in the order of requests.
    steps: VecDeque<RecalledStep>,
    bytes: usize,
    /// The steps that cannot be shown.
    hidden: BTreeSet<Step>,
}

impl Recalled {
    /// Adds a step whose records take `bytes`, and drops the oldest steps to make room. A step that exceeds the limit
    /// alone is not stored.
    pub fn push(&mut self, records: Arc<StepRecords>, bytes: usize) {
        if bytes > budget::RECALLED_BYTES || self.find(records.step).is_some() {
            return;
        }
        self.bytes += bytes;
        self.steps.push_back(RecalledStep { records, bytes });
        while self.bytes > budget::RECALLED_BYTES {
            let Some(oldest) = self.steps.pop_front() else { break };
            self.bytes -= oldest.bytes;
        }
    }

    #[must_use]
    pub fn find(&self, step: Step) -> Option<&Arc<StepRecords>> {
        self.steps.iter().map(|recalled| &recalled.records).find(|records| records.step == step)
    }

    /// Marks steps as not to be shown.
    pub fn hide(&mut self, steps: impl IntoIterator<Item = Step>) {
        self.hidden.extend(steps);
    }

    /// Forgets which of the steps before `first` cannot be shown, because they are not offered any more.
    pub fn forget_hidden_before(&mut self, first: Step) {
        if self.hidden.first().is_some_and(|&oldest| oldest < first) {
            self.hidden = self.hidden.split_off(&first);
        }
    }

    /// Returns the steps that cannot be shown, in order.
    pub fn hidden(&self) -> impl Iterator<Item = Step> {
        self.hidden.iter().copied()
    }

    /// Returns the size of all that is kept, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes + self.hidden.len() * size_of::<Step>()
    }

    /// Drops all records.
    pub fn clear_records(&mut self) {
        self.steps.clear();
        self.steps.shrink_to_fit();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_recently_requested_steps_stay_within_the_limit() {
        let mut recalled = Recalled::default();
        let step = |number| Arc::new(StepRecords { step: Step(number), ranks: Vec::new(), absent: 0 });
        for number in 0..6 {
            recalled.push(step(number), budget::RECALLED_BYTES / 4);
        }
        let kept: Vec<u64> = (0..6).filter(|&number| recalled.find(Step(number)).is_some()).collect();
        assert_eq!((kept, recalled.bytes()), (vec![2, 3, 4, 5], budget::RECALLED_BYTES));
        recalled.push(step(5), budget::RECALLED_BYTES / 4);
        recalled.push(step(9), budget::RECALLED_BYTES + 1);
        assert_eq!(recalled.bytes(), budget::RECALLED_BYTES, "the same step, and one that is too large");
        assert!(recalled.find(Step(9)).is_none() && recalled.find(Step(5)).is_some());
    }
}
