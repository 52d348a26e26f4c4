//! Assembles collectives from the entries of the call log.
//!
//! Entries of one thread arrive in order, but entries of different threads arrive in any order: the start of a kernel
//! may be read before the collective it belongs to. A collective may also use fewer channels than it was given, so the
//! end of all channels is not a usable criterion. Instead, a collective counts as finished when a younger collective of
//! the same communicator has run, since the collectives of a communicator run one after the other. Messages of one
//! batch run together and are treated as one.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;

use wire::clock::MonoNanos;

use crate::call_log::{Entry, Function, Handle};
use crate::infer::collective::{Collective, Ran};
use crate::infer::messages::{self, FinishedMessage};
use crate::marks::Begin;
use crate::message::Message;

/// The largest number of collectives in flight. Beyond it, the oldest is abandoned: a job that is this far ahead of its
/// GPU has nothing left to measure.
const MAX_OPEN: usize = 16_384;
/// The largest number of channels that run at once: 32 for each of 2,048 communicators.
const MAX_CHANNELS: usize = 65_536;
/// How much older than the newest collective an overtaken one must be before it is abandoned, in nanoseconds. Threads
/// report on a collective within one pass of the observer thread.
const STALE_NANOS: i64 = 10_000_000_000;
/// The largest number of communicators whose size is known and whose messages are joined.
const MAX_COMMUNICATORS: usize = 4_096;

/// The state of an unfinished collective or message.
#[derive(Debug)]
struct Unfinished {
    /// The first operation of those that run together on the communicator. Only messages run together; a collective
    /// names itself.
    turn: Handle,
    message: Option<Message>,
    communicator: u64,
    function: Function,
    seq: u64,
    bytes: u64,
    channels: u8,
    begins: Option<Begin>,
    launch: MonoNanos,
    progress: Progress,
}

/// What the channels of a collective have reported.
/// A batch of messages that run together.
#[derive(Clone, Copy, Debug)]
struct MessageBatch {
    number: u16,
    /// The first message of the batch.
    first: Handle,
}

#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    began: u16,
    ended: u16,
    gpu: Option<(u64, u64)>,
    host: Option<(MonoNanos, MonoNanos)>,
    events: Option<(MonoNanos, MonoNanos)>,
    issued: Option<MonoNanos>,
    launched: Option<MonoNanos>,
}

impl Progress {
    fn add_begin(&mut self, gpu: Option<u64>, at: MonoNanos) {
        self.began = self.began.saturating_add(1);
        self.widen(gpu, at);
    }

    fn add_end(&mut self, gpu: Option<u64>, at: MonoNanos) {
        self.ended = self.ended.saturating_add(1);
        self.widen(gpu, at);
    }

    fn widen(&mut self, gpu: Option<u64>, at: MonoNanos) {
        if let Some(gpu) = gpu {
            let (begin, end) = self.gpu.unwrap_or((gpu, gpu));
            self.gpu = Some((begin.min(gpu), end.max(gpu)));
        }
        let (begin, end) = self.host.unwrap_or((at, at));
        self.host = Some((begin.min(at), end.max(at)));
    }

    /// Returns whether a channel has started and all started channels have ended.
    fn is_quiet(&self) -> bool {
        self.began > 0 && self.ended >= self.began
    }

    fn ran(&self) -> Option<Ran> {
        if let Some((begin, end)) = self.events {
            return Some(Ran::Events { begin, end });
        }
        match (self.gpu, self.host) {
            (Some((begin, end)), _) => Some(Ran::Gpu { begin, end }),
            (None, Some((begin, end))) => Some(Ran::Host { begin, end }),
            (None, None) => Some(Ran::Unknown { issued: self.issued? }),
        }
    }
}

