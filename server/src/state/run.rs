//! A run: its ranks, its clocks and its steps.

use std::collections::BTreeSet;
use std::sync::Arc;

use analysis::goodput::Lifeline;
use analysis::hosts::{HostHistory, RankHost};
use analysis::mfu::RankWork;
use analysis::step::StepAnalysis;
use analysis::verdict::NOTABLE_SHARE;
use wire::attributes::Attributes;
use wire::batch::{Hello, Instrumentation, Waiting};
use wire::clock::{MonoNanos, ServerNanos, UnixNanos};
use wire::ids::{Incarnation, RunId, Seq, Step};
use wire::request::{RecordingRequest, TraceRequest};
use wire::traces::TraceSummary;
use wire::views::Hang;
use wire::views::captures::TraceComparison;
use wire::workload::Workload;

use super::recall::cache::Recalled;
use super::steps::Steps;
use super::steps::incoming::Incoming;
use super::steps::placed::{Done, Work};
use crate::store::batches::Condition;

mod attributes;
mod clocks;
pub mod devices;
pub(super) mod faults;
mod gaps;
mod goodput;
pub mod incarnations;
mod ingest;
mod layouts;
mod notes;
mod own_code;
mod placing;
mod printable;
mod ranks;
mod reports;
mod requests;
mod run_state;
mod stacks;
pub mod usage;
mod values;
mod world;

use clocks::Clocks;
use devices::{DeviceErrors, RankDevices};
use goodput::Attempts;
use incarnations::{Claims, Incarnations};
use layouts::RankLayouts;
use own_code::OwnCode;
use ranks::Ranks;
pub use reports::ReportWork;
use stacks::{RankStacks, Wanted};
use usage::RankUsage;

/// The silence after which a rank no longer reports, in nanoseconds. Agents send a heartbeat every two seconds.
const REPORTING_NANOS: i64 = 10_000_000_000;
/// The silence after which a run without end-of-run messages has failed, in nanoseconds.
const LOST_NANOS: i64 = 60_000_000_000;
/// The time without a complete step after which steps with missing ranks close, in nanoseconds.
const OVERDUE_NANOS: i64 = 10_000_000_000;
/// The shortest time without a complete step that counts as a hang, in nanoseconds. [`hang::detect`] requires at least
/// this.
const HANG_NANOS: i64 = 10_000_000_000;
/// How long a rank must wait in a collective before its first step for that to count as a hang, in nanoseconds. Ranks
/// often wait longer there than between steps, for one that downloads or prepares data.
const START_HANG_NANOS: i64 = 60_000_000_000;

/// What a rank waits in, and since when.
#[derive(Clone, Copy)]
struct Waits {
    waiting: Waiting,
    begin: ServerNanos,
}

#[derive(Default)]
struct RankState {
    hello: Option<Hello>,
    attributes: Option<Attributes>,
    /// The incarnation that this state belongs to.
    incarnation: Option<Incarnation>,
    incarnations: Incarnations,
    last_seen: Option<ServerNanos>,
    /// The index of the rank's clock among the run's clocks.
    clock: Option<u32>,
    launched: Option<Seq>,
    /// The collective that the rank waits in before its steps are known.
    waits: Option<Waits>,
    /// How long it waited so in all, in nanoseconds.
    start_waits: u64,
    bye: Option<bool>,
    bye_reason: String,
    /// Whether the end-of-run message is from the launcher, because the rank ended without one.
    bye_by_launcher: bool,
    /// When the launcher saw the process end, in nanoseconds since the Unix epoch on the launcher's clock.
    seen_to_end: Option<UnixNanos>,
    last_step: Option<Step>,
    devices: RankDevices,
    device_errors: DeviceErrors,
    stacks: RankStacks,
    own_code: OwnCode,
    layouts: RankLayouts,
    /// What the rank ran, by name, if the run is imported.
    summary: Option<Arc<TraceSummary>>,
    workload: Option<Workload>,
    /// The newest request for a trace.
    trace_asked: Option<TraceRequest>,
    /// The host history, shared with reports, which are made on another thread.
    host: Arc<HostHistory>,
    /// How the device and the host were used over time, in all incarnations.
    usage: RankUsage,
    /// What the rank used its time for, in all incarnations.
    lifeline: Lifeline,
}

