//! Entries to collectives.
//!
//! Entries of one thread come in order, those of several threads in any: a kernel's beginning may be read before the
//! collective that it belongs to. And a collective may use fewer channels than it was given, so that "all channels
//! ended" cannot be waited for: when a younger collective of the same communicator is done, so is the older one,
//! since a communicator's collectives run one after the other. Messages of one batch run together, and take their turn as
//! one.

use std::collections::{BTreeMap, HashMap, HashSet};

use wire::clock::MonoNanos;
use wire::event::Source;

use crate::messages::{self, Message, Told};
use crate::trail::{Entry, Function, Handle};

/// Collectives under way: beyond this the oldest is given up. A job that is this far ahead of its GPU has nothing left
/// to measure.
const MOST_OPEN: usize = 16_384;
/// Channels that run at once: 32 for each of 2,048 communicators.
const MOST_CHANNELS: usize = 65_536;
/// A collective that others have overtaken is given up once the newest was enqueued so long after it, in nanoseconds: what
/// threads say of it comes within a turn of the observing one.
const STALE_NANOS: i64 = 10_000_000_000;
/// Communicators whose size is known, and whose messages are put together.
const MOST_COMMUNICATORS: usize = 4_096;

/// A collective that ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Collective {
    /// The communicator, by the number that is the same on all ranks.
    pub communicator: u64,
    /// What it does.
    pub function: Function,
    /// The how manieth of its function on its communicator.
    pub seq: u64,
    /// Payload of this rank, in bytes.
    pub bytes: u64,
    /// When it was enqueued.
    pub launch: MonoNanos,
    /// When its kernel ran.
    pub ran: Ran,
    /// It is a message of this rank's to another, whose result this rank does not need.
    pub is_sent: bool,
    /// It is the first of its communicator since an update of the parameters, as far as something tells of those.
    pub begins: bool,
}

/// A collective, with the time its kernel ran on the host's clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timed {
    /// What it is.
    pub collective: Collective,
    /// Its kernel began.
    pub start: MonoNanos,
    /// Its kernel ended.
    pub end: MonoNanos,
    /// Whose clock said so.
    pub source: Source,
}

/// First begin to last end over the channels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ran {
    /// By the GPU's clock, in nanoseconds.
    Gpu {
        /// First begin.
        begin: u64,
        /// Last end.
        end: u64,
    },
    /// By events in its stream, on the host's clock.
    Events {
        /// The event before it.
        begin: MonoNanos,
        /// The event behind it.
        end: MonoNanos,
    },
    /// Nobody knows: all that is told is when it was enqueued, from its launch until this moment ([`Entry::Issued`]).
    Unknown {
        /// The call returned.
        issued: MonoNanos,
    },
    /// By the host's, as NCCL's proxy thread saw it: late by the time of a poll.
    Host {
        /// First begin.
        begin: MonoNanos,
        /// Last end.
        end: MonoNanos,
    },
}

impl Ran {
    /// From the first begin to the last end of both; of times by different clocks, the first one's.
    pub(crate) fn joined(self, other: Self) -> Self {
        match (self, other) {
            (Self::Gpu { begin, end }, Self::Gpu { begin: from, end: to }) => {
                Self::Gpu { begin: begin.min(from), end: end.max(to) }
            }
            (Self::Events { begin, end }, Self::Events { begin: from, end: to }) => {
                Self::Events { begin: begin.min(from), end: end.max(to) }
            }
            (Self::Host { begin, end }, Self::Host { begin: from, end: to }) => {
                Self::Host { begin: begin.min(from), end: end.max(to) }
            }
            (Self::Unknown { issued }, Self::Unknown { issued: other }) => {
                Self::Unknown { issued: issued.max(other) }
            }
            _ => self,
        }
    }
}

/// What is known of a collective, or a message, so far.
#[derive(Debug)]
struct Open {
    /// The first of those that run together on its communicator; itself, but for messages.
    turn: Handle,
    message: Option<Message>,
    communicator: u64,
    function: Function,
    seq: u64,
    bytes: u64,
    channels: u8,
    begins: bool,
    launch: MonoNanos,
    progress: Progress,
}

/// What its channels have said.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    began: u16,
    ended: u16,
    gpu: Option<(u64, u64)>,
    host: Option<(MonoNanos, MonoNanos)>,
    events: Option<(MonoNanos, MonoNanos)>,
    issued: Option<MonoNanos>,
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

    /// Every channel that began has ended, and one has.
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