impl Unfinished {
    fn collective(&self, ran: Option<Ran>) -> Collective {
        Collective {
            communicator: self.communicator,
            function: self.function,
            seq: self.seq,
            bytes: self.bytes,
            launch: self.progress.launched.unwrap_or(self.launch),
            ran: ran.unwrap_or(Ran::Unknown { issued: self.launch }),
            is_sent: self.message.is_some_and(|message| message.is_sent),
            begins: self.begins,
        }
    }
}

/// Assembles collectives from entries.
#[derive(Debug, Default)]
pub struct Collector {
    /// Unfinished collectives by handle, which is the order in which they were enqueued.
    open: BTreeMap<Handle, Unfinished>,
    /// The newest collective that [`Self::overdue`] has returned.
    reported: Option<Handle>,
    /// Reports of channels whose collective is not known yet.
    early: HashMap<Handle, Progress>,
    /// The collective of each channel.
    parents: HashMap<Handle, Handle>,
    /// The number of ranks of each communicator.
    sizes: HashMap<u64, u32>,
    /// The newest batch of messages of each communicator.
    batches: HashMap<u64, MessageBatch>,
    /// When the newest collective was enqueued.
    newest: MonoNanos,
    /// The number of abandoned collectives.
    lost: u64,
}

impl Collector {
    /// Sets the number of ranks of a communicator.
    pub fn name_size(&mut self, communicator: u64, size: u32) {
        if self.sizes.len() < MAX_COMMUNICATORS {
            self.sizes.insert(communicator, size);
        }
    }

    /// Adds an entry.
    pub fn ingest(&mut self, entry: Entry) {
        match entry {
            Entry::Enqueued { handle, communicator, function, seq, bytes, channels, begins, at } => {
                let (turn, message, progress) = (handle, None, Progress::default());
                self.begin(
                    handle,
                    Unfinished {
                        turn,
                        message,
                        communicator,
                        function,
                        seq,
                        bytes,
                        channels,
                        begins,
                        launch: at,
                        progress,
                    },
                );
            }
            Entry::Message { handle, communicator, message, bytes, channels, at } => {
                let open = Unfinished {
                    turn: self.turn(communicator, message.batch, handle),
                    message: Some(message),
                    communicator,
                    function: Function::SendReceive,
                    seq: message.seq.into(),
                    bytes,
                    channels,
                    begins: None,
                    launch: at,
                    progress: Progress::default(),
                };
                self.begin(handle, open);
            }
            Entry::Launched { handle, at } => self.progress(handle).launched = Some(at),
            Entry::Issued { handle, at } => self.progress(handle).issued = Some(at),
            Entry::Timed { handle, begin, end } => self.progress(handle).events = Some((begin, end)),
            // A phase belongs to no collective.
            Entry::Phase { .. } => {}
            Entry::Began { handle, parent, gpu, at } => {
                // The remaining entries belong to channels whose end was lost.
                if self.parents.len() == MAX_CHANNELS {
                    self.parents.clear();
                }
                self.parents.insert(handle, parent);
                self.progress(parent).add_begin(gpu, at);
            }
            Entry::Ended { handle, gpu, at } => {
                if let Some(parent) = self.parents.remove(&handle) {
                    self.progress(parent).add_end(gpu, at);
                }
            }
        }
    }

    /// Adds a collective, together with earlier reports of its channels.
    fn begin(&mut self, handle: Handle, open: Unfinished) {
        self.newest = self.newest.max(open.launch);
        let progress = self.early.remove(&handle).unwrap_or_default();
        self.open.insert(handle, Unfinished { progress, ..open });
        if self.open.len() > MAX_OPEN {
            self.open.pop_first();
            self.lost += 1;
        }
    }

    /// Returns the first message of a batch.
    fn turn(&mut self, communicator: u64, batch: u16, handle: Handle) -> Handle {
        if self.batches.len() >= MAX_COMMUNICATORS && !self.batches.contains_key(&communicator) {
            return handle;
        }
        let opened = MessageBatch { number: batch, first: handle };
        let newest = self.batches.entry(communicator).or_insert(opened);
        if newest.number != batch {
            *newest = opened;
        }
        newest.first
    }