impl RankState {
    /// Returns the approximate size, in bytes.
    fn bytes(&self) -> usize {
        let texts = self.hello.as_ref().map_or(0, hello_bytes) + self.bye_reason.len();
        size_of::<Self>()
            + texts
            + self.incarnations.drops().len() * size_of::<wire::batch::Drop>()
            + self.attributes.as_ref().map_or(0, Attributes::bytes)
            + self.devices.bytes()
            + self.device_errors.bytes()
            + self.stacks.bytes()
            + self.own_code.bytes()
            + self.layouts.bytes()
            + self.workload.as_ref().map_or(0, Workload::bytes)
            + self.summary.as_ref().map_or(0, |summary| summary.bytes())
            + self.host.bytes()
            + self.lifeline.bytes()
    }

    fn work(&self) -> RankWork {
        RankWork {
            workload: self.workload.clone().unwrap_or_default(),
            parameters: self.hello.as_ref().map_or(0, |hello| hello.parameters),
            device: self.devices.newest().map(|sample| sample.device.clone()),
        }
    }

    /// Notes the collective that the rank waits in at `now`, which is `mono` on its clock, or that it no longer waits.
    fn wait_in(&mut self, waiting: Option<Waiting>, mono: MonoNanos, now: ServerNanos) {
        let next = waiting.map(|waiting| Waits { waiting, begin: now + (waiting.launch - mono) });
        if let Some(ended) = std::mem::replace(&mut self.waits, next) {
            // On the clock of the rank, whenever the batches arrive.
            let end = next.map_or(mono, |next| next.waiting.launch);
            self.start_waits += (end - ended.waiting.launch).max(0).unsigned_abs();
        }
    }

    fn host(&self) -> Option<RankHost> {
        Some(RankHost { pid: self.hello.as_ref()?.pid, history: self.host.clone() })
    }
}

fn hello_bytes(hello: &Hello) -> usize {
    let texts = [&hello.name, &hello.host, &hello.clock, &hello.sample_unit];
    texts.into_iter().map(String::len).sum()
}

pub struct Run {
    id: RunId,
    ranks: Ranks<RankState>,
    rank_bytes: usize,
    usage_bytes: usize,
    clocks: Clocks,
    first_seen: ServerNanos,
    last_seen: ServerNanos,
    /// Since when the server listens to the run without a stop.
    listens_from: ServerNanos,
    incoming: Incoming,
    steps: Steps,
    recalled: Recalled,
    completed_steps: u64,
    last_step_at: Option<ServerNanos>,
    hang: Option<Hang>,
    /// Ranks for which device evidence was requested.
    evidence_asked: BTreeSet<u32>,
    stacks_wanted: Wanted,
    /// The request for stacks because of the current hang.
    hang_asked: Option<RecordingRequest>,
    /// What differs between the newest traces of two ranks.
    traced: Option<Arc<TraceComparison>>,
    /// The condition of the run's files.
    condition: Condition,
    refused: Refused,
    attempts: Attempts,
    /// The claims of new processes to continue with another world size.
    world_claims: Claims,
    /// The share of the time, 0 to 1, below which an effect is a note instead of a verdict.
    notable_share: f64,
}

/// The batches refused since the server started.
#[derive(Clone, Default)]
struct Refused {
    count: u64,
    last: String,
}

impl Run {
    /// Creates the run that its first batch describes. `world_size` is from a decoded batch.
    #[must_use]
    pub fn new(id: RunId, world_size: u32, now: ServerNanos) -> Self {
        Self {
            id,
            incoming: Incoming::new(world_size as usize),
            ranks: Ranks::new(world_size),
            rank_bytes: 0,
            usage_bytes: 0,
            clocks: Clocks::default(),
            first_seen: now,
            last_seen: now,
            listens_from: now,
            steps: Steps::default(),
            recalled: Recalled::default(),
            completed_steps: 0,
            last_step_at: None,
            hang: None,
            evidence_asked: BTreeSet::new(),
            stacks_wanted: Wanted::default(),
            hang_asked: None,
            traced: None,
            condition: Condition::default(),
            refused: Refused::default(),
            attempts: Attempts::default(),
            world_claims: Claims::default(),
            notable_share: NOTABLE_SHARE,
        }
    }

