//! Open steps: the records of all ranks are gathered until a step can close.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use analysis::records::{RankStep, StepRecords};
use wire::clock::ServerNanos;
use wire::event::Event;
use wire::ids::{Rank, Step};

use super::gathered::{ALLOCATION_BYTES, Gathered, Partial, entry_bytes};
use crate::state::budget;

struct OpenStep {
    /// The number of ranks that have ended it.
    done: usize,
    /// The number of ranks that have ended a later step and not this one. Each rank sends its steps in order, so it
    /// never will: a rank that recognized the steps of an unmodified job later than others, for instance.
    skipped: usize,
    /// The awake time ([`Incoming::awake`]) at the step's first record.
    opened: i64,
}

/// The records of a closed step, with their size in memory.
pub struct Closed {
    pub records: StepRecords,
    /// Their approximate size, in bytes.
    pub bytes: usize,
}

/// The size of an open step without its records, in bytes.
const STEP_BYTES: usize = entry_bytes::<Step, OpenStep>();

/// The size of a rank of a closed step without records, in bytes: a pointer, twice. Of thousands of small runs that claim large
/// worlds, the process takes as much again as they hold, because the allocator keeps what such lists left behind (measured
/// with 1,500 runs of 65,536 ranks).
pub(super) const CLAIMED_RANK_BYTES: usize = 2 * size_of::<Option<Box<RankStep>>>();

/// Gathers records into steps.
pub struct Incoming {
    world_size: usize,
    /// The number of ranks that nothing records.
    absent: usize,
    open: BTreeMap<Step, OpenStep>,
    gathered: Gathered,
    /// The newest step that each rank has ended.
    ended: BTreeMap<Rank, Step>,
    /// The records that arrived after their step had closed. Without them the gap would look like inactivity.
    late: LeftOut,
    /// The records of ranks that did not end their step and went on to a later one.
    unended: LeftOut,
    /// The records that say again that a rank has ended a step.
    repeated: LeftOut,
    /// The number of records beyond [`budget::RANK_STEP_RECORDS`] of one rank in one step.
    pub excess_records: u64,
    /// The number of closed steps that too few ranks had sent ([`budget::MIN_PRESENT`]).
    pub sparse_steps: u64,
    newest_closed: Option<Step>,
    /// When the newest batch was received.
    received: Option<ServerNanos>,
    /// The time in which the run was heard from, in nanoseconds: silence counts as [`HEARD_NANOS`] at most. While a server is
    /// stopped, or its disk or machine stalls, no rank falls behind.
    awake: i64,
}

/// Records that are in no figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// The number of records.
    pub records: u64,
    /// The first and the last of their steps.
    pub steps: Option<(Step, Step)>,
}

impl LeftOut {
    fn add(&mut self, step: Step, records: u64) {
        if records > 0 {
            self.records += records;
            let (first, last) = self.steps.unwrap_or((step, step));
            self.steps = Some((first.min(step), last.max(step)));
        }
    }
}

/// The longest silence of a run that can be its own: each agent sends every two seconds.
const HEARD_NANOS: i64 = 3_000_000_000;

impl Incoming {
    /// Creates the open steps of a run with `world_size` ranks.
    #[must_use]
    pub fn new(world_size: usize) -> Self {
        Self {
            world_size,
            absent: 0,
            open: BTreeMap::new(),
            gathered: Gathered::default(),
            ended: BTreeMap::new(),
            late: LeftOut::default(),
            unended: LeftOut::default(),
            repeated: LeftOut::default(),
            excess_records: 0,
            sparse_steps: 0,
            newest_closed: None,
            received: None,
            awake: 0,
        }
    }

    /// Notes that a batch was received at `now`, before its records are added.
    pub fn hear(&mut self, now: ServerNanos) {
        let silence = self.received.map_or(0, |previous| (now - previous).max(0));
        self.awake += silence.min(HEARD_NANOS);
        self.received = self.received.max(Some(now));
    }

    /// Returns the records that arrived too late for their steps.
    #[must_use]
    pub fn late(&self) -> LeftOut {
        self.late
    }

