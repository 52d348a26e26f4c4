//! Open steps: the records of all ranks are gathered until a step can close.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use analysis::records::{RankStep, StepRecords};
use wire::clock::ServerNanos;
use wire::event::Event;
use wire::ids::{Rank, Step};

use super::{budget, queue};
use gathered::{ALLOCATION_BYTES, Gathered, Partial, entry_bytes};

pub(super) mod gathered;

/// An open step.
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
    /// The records.
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
        let silence = self.received.map_or(0, |before| (now - before).max(0));
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
        self.gathered.each().for_each(|(step, records)| waiting.add(step, records));
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
            let between = (Bound::Excluded(before), Bound::Excluded(step));
            self.open.range_mut(between).for_each(|(_, open)| open.skipped += 1);
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
            if let Some((records, of_rank)) = partial.ended() {
                bytes += of_rank;
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
    /// It ends the step.
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

/// The records of the newest closed steps, newest last, up to a size.
pub struct Kept {
    steps: VecDeque<(Arc<StepRecords>, usize)>,
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
        self.steps.push_back((records, bytes));
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
            if let Some((_, bytes)) = queue::pop(&mut self.steps) {
                self.bytes -= bytes;
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
                let at = self.steps.partition_point(|(records, _)| records.step < step);
                self.steps.get(at).map(|(records, _)| records).filter(|records| records.step == step)
            }
        }
    }

    /// Returns the records of all stored steps, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Arc<StepRecords>> {
        self.steps.iter().map(|(records, _)| records)
    }
}

#[cfg(test)]
mod tests {
    use wire::clock::MonoNanos;
    use wire::event::{BucketRecord, Source, Span, SpanKind, StepRecord};
    use wire::ids::{Bucket, Comm, Seq};

    use super::*;

    /// Closes steps at a time at which those that are open need not stay open.
    fn close_later(incoming: &mut Incoming) -> Vec<Closed> {
        for at in 0..=budget::OPEN_NANOS / HEARD_NANOS + 1 {
            incoming.hear(ServerNanos(at * HEARD_NANOS));
        }
        incoming.close_ready()
    }

    fn end_of(step: u64) -> Event {
        Event::Step(StepRecord {
            step: Step(step),
            begin: MonoNanos(0),
            end: MonoNanos(1),
            samples: 1,
            shadow: false,
        })
    }

    fn span_of(step: u64) -> Event {
        let (begin, end) = (MonoNanos(0), MonoNanos(1));
        Event::Span(Span { step: Step(step), kind: SpanKind::Forward, begin, end, cpu_nanos: 0 })
    }

    fn collective_of(step: u64) -> Event {
        let at = MonoNanos(0);
        Event::Bucket(BucketRecord {
            step: Step(step),
            comm: Comm(0),
            seq: Seq(step),
            bucket: Bucket(0),
            bytes: 4,
            ready: at,
            launch: at,
            start: at,
            end: at,
            source: Source::HostClock,
        })
    }

    #[test]
    fn steps_close_in_order_once_their_last_rank_has_ended_them() {
        let mut incoming = Incoming::new(2);
        incoming.add(Rank(0), &end_of(0));
        incoming.add(Rank(0), &end_of(1));
        assert!(close_later(&mut incoming).is_empty(), "step 0 is still open");
        incoming.add(Rank(1), &end_of(0));
        incoming.add(Rank(1), &end_of(1));
        let closed: Vec<u64> =
            close_later(&mut incoming).iter().map(|closed| closed.records.step.0).collect();
        assert_eq!(closed, [0, 1]);
        incoming.add(Rank(1), &end_of(0));
        assert_eq!(incoming.late().records, 1);
    }

    #[test]
    fn a_step_closes_at_once_without_a_rank_that_skipped_it() {
        let mut incoming = Incoming::new(3);
        for step in 0..3 {
            incoming.add(Rank(0), &end_of(step));
        }
        incoming.add(Rank(1), &end_of(2));
        assert!(incoming.close_ready().is_empty(), "rank 2 may still end step 0");
        incoming.add(Rank(2), &end_of(1));
        let present = |closed: &Closed| closed.records.ranks.iter().map(Option::is_some).collect::<Vec<_>>();
        let closed: Vec<Vec<bool>> = incoming.close_ready().iter().map(present).collect();
        assert_eq!(closed, [[true, false, false], [true, false, true]]);
        incoming.add(Rank(2), &end_of(4));
        assert!(incoming.close_ready().len() == 1, "rank 2 skipped step 2");
        // Ranks 0 and 1 have not got that far, so nothing counts them as missing.
        incoming.add(Rank(0), &end_of(4));
        assert!(incoming.close_ready().is_empty());
    }

