//! Simulates storage faults: runs the real log, sealer, recovery and replay on a disk that fails in many ways, from a
//! seed.
//!
//! A seed plays several server lifetimes. In each one the server starts, accepts batches of two ranks, closes the log's
//! file while the run is silent or another run needs its place, seals, and dies: it is killed, or the power is cut at
//! any operation. Meanwhile the disk fails, fills up or flips bits, and someone removes the run's folder or puts a link into it. At the end:
//!
//! - every acknowledged batch is on disk, as it was sent and in order, or damage is reported;
//! - no batch is on disk that was not sent;
//! - if the folder was removed and the run went on, the loss is reported;
//! - if no bit flipped, no batch is missing; if also no fault was ambiguous, no damage is reported.
//!
//! `PACELINE_SEEDS` sets the number of seeds (10,000). `PACELINE_SEED` plays one seed and prints its trace.

mod disk;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;
use wire::batch::Batch;
use wire::clock::{ClockAnchor, MonoNanos, ServerNanos, UnixNanos};
use wire::event::{Event, StepRecord};
use wire::ids::{BatchSeq, Incarnation, Rank, RunId, Step};

use super::batches::{self, Condition};
use super::directory::Layout;
use super::folder::RunFolder;
use super::log::writer::{Appended, Record, Writer};
use super::sealer::{self, Closed};
use super::segment::{Received, without_repetitions};
use super::{StoreError, recovery};
use disk::{Faults, SimulatedDisk};

const SEEDS: u64 = 10_000;
const RANKS: u32 = 2;
const ROOT: &str = "/data";

#[test]
fn acknowledged_batches_are_on_disk_or_reported_as_damaged() {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    if let Some(seed) = number("PACELINE_SEED") {
        return check(seed, true);
    }
    for seed in 0..number("PACELINE_SEEDS").unwrap_or(SEEDS) {
        let outcome = std::panic::catch_unwind(|| check(seed, false));
        if outcome.is_err() {
            // Play the seed again, with a trace.
            check(seed, true);
            panic!("seed {seed} failed once and then passed: the simulation is not deterministic");
        }
    }
}

/// Plays one seed.
fn check(seed: u64, traced: bool) {
    let mut world = World::new(seed, traced);
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.play()));
    if let Err(panic) = outcome {
        if traced {
            let trace = world.disk.trace().join("\n");
            panic!("{trace}\nPACELINE_SEED={seed}: {}", message(panic.as_ref()));
        }
        std::panic::resume_unwind(panic);
    }
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

/// A rank's agent. It sends its batches in order, each until the batch is acknowledged or the agent drops it.
struct Agent {
    next: u64,
    acknowledged: Vec<u64>,
}

struct World {
    random: ChaCha8Rng,
    disk: SimulatedDisk,
    layout: Layout,
    run: RunId,
    agents: Vec<Agent>,
    has_flips: bool,
    /// The batches that were acknowledged into the log that is now written to.
    in_log: usize,
    /// The batches of which the server knows that they are on disk.
    known: usize,
    /// Whether someone removed batches of which the server knows, and no batch has followed yet.
    is_removed: bool,
    /// Whether someone put a link in place of the log that is written to. The server does not look at it once the log is closed.
    is_linked: bool,
    /// Whether batches that were removed must be reported.
    must_tell: bool,
    /// Whether the folder was ever removed.
    was_removed: bool,
    /// Whether the disk had a fault that no program can distinguish from damage: an operation that failed halfway, or
    /// holes in a file.
    is_ambiguous: bool,
}

impl World {
    fn new(seed: u64, traced: bool) -> Self {
        let disk = SimulatedDisk::new(seed, Path::new(ROOT), traced);
        Self {
            random: ChaCha8Rng::seed_from_u64(seed ^ 0x5eed),
            layout: Layout::on(Arc::new(disk.clone()), ROOT),
            disk,
            run: RunId::new("r").expect("a valid run id"),
            agents: (0..RANKS).map(|_| Agent { next: 0, acknowledged: Vec::new() }).collect(),
            has_flips: false,
            in_log: 0,
            known: 0,
            is_removed: false,
            is_linked: false,
            must_tell: false,
            was_removed: false,
            is_ambiguous: false,
        }
    }

    fn chance(&mut self, one_in: u32) -> bool {
        self.random.random_range(0..one_in) == 0
    }