    fn progress(&mut self, handle: Handle) -> &mut Progress {
        // The remaining reports belong to collectives that were abandoned, or whose entry was lost.
        if self.early.len() > MAX_OPEN {
            self.early.clear();
        }
        match self.open.get_mut(&handle) {
            Some(open) => &mut open.progress,
            None => self.early.entry(handle).or_default(),
        }
    }

    /// Returns the unfinished collectives that were enqueued before a time, each once: a rank that hangs has started them.
    pub fn overdue(&mut self, limit: MonoNanos) -> Vec<Collective> {
        let new = match self.reported {
            Some(reported) => self.open.range((Bound::Excluded(reported), Bound::Unbounded)),
            None => self.open.range(..),
        };
        let overdue = new.take_while(|(_, open)| open.launch < limit);
        let overdue: Vec<(Handle, Collective)> =
            overdue.map(|(handle, open)| (*handle, open.collective(None))).collect();
        self.reported = overdue.last().map(|(handle, _)| *handle).or(self.reported);
        overdue.into_iter().map(|(_, collective)| collective).collect()
    }

    /// Returns the oldest unfinished collective of a communicator, if it was enqueued before a time.
    pub fn awaited(&self, communicator: u64, limit: MonoNanos) -> Option<Collective> {
        let oldest = self.open.values().find(|open| open.communicator == communicator)?;
        (oldest.launch < limit).then(|| oldest.collective(None))
    }

    /// Removes the finished collectives and returns them in the order in which they were enqueued.
    pub fn ended(&mut self) -> Vec<Collective> {
        let mut ended = Vec::new();
        let mut messages: BTreeMap<Handle, Vec<FinishedMessage>> = BTreeMap::new();
        for handle in self.finished() {
            let Some(open) = self.open.remove(&handle) else { continue };
            let ran = open.progress.ran();
            let collective = open.collective(ran);
            match open.message {
                None => ended.push((open.turn, vec![collective])),
                Some(message) => {
                    messages.entry(open.turn).or_default().push(FinishedMessage { message, collective, ran });
                }
            }
        }
        for (turn, finished) in messages {
            let size = finished.first().and_then(|call| self.sizes.get(&call.collective.communicator));
            ended.push((turn, messages::together(finished, size.copied())));
        }
        self.give_up();
        ended.sort_by_key(|(turn, _)| *turn);
        ended.into_iter().flat_map(|(_, collectives)| collectives).collect()
    }

    /// Abandons collectives that a younger one of the same communicator overtook long ago. An entry of theirs was lost,
    /// so they would stay unfinished forever.
    fn give_up(&mut self) {
        let (begun, newest) = (self.youngest(|progress| progress.began > 0), self.newest);
        let count = self.open.len();
        self.open.retain(|_, open| {
            let is_overtaken = begun.get(&open.communicator).is_some_and(|younger| open.turn < *younger);
            !is_overtaken || newest - open.launch < STALE_NANOS
        });
        self.lost += (count - self.open.len()) as u64;
    }

    /// Returns the finished collectives. Those that run together finish together.
    fn finished(&self) -> Vec<Handle> {
        let begun = self.youngest(|progress| progress.began > 0);
        let issued = self.youngest(|progress| progress.issued.is_some());
        let is_over = |open: &Unfinished| {
            let all_channels = open.progress.ended >= u16::from(open.channels.max(1));
            let overtaken = |youngest: &HashMap<u64, Handle>| {
                youngest.get(&open.communicator).is_some_and(|younger| open.turn < *younger)
            };
            open.progress.issued.is_some()
                || open.progress.events.is_some()
                || open.progress.is_quiet() && (all_channels || overtaken(&begun) || overtaken(&issued))
                // Sampling started between the call and its kernel, so the kernel is not reported.
                || open.progress.began == 0 && overtaken(&issued)
                // An empty message uses no channel.
                || open.progress.began == 0 && open.message.is_some() && overtaken(&begun)
        };
        let waiting: HashSet<Handle> =
            self.open.values().filter(|open| !is_over(open)).map(|open| open.turn).collect();
        let finished = self.open.iter().filter(|(_, open)| !waiting.contains(&open.turn));
        finished.map(|(&handle, _)| handle).collect()
    }