    #[test]
    fn a_step_closes_without_a_rank_that_never_sends() {
        let mut incoming = Incoming::new(2);
        for step in 0..3 {
            incoming.add(Rank(0), &end_of(step));
        }
        incoming.add(Rank(1), &end_of(2));
        let closed = incoming.close_overdue();
        assert_eq!(closed.len(), 3);
        assert!(closed[0].records.ranks[1].is_none() && closed[2].records.ranks[1].is_some());
        for step in 3..3 + budget::OPEN_STEPS as u64 + 1 {
            incoming.add(Rank(0), &end_of(step));
        }
        assert_eq!(close_later(&mut incoming).len(), 1);
    }

    #[test]
    fn a_rank_whose_backlog_arrives_seconds_after_that_of_another_is_in_every_step() {
        let mut incoming = Incoming::new(2);
        let backlog = 4 * budget::OPEN_STEPS as u64;
        for step in 0..backlog {
            incoming.add(Rank(0), &end_of(step));
            assert!(incoming.close_ready().is_empty());
        }
        incoming.hear(ServerNanos(2_000_000_000));
        for step in 0..backlog {
            incoming.add(Rank(1), &end_of(step));
        }
        let closed = incoming.close_ready();
        assert_eq!(closed.len() as u64, backlog);
        assert!(closed.iter().all(|closed| closed.records.ranks.iter().all(Option::is_some)));
        assert_eq!(incoming.late().records, 0);
    }

    #[test]
    fn no_step_grows_old_while_the_server_is_stopped() {
        let mut incoming = Incoming::new(2);
        incoming.hear(ServerNanos(0));
        incoming.add(Rank(0), &end_of(0));
        // The server is stopped for a minute, and then reads what rank 0 sent meanwhile before what rank 1 sent.
        incoming.hear(ServerNanos(60_000_000_000));
        let sent = 1..2 * budget::OPEN_STEPS as u64;
        sent.clone().for_each(|step| incoming.add(Rank(0), &end_of(step)));
        assert!(incoming.close_ready().is_empty(), "rank 1 is missing only so far");
        incoming.hear(ServerNanos(60_100_000_000));
        incoming.add(Rank(1), &end_of(0));
        sent.for_each(|step| incoming.add(Rank(1), &end_of(step)));
        let closed = incoming.close_ready();
        assert_eq!(closed.len(), 2 * budget::OPEN_STEPS);
        assert!(closed.iter().all(|closed| closed.records.ranks.iter().all(Option::is_some)));
    }

    #[test]
    fn records_that_arrive_too_late_are_counted_with_their_steps() {
        let mut incoming = Incoming::new(1);
        for step in [100, 99, 7, 98] {
            incoming.add(Rank(0), &end_of(step));
            incoming.close_ready();
        }
        assert_eq!(incoming.late(), LeftOut { records: 3, steps: Some((Step(7), Step(99))) });
    }

    #[test]
    fn a_step_that_hardly_any_rank_sent_is_counted_and_takes_no_memory() {
        let mut incoming = Incoming::new(65_536);
        for step in 0..3_000 {
            incoming.add(Rank(0), &end_of(step));
        }
        assert!(close_later(&mut incoming).is_empty());
        assert_eq!(incoming.sparse_steps, 3_000 - budget::OPEN_STEPS as u64);
        assert!(incoming.bytes() < 256 << 10, "{} bytes", incoming.bytes());
        assert!(incoming.close_all().is_empty());
        assert_eq!(incoming.bytes(), 0, "closing a step subtracts all that it added");
    }

    #[test]
    fn records_beyond_the_limit_of_a_rank_in_a_step_are_counted_and_dropped() {
        let mut incoming = Incoming::new(1);
        for _ in 0..budget::RANK_STEP_RECORDS + 7 {
            incoming.add(Rank(0), &span_of(0));
        }
        incoming.add(Rank(0), &end_of(0));
        let closed = close_later(&mut incoming);
        let rank = closed[0].records.ranks[0].as_ref().expect("rank 0 ended the step");
        assert_eq!((rank.spans.len(), incoming.excess_records), (budget::RANK_STEP_RECORDS, 7));
        assert_eq!(incoming.bytes(), 0);
    }