    fn play(&mut self) {
        let is_spoilt = self.chance(3);
        for life in 0..self.random.random_range(1..5) {
            self.disk.note(|| format!("life {life}"));
            self.draw_faults();
            // A server that cannot start is started again.
            let _outcome = self.live();
            self.disk.set_faults(Faults::default());
            if self.disk.is_off() || self.chance(2) {
                self.is_ambiguous |= self.disk.power_cut();
            }
            if is_spoilt && self.chance(2) {
                self.has_flips |= self.disk.flip_a_bit().is_some();
            }
        }
        self.is_ambiguous |= self.disk.power_cut();
        self.judge("before recovery");
        recovery::cut_torn_tails(&self.layout).expect("there are no more faults");
        self.judge("after recovery");
        let folder = self.layout.folder(&self.run);
        let _some_are_damaged = folder.newest().and_then(|newest| sealer::seal(&folder, newest));
        self.judge("after sealing");
    }

    fn draw_faults(&mut self) {
        let errors = if self.chance(4) { self.random.random_range(3..40) } else { 0 };
        let power_cut_at = self.chance(2).then(|| self.random.random_range(1..120));
        let room = self.chance(4).then(|| self.random.random_range(0..3_000) as usize);
        self.is_ambiguous |= errors > 0;
        self.disk.set_faults(Faults { errors, power_cut_at, room });
    }

    /// Plays one server lifetime, up to the first error.
    fn live(&mut self) -> Result<(), StoreError> {
        let folder = self.layout.folder(&self.run);
        self.layout.create()?;
        recovery::cut_torn_tails(&self.layout)?;
        let rotate_bytes = if self.chance(2) { 400 } else { 1 << 20 };
        let mut writer = Writer::new(self.layout.clone()).rotating_at(rotate_bytes).holding_open(1);
        let mut closed: Vec<Closed> = Vec::new();
        self.begin(&folder, &mut writer);
        for _ in 0..self.random.random_range(0..16) {
            match self.random.random_range(0..16) {
                0 => {
                    (self.in_log, self.is_linked) = (0, false);
                    closed.extend(writer.close(&self.run)?);
                }
                4 if self.chance(4) => self.remove_the_run(&folder),
                2 => writer.rest(),
                3 => self.send_of_another(&mut writer),
                // The sealer is another thread: it runs at any time, and continues after an error.
                1 if !closed.is_empty() => {
                    let _still_a_log = sealer::seal(&folder, closed.remove(0).last);
                }
                _ => closed.extend(self.send(&mut writer).unwrap_or_default()),
            }
        }
        Ok(())
    }

    /// Tells the writer what a server reads at its start.
    fn begin(&mut self, folder: &RunFolder, writer: &mut Writer) {
        let read = batches::each_batch(folder, |_| Ok::<(), StoreError>(()));
        let Condition { stored, lost, .. } = read.unwrap_or_default();
        (self.in_log, self.is_removed, self.is_linked) = (0, false, false);
        self.known = stored.values().sum::<u64>() as usize;
        writer.knows(self.run.clone(), stored, lost);
    }

    /// Removes the folder of the run, as an operator may do by mistake, or puts a link in place of its newest log.
    fn remove_the_run(&mut self, folder: &RunFolder) {
        match folder.logs().ok().and_then(|logs| logs.last().copied()) {
            Some(newest) if self.chance(2) => {
                self.disk.replace_by_link(&folder.log(newest));
                self.is_linked |= self.in_log > 0;
            }
            _ => {
                self.disk.remove_tree(&folder.path);
                self.is_removed |= self.known > 0;
            }
        }
        self.agents.iter_mut().for_each(|agent| agent.acknowledged.clear());
        (self.must_tell, self.was_removed) = (false, true);
    }

    /// Appends a batch of another run, which takes the place of the open file. The outcome is not judged.
    fn send_of_another(&mut self, writer: &mut Writer) {
        let other = RunId::new("other").expect("a valid run id");
        let (received, batch) = sent(&other, 0, self.disk.operations());
        let frame = wire::codec::encode(&batch).expect("a batch can be encoded");
        let outcome = writer.append(
            &other,
            &[Record { received, frame: frame.into(), decoded_bytes: batch.held_bytes() as u64 }],
        );
        self.disk.note(|| format!("another run: {:?}", outcome.map(drop)));
    }

