//! The records of open steps, by step and rank, and what they take in memory.
//!
//! One map holds the records of all open steps. A map for each step would take a node with room for eleven ranks, more than a
//! kilobyte, for every step that a single rank has sent.

use std::collections::BTreeMap;

use analysis::records::RankStep;
use wire::event::{BucketRecord, Span, StepRecord};
use wire::ids::{Rank, Step};

/// What an allocation takes beyond its size, in bytes: the allocator's own data and rounding.
pub(super) const ALLOCATION_BYTES: usize = 16;

/// The size of an entry of a map, in bytes. The nodes of a map are at least half full.
pub(super) const fn entry_bytes<Key, Value>() -> usize {
    2 * size_of::<(Key, Value)>()
}

/// The size of a rank in an open step without its spans and collectives, in bytes.
const RANK_BYTES: usize = entry_bytes::<(Step, Rank), Partial>();

/// The size of what a vector has allocated, in bytes.
fn allocated<T>(values: &Vec<T>) -> usize {
    if values.capacity() == 0 { 0 } else { values.capacity() * size_of::<T>() + ALLOCATION_BYTES }
}

/// The records that one rank has sent of one open step.
#[derive(Default)]
pub(super) struct Partial {
    pub(super) record: Option<StepRecord>,
    pub(super) spans: Vec<Span>,
    pub(super) buckets: Vec<BucketRecord>,
}

impl Partial {
    fn bytes(&self) -> usize {
        RANK_BYTES + allocated(&self.spans) + allocated(&self.buckets)
    }

    /// Returns the number of records.
    pub(super) fn records(&self) -> u64 {
        (self.spans.len() + self.buckets.len() + usize::from(self.record.is_some())) as u64
    }

    /// Returns the records of the rank if it has ended the step, and their size in bytes.
    pub(super) fn ended(mut self) -> Option<(Box<RankStep>, usize)> {
        let record = self.record?;
        self.spans.shrink_to_fit();
        self.buckets.shrink_to_fit();
        let bytes =
            size_of::<RankStep>() + ALLOCATION_BYTES + allocated(&self.spans) + allocated(&self.buckets);
        Some((Box::new(RankStep { record, spans: self.spans, buckets: self.buckets }), bytes))
    }
}

/// The records of all open steps.
#[derive(Default)]
pub(super) struct Gathered {
    records: BTreeMap<(Step, Rank), Partial>,
    bytes: usize,
}

impl Gathered {
    /// Returns the size of all records, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Changes the records of a rank in a step, which are empty if it has sent none.
    pub(super) fn change<T>(&mut self, at: (Step, Rank), change: impl FnOnce(&mut Partial) -> T) -> T {
        let partial = self.records.entry(at).or_insert_with(|| {
            self.bytes += RANK_BYTES;
            Partial::default()
        });
        let bytes_before = partial.bytes();
        let changed = change(partial);
        self.bytes = self.bytes + partial.bytes() - bytes_before;
        changed
    }

    /// Returns the step of each rank's records, and their number.
    pub(super) fn record_counts(&self) -> impl Iterator<Item = (Step, u64)> {
        self.records.iter().map(|(&(step, _), partial)| (step, partial.records()))
    }

    /// Drops the records of a rank in a step that it did not end, and returns their number.
    pub(super) fn drop_unended(&mut self, at: (Step, Rank)) -> u64 {
        if self.records.get(&at).is_none_or(|partial| partial.record.is_some()) {
            return 0;
        }
        let Some(partial) = self.records.remove(&at) else { return 0 };
        self.bytes -= partial.bytes();
        partial.records()
    }

    /// Drops the records of all ranks in the steps that they did not end. Calls `dropped` with each step and the number of records.
    pub(super) fn drop_all_unended(&mut self, mut dropped: impl FnMut(Step, u64)) {
        self.records.retain(|&(step, _), partial| {
            let is_ended = partial.record.is_some();
            if !is_ended {
                self.bytes -= partial.bytes();
                dropped(step, partial.records());
            }
            is_ended
        });
    }

    pub(super) fn take(&mut self, step: Step) -> Vec<(Rank, Partial)> {
        let all = (step, Rank(0))..=(step, Rank(u32::MAX));
        let taken = self.records.extract_if(all, |_, _| true);
        let taken: Vec<(Rank, Partial)> = taken.map(|((_, rank), partial)| (rank, partial)).collect();
        self.bytes -= taken.iter().map(|(_, partial)| partial.bytes()).sum::<usize>();
        taken
    }
}