    #[test]
    fn an_open_step_takes_little_and_all_of_it_is_counted() {
        let mut incoming = Incoming::new(2);
        (0..10_000).for_each(|step| incoming.add(Rank(0), &end_of(step)));
        let of_ends = incoming.bytes();
        assert!((150..400).contains(&(of_ends / 10_000)), "{of_ends} bytes");
        (0..10_000).for_each(|step| incoming.add(Rank(0), &span_of(step)));
        // A vector begins with room for four.
        let of_spans = incoming.bytes() - of_ends;
        assert!(of_spans >= 10_000 * 4 * size_of::<Span>(), "{of_spans} bytes");
        (0..10_000).for_each(|step| incoming.add(Rank(0), &collective_of(step)));
        let of_collectives = incoming.bytes() - of_ends - of_spans;
        assert!(of_collectives >= 10_000 * 4 * size_of::<BucketRecord>(), "{of_collectives} bytes");
        let of_open = incoming.bytes() / 10_000;
        let closed = incoming.close_all();
        assert_eq!((closed.len(), incoming.bytes()), (10_000, 0));
        assert!(closed[0].bytes < of_open, "no spare room: {} of {of_open} bytes", closed[0].bytes);
    }

    #[test]
    fn only_so_many_steps_are_open_however_young() {
        let mut incoming = Incoming::new(2);
        let most = budget::MOST_OPEN_STEPS as u64;
        (0..most).for_each(|step| incoming.add(Rank(0), &end_of(step)));
        assert!(incoming.close_ready().is_empty());
        (most..most + 7).for_each(|step| incoming.add(Rank(0), &end_of(step)));
        let closed: Vec<u64> = incoming.close_ready().iter().map(|closed| closed.records.step.0).collect();
        assert_eq!(closed, (0..7).collect::<Vec<_>>());
    }

    #[test]
    fn another_world_drops_what_no_rank_ended() {
        let mut incoming = Incoming::new(2);
        incoming.add(Rank(0), &end_of(0));
        incoming.add(Rank(1), &span_of(0));
        // To look through all steps for each of them would take minutes.
        (1..200_000).for_each(|step| incoming.add(Rank(1), &span_of(step)));
        let closed = incoming.change_world(1);
        assert_eq!(closed.len(), 1);
        assert!(closed[0].records.ranks[0].is_some() && closed[0].records.ranks[1].is_none());
        assert_eq!(incoming.bytes(), 0);
        incoming.add(Rank(0), &end_of(1));
        assert_eq!((incoming.close_ready().len(), incoming.late().records), (1, 0));
    }

    #[test]
    fn what_a_rank_did_not_end_is_dropped_when_it_restarts() {
        let mut incoming = Incoming::new(2);
        incoming.add(Rank(0), &span_of(0));
        incoming.add(Rank(1), &span_of(0));
        let before = incoming.bytes();
        incoming.restart(Rank(0));
        assert!(incoming.bytes() < before);
        (0..2).for_each(|rank| incoming.add(Rank(rank), &end_of(0)));
        let closed = incoming.close_ready();
        let spans = |rank: usize| closed[0].records.ranks[rank].as_ref().map(|records| records.spans.len());
        assert_eq!((spans(0), spans(1)), (Some(0), Some(1)));
    }

    #[test]
    fn what_is_in_no_step_is_counted_by_its_reason() {
        let span = |step: u64| {
            Event::Span(Span {
                step: Step(step),
                kind: SpanKind::Input,
                begin: MonoNanos(0),
                end: MonoNanos(1),
                cpu_nanos: 0,
            })
        };
        let mut incoming = Incoming::new(2);
        for step in 0..3 {
            incoming.add(Rank(0), &span(step));
            incoming.add(Rank(1), &end_of(step));
        }
        incoming.add(Rank(1), &end_of(2));
        assert_eq!(incoming.repeated(), LeftOut { records: 1, steps: Some((Step(2), Step(2))) });
        assert_eq!(incoming.waiting(), LeftOut { records: 6, steps: Some((Step(0), Step(2))) });
        // The process of rank 0 was in the middle of step 2, and never ended two steps before.
        incoming.restart(Rank(0));
        assert_eq!(incoming.unended(), LeftOut { records: 2, steps: Some((Step(0), Step(1))) });

        let mut incoming = Incoming::new(1);
        (0..3).for_each(|step| incoming.add(Rank(0), &span(step)));
        incoming.add(Rank(0), &end_of(3));
        incoming.add(Rank(0), &span(4));
        assert_eq!(incoming.close_all().len(), 1);
        assert_eq!(incoming.unended(), LeftOut { records: 3, steps: Some((Step(0), Step(2))) });

        // The next attempt does the steps that the first one did not end.
        let mut incoming = Incoming::new(1);
        (0..3).for_each(|step| incoming.add(Rank(0), &span(step)));
        assert!(incoming.close_all().is_empty());
        (0..3).for_each(|step| incoming.add(Rank(0), &end_of(step)));
        assert_eq!((incoming.close_ready().len(), incoming.late().records), (3, 0));
    }
}
