//! The drain thread. Every 100 ms, or 500 ms while no one views the run, it moves records from the rings into a batch, the
//! batch into the spool, and the spool to the server.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::time::{Duration, Instant, SystemTime};

use rtrb::{Consumer, RingBuffer};
use wire::attributes::Attributes;
use wire::batch::{Batch, Drop, DropReason, Hello, Instrumentation, MAX_EVENTS, Note};
use wire::clock::Probe;
use wire::event::{Event, EventKind};
use wire::ids::{BatchSeq, Comm, Incarnation, Seq};

use crate::asked::Asked;
use crate::budget::{self, Budget, ThreadCost};
use crate::clock;
use crate::config::Config;
use crate::host::HostSampler;
use crate::newest::Newest;
use crate::recorder::{Lost, RING_SLOTS, Recorder};
use crate::sampling::Sampling;
use crate::spool::{Frame, Spool};
use crate::transport::{Delivery, Transport};
use crate::{FLUSH_LIMIT, software, warn};

/// The interval at which the rings are drained, unless the server names another one. It is the largest part of the 250 ms
/// from gradient to pixel. Halving it would double what sending costs the job.
const TICK: Duration = Duration::from_millis(100);
/// The interval between probes of the server's clock, after the first ones.
const PROBE_EVERY: Duration = Duration::from_millis(500);
/// The number of probes sent in quick succession at the start, to get a good one soon.
const FIRST_PROBES: usize = 8;
/// The longest time between batches. An empty batch shows the server that the rank is alive.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// The interval between batches while the server is unreachable, so that there are few large batches.
const GATHER: Duration = Duration::from_secs(1);
const BACK_OFF: Duration = Duration::from_millis(200);
/// The cost of one record to the thread that makes it, in nanoseconds, including clock readings: a step of char_lm takes
/// 3.5 µs (`benches/README.md`, `step_cold` less `step_disabled`) for 20 records, two for each of seven buckets, five
/// spans and the step. A machine of half the speed takes 520 ns; the governor needs only the order of magnitude.
const RECORD_NANOS: u64 = 175;

/// A request to the drain thread to end.
#[derive(Default)]
pub(crate) struct Stop {
    deadline: OnceLock<Instant>,
}

impl Stop {
    /// Asks the drain thread to end within [`FLUSH_LIMIT`] from now.
    pub(crate) fn request(&self) {
        self.deadline.get_or_init(|| Instant::now() + FLUSH_LIMIT);
    }

    /// Returns the time by which the drain thread must end; `None` before a request.
    fn deadline(&self) -> Option<Instant> {
        self.deadline.get().copied()
    }
}

struct Ring {
    consumer: Consumer<Event>,
    lost: Arc<Lost>,
}

/// All rings of the process. The lock is held to create a recorder and to drain the rings, never to record.
#[derive(Clone, Default)]
pub(crate) struct RingRegistry {
    rings: Arc<Mutex<Vec<Ring>>>,
}

impl RingRegistry {
    /// Creates a recorder whose ring is drained after all existing ones.
    pub(crate) fn recorder(&self) -> Recorder {
        self.insert(|rings, ring| rings.push(ring))
    }

    /// Creates a recorder whose ring is drained before all others. The thread that records the ends of steps uses it:
    /// the records that other threads made before the end of a step are then in the same batch or in an earlier one.
    pub(crate) fn first_recorder(&self) -> Recorder {
        self.insert(|rings, ring| rings.insert(0, ring))
    }

    fn insert(&self, insert: impl FnOnce(&mut Vec<Ring>, Ring)) -> Recorder {
        let (producer, consumer) = RingBuffer::new(RING_SLOTS);
        let lost = Arc::new(Lost::default());
        let ring = Ring { consumer, lost: lost.clone() };
        insert(&mut self.rings.lock().unwrap_or_else(PoisonError::into_inner), ring);
        Recorder::new(producer, lost)
    }

