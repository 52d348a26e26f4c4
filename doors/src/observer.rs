//! The thread that turns what callbacks left behind into records.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use agent::{Agent, Config, Job, Notes, Recorder};
use gpu::cupti::on_demand::{self, OnDemand};
use gpu::nvml::sampler::{Wanted, Watch};
use wire::batch::BY_NCCL;
use wire::event::{EventKind, Source};
use wire::ids::Rank;

use crate::calls::Measured;
use crate::collect::{Collective, Collector, Ran, Timed};
use crate::detail::Budget;
use crate::gpu_clock::GpuClock;
use crate::host::{self, ExitCode};
use crate::place::Placer;
use crate::trail::{self, Entry};

/// How often rings are emptied (see the arithmetic of [`trail`]).
const TICK: Duration = Duration::from_millis(20);

/// A communicator as NCCL describes it when it is made, from interface 4 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Communicator {
    /// The same on all its ranks.
    pub(crate) number: u64,
    /// How many ranks it has.
    pub(crate) size: u32,
}

/// Ways to hear of NCCL's collectives, the one that tells most last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Door {
    /// Ranges around NCCL's calls: when they were enqueued.
    Nvtx = 1,
    /// Events around NCCL's calls.
    Calls = 2,
    /// NCCL itself.
    Plugin = 3,
}

/// The best door so far; 0 before the first.
static BEST: AtomicU8 = AtomicU8::new(0);
static IS_OBSERVED: OnceLock<bool> = OnceLock::new();
static THREAD: Mutex<Option<JoinHandle<()>>> = Mutex::new(None);
static STOP: AtomicBool = AtomicBool::new(false);
/// Said when the process ends.
static EXIT_CODE: OnceLock<ExitCode> = OnceLock::new();
/// Communicators that the thread has not heard of yet.
static NEW_COMMUNICATORS: Mutex<Vec<Communicator>> = Mutex::new(Vec::new());

/// NCCL is used: a communicator was made, or a collective called. True when this process is observed: when the environment
/// says where a server is.
pub(crate) fn begin(door: Door, communicator: Option<Communicator>) -> bool {
    // NCCL makes a communicator on the thread, and the device, that it is for.
    let is_observed = *IS_OBSERVED.get_or_init(|| start(gpu::driver::current_bus_id()).unwrap_or(false));
    BEST.fetch_max(door as u8, Ordering::AcqRel);
    if let Some(communicator) = communicator.filter(|_| is_observed) {
        NEW_COMMUNICATORS.lock().unwrap_or_else(PoisonError::into_inner).push(communicator);
    }
    is_observed
}

/// The device at this address is used, by a process that no other door has told of so far.
pub(crate) fn begin_for(device: String) {
    IS_OBSERVED.get_or_init(|| start(Some(device)).unwrap_or(false));
}

/// True until the first door opens.
pub(crate) fn is_undecided() -> bool {
    IS_OBSERVED.get().is_none()
}

/// Whether this process is observed; nothing is begun for it.
pub(crate) fn is_observed() -> bool {
    IS_OBSERVED.get().is_some_and(|observed| *observed)
}

/// Whether no door that is open tells more than this one: a collective is told of once.
pub(crate) fn is_best(door: Door) -> bool {
    BEST.load(Ordering::Acquire) <= door as u8
}

/// `None` where there is nothing to do or no way to do it; what is wrong is said once.
fn start(device: Option<String>) -> Option<bool> {
    let job = Job { name: program_name(), sample_unit: String::new(), parameters: 0 };
    let config = match Config::from_env(job) {
        Ok(config) => config?,
        Err(error) => {
            agent::warn(&format!("not observing this job: {error}"));
            return None;
        }
    };
    host::watch_forks();
    let (rank, world_size) = (config.rank, config.world_size);
    let agent = Agent::start(Config { origin: BY_NCCL.into(), ..config });
    if !agent.is_enabled() {
        return None;
    }
    let observe = move || {
        let device = (device.map(|device| watch(device, agent.notes())), bursts(agent.notes()));
        Observer::new(&agent, rank, world_size).run(agent, device);
    };
    let thread = thread::Builder::new().name("paceline-observe".into()).spawn(observe);
    let thread = thread.map_err(|error| agent::warn(&format!("not observing this job: {error}"))).ok()?;
    *THREAD.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
    host::at_exit(finish);
    Some(true)
}

