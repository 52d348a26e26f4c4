//! Steps on their way in: records of all ranks are gathered until a step can close.

use std::collections::{BTreeMap, VecDeque};

use analysis::step::{RankStep, StepRecords};
use wire::event::{BucketRecord, Event, Span, StepRecord};
use wire::ids::{Rank, Step};

/// Steps may be open at once per run: ranks of a synchronous job are one step apart, what lies between is
/// transport. 256 steps of 1,024 ranks x 45 records x 88 bytes would be 1 GiB; the memory bound of
/// [`Incoming::MOST_BYTES`] cuts in long before.
const MOST_OPEN: usize = 256;

/// What one rank has sent of one open step.
#[derive(Default)]
struct Partial {
    record: Option<StepRecord>,
    spans: Vec<Span>,
    buckets: Vec<BucketRecord>,
}

/// An open step.
struct Open {
    ranks: BTreeMap<Rank, Partial>,
    done: usize,
}

/// The records of a closed step, with their size in memory.
pub struct Closed {
    /// The records.
    pub records: StepRecords,
    /// About how many bytes they take.
    pub bytes: usize,
}

/// Gathers records into steps.
pub struct Incoming {
    world_size: usize,
    open: BTreeMap<Step, Open>,
    bytes: usize,
    /// Records for steps that closed before: counted, so that a gap does not look like quiet.
    pub late_records: u64,
    newest_closed: Option<Step>,
}

impl Incoming {
    /// Most bytes of records in open steps; beyond, the oldest step closes as it is.
    pub const MOST_BYTES: usize = 256 << 20;

    /// For a run of `world_size` ranks.
    #[must_use]
    pub fn new(world_size: usize) -> Self {
        Self { world_size, open: BTreeMap::new(), bytes: 0, late_records: 0, newest_closed: None }
    }

    /// Adds one record of `rank`.
    pub fn add(&mut self, rank: Rank, event: &Event) {
        let step = event.step();
        if self.newest_closed.is_some_and(|closed| step <= closed) {
            self.late_records += 1;
            return;
        }
        let open = self.open.entry(step).or_insert_with(|| Open { ranks: BTreeMap::new(), done: 0 });
        let partial = open.ranks.entry(rank).or_default();
        match event {
            Event::Span(span) => partial.spans.push(*span),
            Event::Bucket(bucket) => partial.buckets.push(*bucket),
            Event::Step(record) if partial.record.is_none() => {
                partial.record = Some(*record);
                open.done += 1;
            }
            // A started collective is progress, not part of a step; a second end of a step is a repetition.
            Event::Step(_) | Event::Started(_) => return,
        }
        self.bytes += size_of::<Event>();
    }

    /// Steps that can close now, in order: complete ones; and incomplete ones that hold up complete ones
    /// after them too long, too many or too large.
    pub fn close_ready(&mut self) -> Vec<Closed> {
        let mut closed = Vec::new();
        while let Some((&step, open)) = self.open.first_key_value() {
            let complete = open.done >= self.world_size;
            if !complete && self.open.len() <= MOST_OPEN && self.bytes <= Self::MOST_BYTES {
                break;
            }
            closed.extend(self.close(step));
        }
        closed
    }

    /// Closes every step older than the newest complete one, complete or not: a rank whose records did not
    /// come for so long is missing.
    pub fn close_overdue(&mut self) -> Vec<Closed> {
        let complete = self.open.iter().filter(|(_, open)| open.done >= self.world_size);
        let Some(newest) = complete.map(|(&step, _)| step).next_back() else { return Vec::new() };
        let overdue: Vec<Step> = self.open.range(..=newest).map(|(&step, _)| step).collect();
        overdue.into_iter().filter_map(|step| self.close(step)).collect()
    }

    /// Closes all that any rank has finished: the run is over.
    pub fn close_all(&mut self) -> Vec<Closed> {
        let steps: Vec<Step> = self.open.keys().copied().collect();
        steps.into_iter().filter_map(|step| self.close(step)).collect()
    }