    /// Moves records from the rings to `events`, up to `most` in total. Returns the losses since the process began, by
    /// kind.
    fn take(&self, most: usize, events: &mut Vec<Event>) -> [u64; EventKind::ALL.len()] {
        let mut lost = [0; EventKind::ALL.len()];
        for ring in self.rings.lock().unwrap_or_else(PoisonError::into_inner).iter_mut() {
            let count = ring.consumer.slots().min(most.saturating_sub(events.len()));
            if let Ok(chunk) = ring.consumer.read_chunk(count) {
                events.extend(chunk);
            }
            for kind in EventKind::ALL {
                lost[kind as usize] += ring.lost.count(kind);
            }
        }
        lost
    }
}

/// The state of the drain thread.
pub(crate) struct Drain {
    config: Config,
    rings: RingRegistry,
    notes: mpsc::Receiver<Note>,
    stop: Arc<Stop>,
    asked: Asked,
    newest: Newest,
    host: HostSampler,
    sampling: Sampling,
    budget: Budget,
    cost: ThreadCost,
    /// The number of records drained since the process began.
    recorded: u64,
    transport: Transport,
    spool: Spool,
    incarnation: Incarnation,
    next_seq: u64,
    pending: Pending,
    lost: Losses,
    last_sealed: Instant,
    next_probe: Instant,
    probes_made: usize,
    /// The interval at which the rings are drained.
    tick: Duration,
    retry_at: Instant,
    said_refused: bool,
    said_unproven: bool,
    /// Whether the server accepts nothing from this process.
    is_denied: bool,
}

#[derive(Default)]
struct Pending {
    events: Vec<Event>,
    notes: Vec<Note>,
    probes: Vec<Probe>,
}

/// Losses since the process began, by reason and kind.
#[derive(Default)]
struct Losses {
    counts: [[u64; EventKind::ALL.len()]; DropReason::ALL.len()],
}

impl Losses {
    fn add(&mut self, reason: DropReason, events: [u64; EventKind::ALL.len()]) {
        for (count, more) in self.counts[reason as usize].iter_mut().zip(events) {
            *count += more;
        }
    }

    fn to_drops(&self) -> Vec<Drop> {
        let cells = DropReason::ALL.iter().flat_map(|&reason| EventKind::ALL.map(|kind| (reason, kind)));
        cells
            .map(|(reason, kind)| Drop { kind, reason, count: self.counts[reason as usize][kind as usize] })
            .filter(|drop| drop.count > 0)
            .collect()
    }
}

impl Drain {
    pub(crate) fn new(
        config: Config,
        rings: RingRegistry,
        notes: mpsc::Receiver<Note>,
        stop: Arc<Stop>,
        asked: Asked,
        newest: Newest,
        sampling: Sampling,
    ) -> Self {
        let now = Instant::now();
        let hello = Note::Hello(Hello {
            name: config.job.name.clone(),
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            clock: clock::name(),
            pid: std::process::id(),
            local_rank: config.local_rank,
            sample_unit: config.job.sample_unit.clone(),
            parameters: config.job.parameters,
            instrumentation: config.instrumentation,
        });
        let attributes = Attributes { labels: config.labels.clone(), software: software::host_software() };
        Self {
            host: HostSampler::new(config.instrumentation == Instrumentation::PyTorch),
            budget: Budget::new(config.overhead_budget),
            cost: ThreadCost::default(),
            sampling,
            recorded: 0,
            transport: Transport::new(&config.server, config.token.as_deref()),
            spool: Spool::new(config.spool_bytes),
            incarnation: new_incarnation(),
            next_seq: 0,
            pending: Pending { notes: vec![hello, attributes.into()], ..Pending::default() },
            lost: Losses::default(),
            last_sealed: now,
            next_probe: now,
            probes_made: 0,
            tick: TICK,
            retry_at: now,
            said_refused: false,
            said_unproven: false,
            is_denied: false,
            config,
            rings,
            notes,
            stop,
            asked,
            newest,
        }
    }

    pub(crate) fn run(mut self) {
        let deadline = loop {
            if let Some(deadline) = self.stop.deadline() {
                break deadline;
            }
            self.turn();
            std::thread::park_timeout(self.tick);
        };
        self.flush(deadline);
    }

