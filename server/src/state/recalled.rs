//! Steps that were read back from disk, up to a size.

use std::collections::VecDeque;
use std::sync::Arc;

use analysis::records::StepRecords;
use wire::ids::Step;

use super::budget;

/// The records of steps that were read back, in the order of requests.
#[derive(Default)]
pub struct Recalled {
    steps: VecDeque<(Arc<StepRecords>, usize)>,
    bytes: usize,
}

impl Recalled {
    /// Adds a step whose records take `bytes`, and drops the oldest steps to make room. A step that exceeds the limit
    /// alone is not stored.
    pub fn push(&mut self, records: Arc<StepRecords>, bytes: usize) {
        if bytes > budget::RECALLED_BYTES || self.find(records.step).is_some() {
            return;
        }
        self.bytes += bytes;
        self.steps.push_back((records, bytes));
        while self.bytes > budget::RECALLED_BYTES {
            let Some((_, oldest)) = self.steps.pop_front() else { break };
            self.bytes -= oldest;
        }
    }

    /// Returns the records of a step.
    #[must_use]
    pub fn find(&self, step: Step) -> Option<&Arc<StepRecords>> {
        self.steps.iter().map(|(records, _)| records).find(|records| records.step == step)
    }

    /// Returns the size of all records, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Drops all steps.
    pub fn clear(&mut self) {
        *self = Self::default();
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
