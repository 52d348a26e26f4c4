//! The records of closed steps that are in memory.

use std::collections::VecDeque;
use std::sync::Arc;

use analysis::records::StepRecords;
use wire::ids::Step;

use super::queue;
use crate::state::budget;

/// The records of a step, and their size.
struct KeptStep {
    records: Arc<StepRecords>,
    bytes: usize,
}

/// The records of the newest closed steps, newest last, up to a size.
pub struct Kept {
    steps: VecDeque<KeptStep>,
    bytes: usize,
    most: usize,
}

impl Default for Kept {
    fn default() -> Self {
        Self::new(budget::KEPT_BYTES)
    }
}

impl Kept {
    /// Creates an empty store that holds at most `most` bytes of records.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { steps: VecDeque::new(), bytes: 0, most }
    }

    /// Adds the newest step, whose records take `bytes`. It is stored even if it alone exceeds the limit.
    pub fn push(&mut self, records: Arc<StepRecords>, bytes: usize) {
        self.bytes += bytes;
        self.steps.push_back(KeptStep { records, bytes });
        self.shrink_to(self.most);
    }

    /// Returns the size of all records, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Drops the oldest steps until at most `most` bytes are left. The newest step always stays.
    pub fn shrink_to(&mut self, most: usize) {
        while self.bytes > most && self.steps.len() > 1 {
            if let Some(oldest) = queue::pop(&mut self.steps) {
                self.bytes -= oldest.bytes;
            }
        }
    }

    /// Returns the records of one step. Without a step, returns those of the newest complete step that was observed in
    /// full, or else those of the newest complete step that is not a shadow step.
    #[must_use]
    pub fn find(&self, step: Option<Step>) -> Option<&Arc<StepRecords>> {
        let whole = || self.iter().rev().filter(|records| records.is_complete() && !records.is_shadow());
        match step {
            None => whole().find(|records| !records.is_only_enqueued()).or_else(|| whole().next()),
            Some(step) => {
                let at = self.steps.partition_point(|kept| kept.records.step < step);
                self.steps.get(at).map(|kept| &kept.records).filter(|records| records.step == step)
            }
        }
    }

    /// Returns the records of all stored steps, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Arc<StepRecords>> {
        self.steps.iter().map(|kept| &kept.records)
    }
}