    /// Returns the records of ranks that did not end their step and went on to a later one.
    #[must_use]
    pub fn unended(&self) -> LeftOut {
        self.unended
    }

    /// Returns the records that say again that a rank has ended a step.
    #[must_use]
    pub fn repeated(&self) -> LeftOut {
        self.repeated
    }

    /// Returns the records of steps that are still open.
    #[must_use]
    pub fn waiting(&self) -> LeftOut {
        let mut waiting = LeftOut::default();
        self.gathered.record_counts().for_each(|(step, records)| waiting.add(step, records));
        waiting
    }

    /// Counts a record as late, whatever its step.
    pub fn add_late(&mut self, event: &Event) {
        self.late.add(event.step(), 1);
    }

    /// Sets the number of ranks that nothing records. No step waits for them.
    pub fn set_absent(&mut self, absent: usize) {
        self.absent = absent;
    }

    /// Returns the number of ranks that end a step.
    fn recorded(&self) -> usize {
        self.world_size.saturating_sub(self.absent)
    }

    /// Adds one record of `rank`.
    pub fn add(&mut self, rank: Rank, event: &Event) {
        let step = event.step();
        if self.newest_closed.is_some_and(|closed| step <= closed) {
            self.late.add(step, 1);
            return;
        }
        // A started collective shows progress and is not part of a step.
        if matches!(event, Event::Started(_)) {
            return;
        }
        let open = self.open.entry(step).or_insert_with(|| {
            let skipped = self.ended.values().filter(|&&ended| ended > step).count();
            OpenStep { done: 0, skipped, opened: self.awake }
        });
        let added = self.gathered.change((step, rank), |partial| add_to(partial, event));
        match added {
            Added::Record => {}
            Added::Excess => self.excess_records += 1,
            Added::Repeated => self.repeated.add(step, 1),
            Added::End => {
                open.done += 1;
                self.skip_to(rank, step);
            }
        }
    }

    /// Drops the records of a rank in steps that it did not end: its process ended instead, and another begins.
    pub fn restart(&mut self, rank: Rank) {
        let dropped = self.open.keys().map(|&step| (step, self.gathered.drop_unended((step, rank))));
        let mut dropped: Vec<(Step, u64)> = dropped.filter(|(_, records)| *records > 0).collect();
        // A process that ends is in the middle of one step.
        dropped.pop();
        dropped.into_iter().for_each(|(step, records)| self.unended.add(step, records));
    }

    /// Closes all open steps, because the job continues with `world_size` ranks. Returns those that any rank has ended. The others
    /// are still to come.
    pub fn change_world(&mut self, world_size: usize) -> Vec<Closed> {
        let newest = self.open.last_key_value().map(|(&step, _)| step);
        self.gathered.drop_all_unended(|step, records| {
            self.unended.add(step, if Some(step) == newest { 0 } else { records });
        });
        self.open.retain(|_, open| open.done > 0);
        let closed = self.close_all();
        self.world_size = world_size;
        self.ended.retain(|rank, _| (rank.0 as usize) < world_size);
        closed
    }

    /// Counts the rank as missing in all open steps between the newest one that it ended so far and `step`.
    fn skip_to(&mut self, rank: Rank, step: Step) {
        let Some(before) = self.ended.insert(rank, step) else {
            self.open.range_mut(..step).for_each(|(_, open)| open.skipped += 1);
            return;
        };
        if before < step {
            let range = (Bound::Excluded(before), Bound::Excluded(step));
            self.open.range_mut(range).for_each(|(_, open)| open.skipped += 1);
        }
    }