/// Puts entries together.
#[derive(Debug, Default)]
pub struct Collector {
    /// By handle, which is the order in which they were enqueued.
    open: BTreeMap<Handle, Open>,
    /// What channels said of collectives that are not known yet.
    early: HashMap<Handle, Progress>,
    /// Which collective a channel belongs to.
    parents: HashMap<Handle, Handle>,
    /// How many ranks a communicator has.
    sizes: HashMap<u64, u32>,
    /// By communicator, the newest batch of messages and the first of them.
    batches: HashMap<u64, (u16, Handle)>,
    /// When the newest was enqueued.
    newest: MonoNanos,
    /// Collectives that were given up.
    lost: u64,
}

impl Collector {
    /// Takes in how many ranks a communicator has.
    pub fn name_size(&mut self, communicator: u64, size: u32) {
        if self.sizes.len() < MOST_COMMUNICATORS {
            self.sizes.insert(communicator, size);
        }
    }

    /// Takes in one entry.
    pub fn take(&mut self, entry: Entry) {
        match entry {
            Entry::Enqueued { handle, communicator, function, seq, bytes, channels, begins, at } => {
                let (turn, message, progress) = (handle, None, Progress::default());
                self.begin(
                    handle,
                    Open {
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
                let open = Open {
                    turn: self.turn(communicator, message.batch, handle),
                    message: Some(message),
                    communicator,
                    function: Function::SendReceive,
                    seq: message.seq.into(),
                    bytes,
                    channels,
                    begins: false,
                    launch: at,
                    progress: Progress::default(),
                };
                self.begin(handle, open);
            }
            Entry::Issued { handle, at } => self.progress(handle).issued = Some(at),
            Entry::Timed { handle, begin, end } => self.progress(handle).events = Some((begin, end)),
            // Of no collective.
            Entry::Phase { .. } => {}
            Entry::Began { handle, parent, gpu, at } => {
                // What is left over is of channels whose end was lost.
                if self.parents.len() == MOST_CHANNELS {
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

    /// With what its channels said before it was known.
    fn begin(&mut self, handle: Handle, open: Open) {
        self.newest = self.newest.max(open.launch);
        let progress = self.early.remove(&handle).unwrap_or_default();
        self.open.insert(handle, Open { progress, ..open });
        if self.open.len() > MOST_OPEN {
            self.open.pop_first();
            self.lost += 1;
        }
    }

    /// The first message of a batch.
    fn turn(&mut self, communicator: u64, batch: u16, handle: Handle) -> Handle {
        if self.batches.len() >= MOST_COMMUNICATORS && !self.batches.contains_key(&communicator) {
            return handle;
        }
        let newest = self.batches.entry(communicator).or_insert((batch, handle));
        if newest.0 != batch {
            *newest = (batch, handle);
        }
        newest.1
    }

    fn progress(&mut self, handle: Handle) -> &mut Progress {
        // What is left over is of collectives that were given up, or whose entry was lost.
        if self.early.len() > MOST_OPEN {
            self.early.clear();
        }
        match self.open.get_mut(&handle) {
            Some(open) => &mut open.progress,
            None => self.early.entry(handle).or_default(),
        }
    }

    /// The collectives that have ended, in the order in which they were enqueued.
    pub fn ended(&mut self) -> Vec<Collective> {
        let mut ended = Vec::new();
        let mut messages: BTreeMap<Handle, Vec<Told>> = BTreeMap::new();
        for handle in self.over() {
            let Some(open) = self.open.remove(&handle) else { continue };
            let ran = open.progress.ran();
            let collective = Collective {
                communicator: open.communicator,
                function: open.function,
                seq: open.seq,
                bytes: open.bytes,
                launch: open.launch,
                ran: ran.unwrap_or(Ran::Unknown { issued: open.launch }),
                is_sent: open.message.is_some_and(|message| message.is_sent),
                begins: open.begins,
            };
            match open.message {
                None => ended.push((open.turn, vec![collective])),
                Some(message) => {
                    messages.entry(open.turn).or_default().push(Told { message, collective, ran });
                }
            }
        }
        for (turn, told) in messages {
            let size = told.first().and_then(|told| self.sizes.get(&told.collective.communicator));
            ended.push((turn, messages::together(told, size.copied())));
        }
        self.give_up();
        ended.sort_by_key(|(turn, _)| *turn);
        ended.into_iter().flat_map(|(_, collectives)| collectives).collect()
    }

    /// Gives up what a younger one of its communicator has overtaken long ago, and whose end, or begin, was lost: it would
    /// be asked after for ever.
    fn give_up(&mut self) {
        let (begun, newest) = (self.youngest(|progress| progress.began > 0), self.newest);
        let before = self.open.len();
        self.open.retain(|_, open| {
            let is_overtaken = begun.get(&open.communicator).is_some_and(|younger| open.turn < *younger);
            !is_overtaken || newest - open.launch < STALE_NANOS
        });
        self.lost += (before - self.open.len()) as u64;
    }

    /// What is over, with all that runs together with it.
    fn over(&self) -> Vec<Handle> {
        let begun = self.youngest(|progress| progress.began > 0);
        let issued = self.youngest(|progress| progress.issued.is_some());
        let is_over = |open: &Open| {
            let all_channels = open.progress.ended >= u16::from(open.channels.max(1));
            let overtaken = |by: &HashMap<u64, Handle>| {
                by.get(&open.communicator).is_some_and(|younger| open.turn < *younger)
            };
            open.progress.issued.is_some()
                || open.progress.events.is_some()
                || open.progress.is_quiet() && (all_channels || overtaken(&begun) || overtaken(&issued))
                // Detail was lowered between its call and its kernel, of which nothing will be told.
                || open.progress.began == 0 && overtaken(&issued)
                // Nothing was sent: that takes no channel.
                || open.progress.began == 0 && open.message.is_some() && overtaken(&begun)
        };
        let waiting: HashSet<Handle> =
            self.open.values().filter(|open| !is_over(open)).map(|open| open.turn).collect();
        let over = self.open.iter().filter(|(_, open)| !waiting.contains(&open.turn));
        over.map(|(&handle, _)| handle).collect()
    }

    /// The youngest turn of each communicator in which this holds of something: whatever is older and quiet is over.
    fn youngest(&self, holds: impl Fn(&Progress) -> bool) -> HashMap<u64, Handle> {
        let those = self.open.values().filter(|open| holds(&open.progress));
        those.map(|open| (open.communicator, open.turn)).collect()
    }

    /// Collectives that were given up since the process began.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trail::{Kind, Seat};

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
            begins: false,
            at: MonoNanos(1),
        }
    }

    /// A channel that ran from `begin` to `end` on the GPU.
    fn channel(parent: Handle, begin: u64, end: u64) -> [Entry; 2] {
        let handle = Handle::new(Kind::Channel, Seat::FIRST);
        let at = MonoNanos(end.cast_signed());
        [Entry::Began { handle, parent, gpu: Some(begin), at }, Entry::Ended { handle, gpu: Some(end), at }]
    }

    fn after(entries: impl IntoIterator<Item = Entry>) -> (Collector, Vec<Collective>) {
        let mut collector = Collector::default();
        entries.into_iter().for_each(|entry| collector.take(entry));
        let ended = collector.ended();
        (collector, ended)
    }

    #[test]
    fn a_collective_runs_from_its_first_channels_begin_to_its_last_ones_end() {
        let one = Handle::new(Kind::Collective, Seat::FIRST);
        let entries =
            [[enqueued(one, 3, 2)].as_slice(), &channel(one, 10, 40), &channel(one, 12, 45)].concat();
        let (collector, ended) = after(entries);
        assert_eq!(ended.len(), 1);
        assert_eq!((ended[0].seq, ended[0].ran), (3, Ran::Gpu { begin: 10, end: 45 }));
        assert!(collector.open.is_empty() && collector.early.is_empty() && collector.parents.is_empty());
    }

    #[test]
    fn a_kernel_may_be_heard_of_before_its_collective() {
        let one = Handle::new(Kind::Collective, Seat::FIRST);
        let entries = [channel(one, 10, 40).as_slice(), &[enqueued(one, 0, 1)]].concat();
        assert_eq!(after(entries).1.len(), 1);
    }

    #[test]
    fn a_collective_with_idle_channels_is_over_once_a_younger_one_runs() {
        let [one, two] = [(); 2].map(|()| Handle::new(Kind::Collective, Seat::FIRST));
        let entries = [[enqueued(one, 0, 8)].as_slice(), &channel(one, 10, 40)].concat();
        let (mut collector, ended) = after(entries);
        assert_eq!(ended, [], "a channel may still come");
        collector.take(enqueued(two, 1, 8));
        assert_eq!(collector.ended(), []);
        collector.take(channel(two, 50, 60)[0]);
        let ended = collector.ended();
        assert_eq!(ended.len(), 1);
        assert_eq!(ended[0].seq, 0);
    }

    #[test]
    fn without_kernels_all_that_is_known_is_when_it_was_enqueued() {
        let one = Handle::new(Kind::Collective, Seat::FIRST);
        let issued = Entry::Issued { handle: one, at: MonoNanos(4) };
        let (_, ended) = after([enqueued(one, 0, 8), issued]);
        assert_eq!(ended[0].ran, Ran::Unknown { issued: MonoNanos(4) });
    }

    #[test]
    fn where_detail_is_lowered_between_a_call_and_its_kernel_no_collective_is_missing() {
        let [one, two] = [(); 2].map(|()| Handle::new(Kind::Collective, Seat::FIRST));
        let issued = Entry::Issued { handle: two, at: MonoNanos(4) };
        let (_, ended) = after([enqueued(one, 0, 8), enqueued(two, 1, 8), issued]);
        assert_eq!(ended.iter().map(|one| one.seq).collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn a_collective_whose_end_was_lost_is_given_up_when_others_have_long_run() {
        let [one, two, three] = [(); 3].map(|()| Handle::new(Kind::Collective, Seat::FIRST));
        let at = |entry, nanos| match entry {
            Entry::Enqueued { handle, communicator, function, seq, bytes, channels, begins, .. } => {
                let at = MonoNanos(nanos);
                Entry::Enqueued { handle, communicator, function, seq, bytes, channels, begins, at }
            }
            other => other,
        };
        let entries = [enqueued(one, 0, 1), channel(one, 10, 20)[0], enqueued(two, 1, 1)];
        let (mut collector, ended) = after(entries.into_iter().chain(channel(two, 30, 40)));
        assert_eq!(ended.iter().map(|one| one.seq).collect::<Vec<_>>(), [1]);
        assert_eq!((collector.open.len(), collector.lost()), (1, 0), "its end may be on its way");
        // A collective that waits for its ranks is not given up: none of its communicator runs after it.
        collector.take(at(enqueued(three, 2, 1), STALE_NANOS + 2));
        assert_eq!(collector.ended(), []);
        collector.take(channel(three, 50, 60)[0]);
        assert_eq!((collector.ended(), collector.lost()), (vec![], 1));
        assert_eq!(collector.open.keys().copied().collect::<Vec<_>>(), [three]);
    }

    #[test]
    fn a_collective_that_never_runs_is_given_up_in_the_end_and_counted() {
        let never =
            (0..=MOST_OPEN as u64).map(|seq| enqueued(Handle::new(Kind::Collective, Seat::FIRST), seq, 1));
        let (collector, ended) = after(never);
        assert_eq!((ended.len(), collector.lost(), collector.open.len()), (0, 1, MOST_OPEN));
    }

    /// Rank 1's, on the communicator.
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
    fn messages_of_a_batch_are_over_together() {
        let [sent, received, next] = [(); 3].map(|()| Handle::new(Kind::Collective, Seat::FIRST));
        let entries = [message(sent, 0, 1, 2), message(received, 0, 0, 1), message(next, 1, 1, 2)];
        let (mut collector, ended) = after(entries.into_iter().chain(channel(sent, 10, 20)));
        assert_eq!(ended, [], "the other one has not begun");
        channel(received, 10, 40).into_iter().for_each(|entry| collector.take(entry));
        let ended = collector.ended();
        let ran: Vec<(Ran, bool)> = ended.iter().map(|one| (one.ran, one.is_sent)).collect();
        assert_eq!(ran, [(Ran::Gpu { begin: 10, end: 20 }, true), (Ran::Gpu { begin: 10, end: 40 }, false)]);
        assert!(ended.iter().all(|one| one.function == Function::SendReceive && one.seq == 0));
        assert_ne!(ended[0].communicator, ended[1].communicator, "each way is its own");
    }

    #[test]
    fn a_message_of_nothing_holds_nobody_up() {
        let [empty, sent, next] = [(); 3].map(|()| Handle::new(Kind::Collective, Seat::FIRST));
        let entries = [message(empty, 0, 0, 1), message(sent, 0, 1, 2), message(next, 1, 1, 2)];
        let (mut collector, ended) = after(entries.into_iter().chain(channel(sent, 10, 20)));
        assert_eq!(ended, []);
        collector.take(channel(next, 30, 40)[0]);
        assert_eq!(collector.ended().len(), 1);
        assert_eq!(collector.open.len(), 1, "the one that runs");
    }

    #[test]
    fn with_all_others_at_once_it_is_one_all_to_all() {
        let handles = [(); 4].map(|()| Handle::new(Kind::Collective, Seat::FIRST));
        let ways = [(1, 0), (0, 1), (1, 2), (2, 1)];
        let entries = handles.iter().zip(ways).flat_map(|(&handle, (from, to))| {
            [message(handle, 0, from, to)].into_iter().chain(channel(handle, 10, 20 + u64::from(to)))
        });
        let mut collector = Collector::default();
        collector.name_size(COMMUNICATOR, 3);
        entries.for_each(|entry| collector.take(entry));
        let ended = collector.ended();
        assert_eq!(ended.len(), 1);
        assert_eq!((ended[0].function, ended[0].bytes), (Function::AllToAll, 20));
        assert_eq!((ended[0].communicator, ended[0].ran), (COMMUNICATOR, Ran::Gpu { begin: 10, end: 22 }));
    }
}