    /// Returns the youngest turn of each communicator in which `holds` is true of an operation. Everything older that
    /// has no running channel is finished.
    fn youngest(&self, holds: impl Fn(&Progress) -> bool) -> HashMap<u64, Handle> {
        let matching = self.open.values().filter(|open| holds(&open.progress));
        matching.map(|open| (open.communicator, open.turn)).collect()
    }

    /// Returns the number of collectives abandoned since the process started.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call_log::{Kind, LocalRank};

    const COMMUNICATOR: u64 = 7;

    fn enqueued(handle: Handle, seq: u64, channels: u8) -> Entry {
        let (communicator, function) = (COMMUNICATOR, Function::AllReduce);
        Entry::Enqueued {
            handle,
            communicator,
            function,
            seq,
            bytes: 64,
            channels,
            begins: None,
            at: MonoNanos(1),
        }
    }

    /// The entries of a channel that ran from `begin` to `end` on the GPU.
    fn channel(parent: Handle, begin: u64, end: u64) -> [Entry; 2] {
        let handle = Handle::new(Kind::Channel, LocalRank::FIRST);
        let at = MonoNanos(end.cast_signed());
        [Entry::Began { handle, parent, gpu: Some(begin), at }, Entry::Ended { handle, gpu: Some(end), at }]
    }

    fn collected(entries: impl IntoIterator<Item = Entry>) -> (Collector, Vec<Collective>) {
        let mut collector = Collector::default();
        entries.into_iter().for_each(|entry| collector.ingest(entry));
        let ended = collector.ended();
        (collector, ended)
    }

    #[test]
    fn an_unfinished_collective_is_overdue_once() {
        let [first, second, third] = [(); 3].map(|()| Handle::new(Kind::Collective, LocalRank::FIRST));
        let (mut collector, _) = collected([enqueued(first, 3, 2), enqueued(second, 4, 2)]);
        assert!(collector.overdue(MonoNanos(1)).is_empty());
        let seqs = |found: Vec<Collective>| found.iter().map(|call| call.seq).collect::<Vec<_>>();
        assert_eq!(seqs(collector.overdue(MonoNanos(2))), [3, 4]);
        assert!(collector.overdue(MonoNanos(2)).is_empty());
        collector.ingest(enqueued(third, 5, 2));
        assert_eq!(seqs(collector.overdue(MonoNanos(2))), [5]);
    }

    #[test]
    fn the_oldest_unfinished_collective_of_a_communicator_is_awaited() {
        let [first, second] = [(); 2].map(|()| Handle::new(Kind::Collective, LocalRank::FIRST));
        let (mut collector, _) = collected([enqueued(first, 3, 1), enqueued(second, 4, 1)]);
        let awaited = |collector: &Collector, communicator, limit| {
            collector.awaited(communicator, MonoNanos(limit)).map(|call| call.seq)
        };
        assert_eq!(awaited(&collector, COMMUNICATOR, 2), Some(3));
        assert_eq!(awaited(&collector, COMMUNICATOR, 1), None, "not for long");
        assert_eq!(awaited(&collector, COMMUNICATOR + 1, 2), None, "none of it");
        channel(first, 10, 20).into_iter().for_each(|entry| collector.ingest(entry));
        collector.ended();
        assert_eq!(awaited(&collector, COMMUNICATOR, 2), Some(4));
    }