    fn close(&mut self, step: Step) -> Option<Closed> {
        let open = self.open.remove(&step)?;
        self.newest_closed = self.newest_closed.max(Some(step));
        let mut ranks: Vec<Option<RankStep>> = vec![None; self.world_size];
        let mut bytes = 0;
        for (rank, partial) in open.ranks {
            bytes += (partial.spans.len() + partial.buckets.len() + 1) * size_of::<Event>();
            let slot = ranks.get_mut(rank.0 as usize)?;
            *slot = partial.record.map(|record| RankStep {
                record,
                spans: partial.spans,
                buckets: partial.buckets,
            });
        }
        self.bytes = self.bytes.saturating_sub(bytes);
        ranks.iter().any(Option::is_some).then_some(Closed { records: StepRecords { step, ranks }, bytes })
    }
}

/// Records of closed steps that are still in memory, newest last, within a bound.
#[derive(Default)]
pub struct Kept {
    steps: VecDeque<(StepRecords, usize)>,
    bytes: usize,
}

impl Kept {
    /// Most bytes of records of closed steps per run; older ones are on disk only.
    pub const MOST_BYTES: usize = 128 << 20;

    /// Adds the newest step.
    pub fn push(&mut self, closed: Closed) {
        self.bytes += closed.bytes;
        self.steps.push_back((closed.records, closed.bytes));
        while self.bytes > Self::MOST_BYTES && self.steps.len() > 1 {
            if let Some((_, bytes)) = self.steps.pop_front() {
                self.bytes -= bytes;
            }
        }
    }

    /// The records of one step, or of the newest complete one.
    #[must_use]
    pub fn find(&self, step: Option<Step>) -> Option<&StepRecords> {
        let complete = |records: &&StepRecords| records.ranks.iter().all(Option::is_some);
        let shadow = |records: &StepRecords| records.ranks.iter().flatten().any(|rank| rank.record.shadow);
        match step {
            None => self.iter().rev().find(|records| complete(records) && !shadow(records)),
            Some(step) => {
                let at = self.steps.partition_point(|(records, _)| records.step < step);
                self.steps.get(at).map(|(records, _)| records).filter(|records| records.step == step)
            }
        }
    }

    /// All kept steps, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &StepRecords> {
        self.steps.iter().map(|(records, _)| records)
    }
}

#[cfg(test)]
mod tests {
    use wire::clock::MonoNanos;

    use super::*;

    fn end_of(step: u64) -> Event {
        Event::Step(StepRecord {
            step: Step(step),
            begin: MonoNanos(0),
            end: MonoNanos(1),
            samples: 1,
            shadow: false,
        })
    }

    #[test]
    fn a_step_closes_when_its_last_rank_comes_and_in_order() {
        let mut incoming = Incoming::new(2);
        incoming.add(Rank(0), &end_of(0));
        incoming.add(Rank(0), &end_of(1));
        incoming.add(Rank(1), &end_of(1));
        assert!(incoming.close_ready().is_empty(), "step 0 is still open");
        incoming.add(Rank(1), &end_of(0));
        let closed: Vec<u64> = incoming.close_ready().iter().map(|closed| closed.records.step.0).collect();
        assert_eq!(closed, [0, 1]);
        incoming.add(Rank(1), &end_of(0));
        assert_eq!(incoming.late_records, 1);
    }

    #[test]
    fn a_rank_that_never_comes_is_missing_not_waited_for_forever() {
        let mut incoming = Incoming::new(2);
        for step in 0..3 {
            incoming.add(Rank(0), &end_of(step));
        }
        incoming.add(Rank(1), &end_of(2));
        let closed = incoming.close_overdue();
        assert_eq!(closed.len(), 3);
        assert!(closed[0].records.ranks[1].is_none() && closed[2].records.ranks[1].is_some());
        for step in 3..3 + MOST_OPEN as u64 + 1 {
            incoming.add(Rank(0), &end_of(step));
        }
        assert_eq!(incoming.close_ready().len(), 1);
    }
}