    fn turn(&mut self) {
        self.gather();
        self.pending.notes.extend(self.host.sample().map(Note::Host));
        if Instant::now() >= self.retry_at && self.wants_probe() {
            self.probe();
        }
        if self.should_seal() {
            self.seal();
        }
        self.send();
        self.keep_budget();
    }

    /// Compares the cost of this thread and of the records with the budget, and adapts the number of recorded steps.
    fn keep_budget(&mut self) {
        let thread_nanos = self.cost.end_round(clock::thread_cpu_nanos(), budget::major_faults());
        let spent = thread_nanos + self.recorded * RECORD_NANOS;
        if self.sampling.is_in_use()
            && let Some(interval) = self.budget.keep(clock::now(), spent, 1)
        {
            self.sampling.set(interval);
        }
    }

    fn gather(&mut self) {
        self.pending.notes.extend(self.notes.try_iter());
        let known = self.pending.events.len();
        let lost = self.rings.take(MAX_EVENTS, &mut self.pending.events);
        self.newest.see(&self.pending.events[known..]);
        self.recorded += (self.pending.events.len() - known) as u64;
        self.lost.counts[DropReason::RingFull as usize] = lost;
    }

    fn wants_probe(&self) -> bool {
        self.probes_made < FIRST_PROBES || Instant::now() >= self.next_probe
    }

    fn probe(&mut self) {
        match self.transport.probe() {
            Some(probe) => {
                self.pending.probes.push(probe);
                self.probes_made += 1;
                self.next_probe = Instant::now() + PROBE_EVERY;
            }
            None => self.retry_at = Instant::now() + BACK_OFF,
        }
    }

    fn should_seal(&self) -> bool {
        let age = self.last_sealed.elapsed();
        let something = !self.pending.events.is_empty() || !self.pending.notes.is_empty();
        // Above the budget, batches are also sent less often, because sending costs more than recording.
        let interval = TICK.saturating_mul(self.sampling.interval() - 1).min(GATHER);
        let gathered = (self.spool.is_empty() && age >= interval)
            || age >= GATHER
            || self.pending.events.len() >= MAX_EVENTS / 2;
        (something && gathered) || age >= HEARTBEAT
    }

    /// Makes one batch of all pending data and appends it to the spool.
    fn seal(&mut self) {
        self.last_sealed = Instant::now();
        let Pending { events, notes, probes } = std::mem::take(&mut self.pending);
        let events = remove_superseded(events);
        let batch = Batch {
            run: self.config.run.clone(),
            rank: self.config.rank,
            world_size: self.config.world_size,
            incarnation: self.incarnation,
            seq: BatchSeq(self.next_seq),
            anchor: clock::anchor(),
            probes,
            drops: self.lost.to_drops(),
            notes,
            events,
        };
        self.next_seq += 1;
        let (events, receipt) = (count_kinds(&batch.events), batch.receipt());
        match wire::codec::encode(&batch) {
            Ok(bytes) => {
                for lost in self.spool.push(Frame { bytes, receipt, events, notes: batch.notes }) {
                    self.give_up(lost, DropReason::SpoolFull);
                }
            }
            Err(_) => self.lost.add(DropReason::Refused, events),
        }
    }