    #[test]
    fn an_earlier_launch_may_be_read_before_or_after_its_collective() {
        let handle = Handle::new(Kind::Collective, LocalRank::FIRST);
        let launched = Entry::Launched { handle, at: MonoNanos(-5) };
        let ran = channel(handle, 10, 20);
        for entries in [[launched, enqueued(handle, 3, 1)], [enqueued(handle, 3, 1), launched]] {
            let (_, ended) = collected(entries.into_iter().chain(ran));
            assert_eq!(ended.iter().map(|call| call.launch).collect::<Vec<_>>(), [MonoNanos(-5)]);
        }
    }

    #[test]
    fn a_collective_runs_from_its_first_channel_start_to_its_last_channel_end() {
        let handle = Handle::new(Kind::Collective, LocalRank::FIRST);
        let entries =
            [[enqueued(handle, 3, 2)].as_slice(), &channel(handle, 10, 40), &channel(handle, 12, 45)]
                .concat();
        let (collector, ended) = collected(entries);
        assert_eq!(ended.len(), 1);
        assert_eq!((ended[0].seq, ended[0].ran), (3, Ran::Gpu { begin: 10, end: 45 }));
        assert!(collector.open.is_empty() && collector.early.is_empty() && collector.parents.is_empty());
    }

    #[test]
    fn a_kernel_may_be_reported_before_its_collective() {
        let handle = Handle::new(Kind::Collective, LocalRank::FIRST);
        let entries = [channel(handle, 10, 40).as_slice(), &[enqueued(handle, 0, 1)]].concat();
        assert_eq!(collected(entries).1.len(), 1);
    }

    #[test]
    fn a_collective_with_idle_channels_is_finished_once_a_younger_one_runs() {
        let [first, second] = [(); 2].map(|()| Handle::new(Kind::Collective, LocalRank::FIRST));
        let entries = [[enqueued(first, 0, 8)].as_slice(), &channel(first, 10, 40)].concat();
        let (mut collector, ended) = collected(entries);
        assert_eq!(ended, [], "another channel may still start");
        collector.ingest(enqueued(second, 1, 8));
        assert_eq!(collector.ended(), []);
        collector.ingest(channel(second, 50, 60)[0]);
        let ended = collector.ended();
        assert_eq!(ended.len(), 1);
        assert_eq!(ended[0].seq, 0);
    }

    #[test]
    fn without_kernel_entries_only_the_time_of_enqueueing_is_known() {
        let handle = Handle::new(Kind::Collective, LocalRank::FIRST);
        let issued = Entry::Issued { handle, at: MonoNanos(4) };
        let (_, ended) = collected([enqueued(handle, 0, 8), issued]);
        assert_eq!(ended[0].ran, Ran::Unknown { issued: MonoNanos(4) });
    }