/// Tells the server once a second what the device does.
fn watch(pci_bus_id: String, notes: Notes) -> Watch {
    Watch::start(Wanted { pci_bus_id, file: None, now: agent::clock::now }, move |sample| {
        notes.device(sample)
    })
}

/// Records what the devices do when the server asks for it.
fn bursts(notes: Notes) -> OnDemand {
    let asking = notes.clone();
    OnDemand::start(
        on_demand::Wanted::from_env(None, agent::clock::now),
        move |done| asking.burst_asked(done),
        move |burst| notes.burst(burst),
    )
}

/// The script of a Python job, else the program.
fn program_name() -> String {
    let words: Vec<String> = std::env::args().collect();
    let script = words.iter().find(|word| word.ends_with(".py")).or(words.first());
    let stem = script.and_then(|word| Path::new(word).file_stem()).unwrap_or_default();
    stem.to_string_lossy().into_owned()
}

/// The process ends: what is left is sent, for five seconds at most.
fn finish(code: ExitCode) {
    let _first = EXIT_CODE.set(code);
    STOP.store(true, Ordering::Release);
    let thread = THREAD.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(thread) = thread {
        thread.thread().unpark();
        // It does not panic, and if it did, its host must not.
        let _outcome = thread.join();
    }
}

/// The state of the thread.
struct Observer {
    recorder: Recorder,
    rank: Rank,
    world_size: u32,
    entries: Vec<Entry>,
    collector: Collector,
    clock: GpuClock,
    placer: Placer,
    measured: Measured,
    budget: Budget,
    /// Entries and collectives since the process began.
    lost: u64,
}

impl Observer {
    fn new(agent: &Agent, rank: Rank, world_size: u32) -> Self {
        Self {
            recorder: agent.recorder(),
            rank,
            world_size,
            entries: Vec::new(),
            collector: Collector::default(),
            clock: GpuClock::default(),
            placer: Placer::default(),
            measured: Measured::default(),
            budget: Budget::from_env(),
            lost: 0,
        }
    }

    fn run(mut self, agent: Agent, device: (Option<Watch>, OnDemand)) {
        while !STOP.load(Ordering::Acquire) {
            self.turn();
            thread::park_timeout(TICK);
        }
        self.turn();
        drop(device);
        let rank = |how: String| format!("rank {} {how}", self.rank);
        agent.finish(EXIT_CODE.get().map_or(Ok(()), |code| code.check().map_err(rank)));
    }

    fn turn(&mut self) {
        for communicator in NEW_COMMUNICATORS.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            self.collector.name_size(communicator.number, communicator.size);
            if communicator.size == self.world_size {
                self.placer.name_world(communicator.number);
            }
        }
        self.budget.keep(agent::clock::now());
        let lost = trail::take(&mut self.entries) + self.collector.lost();
        // Each entry that is lost may cost a collective.
        self.recorder.lose(EventKind::Bucket, lost - std::mem::replace(&mut self.lost, lost));
        for entry in self.entries.drain(..) {
            match entry {
                Entry::Began { gpu: Some(gpu), at, .. } | Entry::Ended { gpu: Some(gpu), at, .. } => {
                    self.clock.seen(gpu, at);
                }
                Entry::Phase { phase, begin, end } => self.placer.take_phase(phase, begin, end),
                _ => {}
            }
            self.collector.take(entry);
        }
        self.measured.take(|entry| self.collector.take(entry));
        for collective in self.collector.ended() {
            if let Some(timed) = timed(collective, &self.clock) {
                self.placer.take(&timed, |event| self.recorder.record(event));
            }
        }
    }
}

/// On the host's clock.
fn timed(collective: Collective, clock: &GpuClock) -> Option<Timed> {
    let (start, end, source) = match collective.ran {
        Ran::Gpu { begin, end } => (clock.to_host(begin)?, clock.to_host(end)?, Source::DeviceEvent),
        Ran::Events { begin, end } => (begin, end, Source::DeviceEvent),
        Ran::Host { begin, end } => (begin, end, Source::HostClock),
        Ran::Unknown { issued } => (collective.launch, issued, Source::Derived),
    };
    Some(Timed { collective, start, end, source })
}