    /// Appends one batch of each of some ranks, as one group.
    fn send(&mut self, writer: &mut Writer) -> Result<Option<Closed>, StoreError> {
        let mut group = Vec::new();
        let mut senders = BTreeSet::new();
        for rank in 0..RANKS {
            if self.random.random_bool(0.7) {
                senders.insert(rank as usize);
                let (received, batch) = sent(&self.run, rank, self.agents[rank as usize].next);
                let frame = wire::codec::encode(&batch).expect("a batch can be encoded");
                let decoded_bytes = batch.held_bytes() as u64;
                group.push(Record { received, frame: frame.into(), decoded_bytes });
            }
        }
        if group.is_empty() {
            return Ok(None);
        }
        let outcome = writer.append(&self.run, &group);
        match &outcome {
            Ok(Appended { full, lost }) => {
                if std::mem::take(&mut self.is_removed) | std::mem::take(&mut self.is_linked) {
                    assert!(!lost.is_empty(), "the writer knew of the batches that were removed");
                    (self.in_log, self.known, self.must_tell) = (0, 0, true);
                }
                self.known += group.len();
                self.in_log = if full.is_some() { 0 } else { self.in_log + group.len() };
            }
            // The writer may have given up the log, but not what it knew of it.
            Err(_) => (self.in_log, self.is_linked) = (0, false),
        }
        for at in senders {
            let gives_up = self.chance(8);
            let agent = &mut self.agents[at];
            if outcome.is_ok() {
                agent.acknowledged.push(agent.next);
                agent.next += 1;
            } else if gives_up {
                agent.next += 1;
            }
            self.disk.note(|| format!("rank {at}: {} {:?}", agent.next, outcome.as_ref().map(drop)));
        }
        outcome.map(|appended| appended.full)
    }

    /// Compares what a reader finds now with what was sent and acknowledged.
    fn judge(&self, when: &str) {
        let mut found = Vec::new();
        let folder = self.layout.folder(&self.run);
        let condition = batches::each_batch(&folder, |received| {
            found.push(received);
            Ok::<(), StoreError>(())
        });
        let Condition { damage, lost, unnamed, skipped, .. } = match condition {
            Ok(condition) => condition,
            Err(error) => {
                assert!(self.has_flips, "{when}, without any flip: {error}");
                return;
            }
        };
        assert!(!self.must_tell || !lost.is_empty() || self.has_flips, "{when}: a removal is forgotten");
        let may_lack = self.was_removed || self.has_flips || self.is_ambiguous;
        assert!(lost.is_empty() || may_lack, "{when}: a false alarm: {lost:?}");
        assert!(
            unnamed == 0 || self.has_flips || self.is_ambiguous,
            "{when}: {unnamed} segments have lost their manifest"
        );
        assert!(skipped.is_empty() || may_lack, "{when}: {skipped:?} seem to have been removed");
        let missing = self.compare(&without_repetitions(found), when);
        assert!(missing == 0 || !damage.is_empty(), "{when}: {missing} batches are silently missing");
        assert!(missing == 0 || self.has_flips, "{when}: {missing} batches are missing: {damage:?}");
        assert!(damage.is_empty() || may_lack, "{when}: a false alarm: {damage:?}");
    }

    /// Returns the number of missing acknowledged batches. Batches that are found must be as they were sent, in order.
    fn compare(&self, found: &[Received], when: &str) -> usize {
        let mut by_rank: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for Received { at, batch } in found {
            let known = sent(&self.run, batch.rank.0, batch.seq.0);
            assert_eq!((*at, batch), (known.0, &known.1), "{when}: this was never sent");
            by_rank.entry(batch.rank.0).or_default().push(batch.seq.0);
        }
        let mut missing = 0;
        for (rank, agent) in (0..).zip(&self.agents) {
            let there = by_rank.remove(&rank).unwrap_or_default();
            assert!(there.is_sorted(), "{when}: rank {rank} is out of order: {there:?}");
            missing += agent.acknowledged.iter().filter(|seq| !there.contains(seq)).count();
        }
        missing
    }
}

/// Returns the batch with a sequence number of a rank, and the time of its arrival. Both depend on rank and number
/// only.
fn sent(run: &RunId, rank: u32, seq: u64) -> (ServerNanos, Batch) {
    let at = MonoNanos(seq as i64 * 1_000 + i64::from(rank));
    let record = StepRecord { step: Step(seq), begin: at, end: at + 900, samples: seq, shadow: false };
    let batch = Batch {
        run: run.clone(),
        rank: Rank(rank),
        world_size: RANKS,
        incarnation: Incarnation(u64::MAX - u64::from(rank)),
        seq: BatchSeq(seq),
        anchor: ClockAnchor { mono: at, unix: UnixNanos(1) },
        probes: Vec::new(),
        drops: Vec::new(),
        notes: Vec::new(),
        events: vec![Event::Step(record)],
    };
    (ServerNanos(at.0), batch)
}