    #[test]
    fn no_collective_is_missing_when_sampling_starts_between_a_call_and_its_kernel() {
        let [first, second] = [(); 2].map(|()| Handle::new(Kind::Collective, LocalRank::FIRST));
        let issued = Entry::Issued { handle: second, at: MonoNanos(4) };
        let (_, ended) = collected([enqueued(first, 0, 8), enqueued(second, 1, 8), issued]);
        assert_eq!(ended.iter().map(|call| call.seq).collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn a_collective_whose_end_was_lost_is_abandoned_long_after_it_was_overtaken() {
        let [first, second, third] = [(); 3].map(|()| Handle::new(Kind::Collective, LocalRank::FIRST));
        let at = |entry, nanos| match entry {
            Entry::Enqueued { handle, communicator, function, seq, bytes, channels, begins, .. } => {
                let at = MonoNanos(nanos);
                Entry::Enqueued { handle, communicator, function, seq, bytes, channels, begins, at }
            }
            other => other,
        };
        let entries = [enqueued(first, 0, 1), channel(first, 10, 20)[0], enqueued(second, 1, 1)];
        let (mut collector, ended) = collected(entries.into_iter().chain(channel(second, 30, 40)));
        assert_eq!(ended.iter().map(|call| call.seq).collect::<Vec<_>>(), [1]);
        assert_eq!((collector.open.len(), collector.lost()), (1, 0), "its end may still arrive");
        // A collective that waits for other ranks is not abandoned: no later one of its communicator has run.
        collector.ingest(at(enqueued(third, 2, 1), STALE_NANOS + 2));
        assert_eq!(collector.ended(), []);
        collector.ingest(channel(third, 50, 60)[0]);
        assert_eq!((collector.ended(), collector.lost()), (vec![], 1));
        assert_eq!(collector.open.keys().copied().collect::<Vec<_>>(), [third]);
    }

    #[test]
    fn collectives_that_never_run_are_abandoned_beyond_the_bound_and_counted() {
        let never = (0..=MAX_OPEN as u64)
            .map(|seq| enqueued(Handle::new(Kind::Collective, LocalRank::FIRST), seq, 1));
        let (collector, ended) = collected(never);
        assert_eq!((ended.len(), collector.lost(), collector.open.len()), (0, 1, MAX_OPEN));
    }

    /// A message that rank 1 sends or receives on the communicator.
    fn message(handle: Handle, batch: u16, from: u32, to: u32) -> Entry {
        let message = Message { from, to, seq: u32::from(batch), batch, is_sent: from == 1 };
        Entry::Message {
            handle,
            communicator: COMMUNICATOR,
            message,
            bytes: 10,
            channels: 1,
            at: MonoNanos(1),
        }
    }

    #[test]
    fn messages_of_a_batch_finish_together() {
        let [sent, received, next] = [(); 3].map(|()| Handle::new(Kind::Collective, LocalRank::FIRST));
        let entries = [message(sent, 0, 1, 2), message(received, 0, 0, 1), message(next, 1, 1, 2)];
        let (mut collector, ended) = collected(entries.into_iter().chain(channel(sent, 10, 20)));
        assert_eq!(ended, [], "the other message has not started");
        channel(received, 10, 40).into_iter().for_each(|entry| collector.ingest(entry));
        let ended = collector.ended();
        let ran: Vec<(Ran, bool)> = ended.iter().map(|call| (call.ran, call.is_sent)).collect();
        assert_eq!(ran, [(Ran::Gpu { begin: 10, end: 20 }, true), (Ran::Gpu { begin: 10, end: 40 }, false)]);
        assert!(ended.iter().all(|call| call.function == Function::SendReceive && call.seq == 0));
        assert_ne!(ended[0].communicator, ended[1].communicator, "each direction is a link of its own");
    }

    #[test]
    fn an_empty_message_delays_no_other() {
        let [empty, sent, next] = [(); 3].map(|()| Handle::new(Kind::Collective, LocalRank::FIRST));
        let entries = [message(empty, 0, 0, 1), message(sent, 0, 1, 2), message(next, 1, 1, 2)];
        let (mut collector, ended) = collected(entries.into_iter().chain(channel(sent, 10, 20)));
        assert_eq!(ended, []);
        collector.ingest(channel(next, 30, 40)[0]);
        assert_eq!(collector.ended().len(), 1);
        assert_eq!(collector.open.len(), 1, "the message that runs");
    }

    #[test]
    fn messages_with_all_other_ranks_at_once_are_one_all_to_all() {
        let handles = [(); 4].map(|()| Handle::new(Kind::Collective, LocalRank::FIRST));
        let ways = [(1, 0), (0, 1), (1, 2), (2, 1)];
        let entries = handles.iter().zip(ways).flat_map(|(&handle, (from, to))| {
            [message(handle, 0, from, to)].into_iter().chain(channel(handle, 10, 20 + u64::from(to)))
        });
        let mut collector = Collector::default();
        collector.name_size(COMMUNICATOR, 3);
        entries.for_each(|entry| collector.ingest(entry));
        let ended = collector.ended();
        assert_eq!(ended.len(), 1);
        assert_eq!((ended[0].function, ended[0].bytes), (Function::AllToAll, 20));
        assert_eq!((ended[0].communicator, ended[0].ran), (COMMUNICATOR, Ran::Gpu { begin: 10, end: 22 }));
    }
}