    /// Returns how long a request may take: the time left until the deadline, if there is one.
    fn patience(&self) -> Duration {
        self.stop
            .deadline()
            .map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// Sends the batches in the spool, oldest first, until the spool is empty, the server does not accept one, or time
    /// is up.
    fn send(&mut self) {
        while Instant::now() >= self.retry_at
            && !self.patience().is_zero()
            && let Some(frame) = self.spool.front()
        {
            let delivery = self.transport.deliver(&frame.bytes, &frame.receipt, self.patience());
            // Also where there is no answer: a server that comes back is to be noticed soon.
            self.tick = TICK;
            match delivery {
                Delivery::Acknowledged(requests) => {
                    self.is_denied = false;
                    self.tick = requests.batch_interval.unwrap_or(TICK);
                    drop(self.spool.pop());
                    self.asked.store(requests);
                }
                Delivery::Refused(reason) | Delivery::Contradicted(reason) => self.refused(&reason),
                Delivery::Denied(reason) => self.denied(&reason),
                Delivery::Later(wait) => self.retry_at = Instant::now() + wait.min(HEARTBEAT),
                Delivery::Unreachable => self.retry_at = Instant::now() + BACK_OFF,
                Delivery::Unproven(answer) => self.unproven(&answer),
            }
        }
    }

    /// Handles an answer without a valid receipt. The batch stays in the spool until a server proves that it has stored
    /// it.
    fn unproven(&mut self, answer: &str) {
        self.retry_at = Instant::now() + BACK_OFF;
        if !self.said_unproven {
            self.said_unproven = true;
            warn(&format!(
                "{} answers {answer}: it is not a Paceline server of this version. This rank's records wait in \
                 memory, and training continues. Check PACELINE_SERVER and any proxy in between",
                self.config.server
            ));
        }
    }

    /// Handles an answer of a server that accepts nothing from this process. The batch stays in the spool: the next command may
    /// have the right token.
    fn denied(&mut self, reason: &str) {
        self.retry_at = Instant::now() + HEARTBEAT;
        if !self.is_denied {
            self.is_denied = true;
            warn(&format!(
                "the server {} accepts no records of this rank (training continues): {reason}",
                self.config.server
            ));
        }
    }

    fn refused(&mut self, reason: &str) {
        if !self.said_refused {
            self.said_refused = true;
            warn(&format!("the server refuses this rank's records (training continues): {reason}"));
        }
        if let Some(mut frame) = self.spool.pop() {
            // The server would refuse the notes again.
            frame.notes.clear();
            self.give_up(frame, DropReason::Refused);
        }
    }

    /// Counts a frame's records as lost. Its lasting notes, such as the process's identity, go into the next batch.
    fn give_up(&mut self, frame: Frame, reason: DropReason) {
        self.lost.add(reason, frame.events);
        // Samples and bursts are out of date by now.
        let stays = |note: &Note| {
            !matches!(
                note,
                Note::Device(_) | Note::Burst(_) | Note::Host(_) | Note::Stacks(_) | Note::LongStep(_)
            )
        };
        self.pending.notes.extend(frame.notes.into_iter().filter(stays));
    }

    fn flush(&mut self, deadline: Instant) {
        // A job may last less than the sampling interval.
        self.pending.notes.extend(self.host.sample_now().map(Note::Host));
        // A launcher may end this process while it waits for a server that was late before.
        let kept = if self.spool.is_empty() { None } else { self.keep_leftovers() };
        loop {
            self.gather();
            if !self.pending.events.is_empty() || !self.pending.notes.is_empty() {
                self.seal();
            }
            self.send();
            let now = Instant::now();
            if self.spool.is_empty() {
                if let Some(Ok((path, _))) = kept {
                    // If it stays, the server recognizes its batches.
                    let _still_there = std::fs::remove_file(path);
                }
                return self.say_what_was_lost();
            }
            if self.is_denied || now >= deadline {
                self.leave();
                return self.say_what_was_lost();
            }
            std::thread::sleep(self.retry_at.saturating_duration_since(now).min(deadline - now));
        }
    }

    /// Keeps the batches on disk that no server took. Returns the file, and the number of batches that do not fit; `None` if nothing
    /// is to be kept.
    fn keep_leftovers(&self) -> Option<io::Result<(PathBuf, usize)>> {
        let leftovers = self.config.leftovers.as_ref()?;
        let (run, rank) = (&self.config.run, self.config.rank);
        let name = format!("{run}-rank-{rank}-{}", self.incarnation.0);
        Some(leftovers.keep(&self.config.server, &name, self.spool.frames()))
    }

    /// Keeps the batches on disk that no server took, and says where.
    fn leave(&mut self) {
        match self.keep_leftovers() {
            None => {}
            Some(Ok((path, too_many))) => {
                (0..too_many).for_each(|_| {
                    if let Some(frame) = self.spool.pop() {
                        self.lost.add(DropReason::SpoolFull, frame.events);
                    }
                });
                warn(&format!(
                    "{} records of rank {} did not reach {} and are kept in {}: `paceline runs`, by this user on this host, sends \
                     them (training was not affected)",
                    self.spool.records(),
                    self.config.rank,
                    self.config.server,
                    path.display()
                ));
                while self.spool.pop().is_some() {}
            }
            Some(Err(error)) => warn(&format!("the records that are left cannot be kept on disk: {error}")),
        }
    }

    /// Reports on standard error how many records were lost. An unreachable server cannot report them.
    fn say_what_was_lost(&self) {
        let given_up = |reason: DropReason| self.lost.counts[reason as usize].iter().sum::<u64>();
        let lost = self.spool.records() + given_up(DropReason::SpoolFull) + given_up(DropReason::Refused);
        if lost > 0 {
            let (rank, server) = (self.config.rank.0, &self.config.server);
            warn(&format!(
                "{lost} records of rank {rank} did not reach {server} and are lost (training was not affected)"
            ));
        }
    }
}

/// Removes the started collectives whose end is in the same batch, because the end contains everything that the start
/// does.
fn remove_superseded(events: Vec<Event>) -> Vec<Event> {
    let ended: std::collections::HashSet<(Comm, Seq)> = events
        .iter()
        .filter_map(|event| match event {
            Event::Bucket(bucket) => Some((bucket.comm, bucket.seq)),
            _ => None,
        })
        .collect();
    let says_something = |event: &Event| match event {
        Event::Started(started) => !ended.contains(&(started.comm, started.seq)),
        _ => true,
    };
    events.into_iter().filter(says_something).collect()
}

fn count_kinds(events: &[Event]) -> [u64; EventKind::ALL.len()] {
    let mut counts = [0; EventKind::ALL.len()];
    events.iter().for_each(|event| counts[event.kind() as usize] += 1);
    counts
}

/// Creates an incarnation. Later incarnations of a rank are larger, and two of the same instant differ in the process
/// id.
fn new_incarnation() -> Incarnation {
    let micros =
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_micros());
    Incarnation(((micros as u64) << 12) | u64::from(std::process::id() & 0xfff))
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::clock::MonoNanos;
    use wire::event::{BucketRecord, Source, Started, StepRecord};
    use wire::ids::{Bucket, Step};