    /// Notes that the server was stopped until `now`. Silence before that is not the run's.
    pub fn listen_from(&mut self, now: ServerNanos) {
        self.listens_from = now;
        self.last_step_at = self.last_step_at.map(|_| now);
    }

    /// Applies the changes that time alone causes: overdue steps close, and hangs are detected.
    pub fn tick(&mut self, now: ServerNanos) {
        if self.last_step_at.is_some_and(|at| now - at > OVERDUE_NANOS) {
            let overdue = self.incoming.close_overdue();
            self.steps.wait(overdue);
        }
        let hang = if self.has_ended() || self.is_lost(now) { None } else { self.detect_hang(now) };
        self.hang = hang.map(|hang| self.explain_hang(hang, now));
    }

    /// Returns the next step to analyze, or `None` while a step is being analyzed or if no step waits.
    pub fn next_work(&mut self) -> Option<Work> {
        if !self.steps.is_ready() {
            return None;
        }
        let placing = (self.fits(), self.numbers_by_function());
        self.steps.next(|| placing)
    }

    /// Stores an analyzed step.
    pub fn finish(&mut self, done: Done, now: ServerNanos) -> Arc<StepAnalysis> {
        let analysis = done.analysis.clone();
        self.count_step(&done);
        self.steps.finish(done);
        self.forget_hidden();
        if analysis.complete {
            self.completed_steps += 1;
            self.last_step_at = Some(now);
            (self.hang, self.hang_asked) = (None, None);
        }
        analysis
    }

    /// Returns true if every closed step is analyzed, so that a report covers all closed steps.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.steps.is_settled()
    }

    /// Returns true if a step waits for analysis and none is being analyzed.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.steps.is_ready()
    }

    /// Returns the approximate size of the run, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.rank_bytes
            + self.usage_bytes
            + self.clocks.bytes()
            + self.incoming.bytes()
            + self.steps.bytes()
            + self.recalled.bytes()
    }

    /// Drops the older half of the run's steps from memory.
    pub fn halve(&mut self) {
        self.recalled.clear_records();
        self.steps.halve();
        self.forget_hidden();
    }

    /// Forgets which steps cannot be shown of those that have left memory, because no one is offered them.
    fn forget_hidden(&mut self) {
        if let Some((first, _)) = self.steps.range() {
            self.recalled.forget_hidden_before(first);
        }
    }

    /// Returns the closed steps.
    #[must_use]
    pub fn steps(&self) -> &Steps {
        &self.steps
    }

    /// Returns the run's id.
    #[must_use]
    pub fn id(&self) -> &RunId {
        &self.id
    }

    /// Returns the time when the first batch arrived.
    #[must_use]
    pub fn first_seen(&self) -> ServerNanos {
        self.first_seen
    }

    /// Returns the name that the ranks gave the run, or the run id before the first hello message.
    #[must_use]
    pub fn name(&self) -> &str {
        self.hello().map_or(self.id.as_str(), |hello| hello.name.as_str())
    }

    /// Returns the world size of the newest attempt.
    #[must_use]
    pub fn world_size(&self) -> u32 {
        self.ranks.world_size() as u32
    }

    fn instrumentation(&self) -> Instrumentation {
        self.hello().map_or(Instrumentation::Reducer, |hello| hello.instrumentation)
    }

    fn hello(&self) -> Option<&Hello> {
        self.ranks.iter().find_map(|(_, rank)| rank.hello.as_ref())
    }

    /// Sets the largest size of the records of closed steps in memory, in bytes, in place of
    /// [`budget::KEPT_BYTES`].
    #[must_use]
    pub fn keeping(mut self, bytes: usize) -> Self {
        self.steps.keep(bytes);
        self
    }

    /// Sets the share of the time from which an effect is a verdict, in place of [`NOTABLE_SHARE`].
    #[must_use]
    pub fn judged_from(self, notable_share: f64) -> Self {
        Self { notable_share, ..self }
    }
}