    /// Returns the size of all open steps, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.gathered.bytes() + self.open.len() * STEP_BYTES
    }

    /// Returns the open step, if there is exactly one.
    #[must_use]
    pub fn only_open(&self) -> Option<Step> {
        self.open.first_key_value().filter(|_| self.open.len() == 1).map(|(&step, _)| step)
    }

    /// Closes steps in order and returns them: steps that every rank has ended or skipped, and other steps while more
    /// than [`budget::OPEN_BYTES`] bytes or [`budget::MOST_OPEN_STEPS`] steps are open, or more than [`budget::OPEN_STEPS`]
    /// steps of which the oldest has been open for [`budget::OPEN_NANOS`].
    pub fn close_ready(&mut self) -> Vec<Closed> {
        let mut closed = Vec::new();
        while let Some((&step, open)) = self.open.first_key_value() {
            let complete = open.done + open.skipped >= self.recorded();
            let overdue =
                self.open.len() > budget::OPEN_STEPS && self.awake - open.opened > budget::OPEN_NANOS;
            let fits = self.bytes() <= budget::OPEN_BYTES && self.open.len() <= budget::MOST_OPEN_STEPS;
            if !complete && !overdue && fits {
                break;
            }
            closed.extend(self.close(step));
        }
        closed
    }

    /// Closes the newest complete step and every step before it, complete or not. A rank whose records have not arrived
    /// by then is missing from the step.
    pub fn close_overdue(&mut self) -> Vec<Closed> {
        let complete = self.open.iter().filter(|(_, open)| open.done >= self.recorded());
        let Some(newest) = complete.map(|(&step, _)| step).next_back() else { return Vec::new() };
        let overdue: Vec<Step> = self.open.range(..=newest).map(|(&step, _)| step).collect();
        overdue.into_iter().filter_map(|step| self.close(step)).collect()
    }

    /// Closes all open steps, because the run is over. Steps that no rank has ended are dropped.
    pub fn close_all(&mut self) -> Vec<Closed> {
        let steps: Vec<Step> = self.open.keys().copied().collect();
        steps.into_iter().filter_map(|step| self.close(step)).collect()
    }

    fn close(&mut self, step: Step) -> Option<Closed> {
        let open = self.open.remove(&step)?;
        let gathered = self.gathered.take(step);
        // A process that ends is in the middle of its newest step, which therefore has no end.
        if !self.open.is_empty() {
            let unended = gathered.iter().filter(|(_, partial)| partial.record.is_none());
            self.unended.add(step, unended.map(|(_, partial)| partial.records()).sum());
        }
        // A step that no rank ended may be done by a later attempt.
        if open.done == 0 {
            return None;
        }
        self.newest_closed = self.newest_closed.max(Some(step));
        if open.done.saturating_mul(budget::MIN_PRESENT) < self.recorded() {
            self.sparse_steps += 1;
            return None;
        }
        let mut ranks: Vec<Option<Box<RankStep>>> = vec![None; self.world_size];
        // The entry of a queue with twice the room that it needs, the step, and its ranks.
        let mut bytes =
            2 * size_of::<(Arc<StepRecords>, usize)>() + size_of::<StepRecords>() + 2 * ALLOCATION_BYTES;
        bytes += self.world_size * CLAIMED_RANK_BYTES;
        for (rank, partial) in gathered {
            let slot = ranks.get_mut(rank.0 as usize)?;
            if let Some((records, rank_bytes)) = partial.ended() {
                bytes += rank_bytes;
                *slot = Some(records);
            }
        }
        Some(Closed { records: StepRecords { step, ranks, absent: self.absent }, bytes })
    }
}

/// What became of a record.
enum Added {
    /// It was added, or belongs to no step.
    Record,
    /// It is a second end of a step.
    Repeated,
    /// It is beyond what is analyzed of one rank in one step.
    Excess,
    End,
}

fn add_to(partial: &mut Partial, event: &Event) -> Added {
    let is_full = partial.spans.len() + partial.buckets.len() >= budget::RANK_STEP_RECORDS;
    match event {
        Event::Span(_) | Event::Bucket(_) if is_full => return Added::Excess,
        Event::Span(span) => partial.spans.push(*span),
        Event::Bucket(bucket) => partial.buckets.push(*bucket),
        Event::Step(record) if partial.record.is_none() => {
            partial.record = Some(*record);
            return Added::End;
        }
        Event::Step(_) => return Added::Repeated,
        Event::Started(_) => {}
    }
    Added::Record
}

#[cfg(test)]
mod tests;