    fn started(seq: u64) -> Event {
        Event::Started(Started {
            step: Step(0),
            comm: Comm(0),
            seq: Seq(seq),
            bucket: Bucket(0),
            bytes: 4,
            launch: MonoNanos(0),
        })
    }

    fn ended(seq: u64) -> Event {
        Event::Bucket(BucketRecord {
            step: Step(0),
            comm: Comm(0),
            seq: Seq(seq),
            bucket: Bucket(0),
            bytes: 4,
            ready: MonoNanos(0),
            launch: MonoNanos(0),
            start: MonoNanos(0),
            end: MonoNanos(1),
            source: Source::HostClock,
        })
    }

    #[test]
    fn only_unfinished_collectives_are_sent_as_started() {
        let sent = remove_superseded(vec![started(1), started(2), ended(1)]);
        assert_eq!(sent, [started(2), ended(1)]);
    }

    #[test]
    fn a_full_ring_counts_dropped_records_by_kind_and_retains_the_others() {
        let rings = RingRegistry::default();
        let mut recorder = rings.recorder();
        let step = Event::Step(StepRecord {
            step: Step(0),
            begin: MonoNanos(0),
            end: MonoNanos(1),
            samples: 1,
            shadow: false,
        });
        for _ in 0..RING_SLOTS {
            recorder.record(step);
        }
        recorder.record(ended(0));
        recorder.record(ended(1));
        recorder.record(step);
        let mut events = Vec::new();
        let lost = rings.take(MAX_EVENTS, &mut events);
        assert_eq!(events.len(), RING_SLOTS);
        assert_eq!(lost[EventKind::Bucket as usize], 2);
        assert_eq!(lost[EventKind::Step as usize], 1);
    }
}
