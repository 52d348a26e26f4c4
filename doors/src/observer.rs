//! The thread that turns what callbacks left behind into records.

mod rank;
mod seats;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use agent::launcher::LauncherError;
use agent::{Agent, Config, ConfigError, Job};
use gpu::driver::UsedDevice;
use wire::batch::{BY_NCCL, BY_PYTORCH};
use wire::clock::MonoNanos;
use wire::ids::Rank;

use crate::calls::Measured;
use crate::host::{self, ExitCode};
use crate::sampling::{self, Budget};
use crate::trail::{self, Entry, Seat};
use rank::Observed;

/// How often rings are emptied (see the arithmetic of [`trail`]).
const TICK: Duration = Duration::from_millis(20);
/// Which ranks a process is that no launcher told is known once no communicator was made for so long: one of all
/// ranks may come after those of some.
const SETTLED_NANOS: i64 = 2_000_000_000;

/// A communicator as NCCL describes it when it is made, from interface 4 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Communicator {
    /// The same on all its ranks.
    pub(crate) number: u64,
    /// How many ranks it has.
    pub(crate) size: u32,
    /// Which of them it was made for, where that is told.
    pub(crate) rank: Option<u32>,
}

/// Ways to hear of collectives, the one that tells most last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Door {
    /// PyTorch, of those that gloo carries.
    PyTorch = 1,
    /// Ranges around NCCL's calls: when they were enqueued.
    Nvtx = 2,
    /// Events around NCCL's calls.
    Calls = 3,
    /// NCCL itself.
    Plugin = 4,
}

/// Who says which rank this process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ranks {
    /// Nobody observes it.
    None,
    /// The launcher: it is one.
    ByLauncher,
    /// The communicators that it makes: it is as many as it drives devices, and knows their numbers from NCCL.
    ByCommunicators,
}

/// The best door so far; 0 before the first.
static BEST: AtomicU8 = AtomicU8::new(0);
static RANKS: OnceLock<Ranks> = OnceLock::new();
static THREAD: Mutex<Option<JoinHandle<()>>> = Mutex::new(None);
static STOP: AtomicBool = AtomicBool::new(false);
/// Said when the process ends.
static EXIT_CODE: OnceLock<ExitCode> = OnceLock::new();
/// Communicators that the thread has not heard of yet.
static NEW_COMMUNICATORS: Mutex<Vec<(Seat, Communicator)>> = Mutex::new(Vec::new());

/// A job communicates: a communicator was made, on its thread and its device, or a collective called. Which of this
/// process's ranks it is for; `None` where that is not observed, since the environment does not say where a server
/// is, or another rank of the process is.
pub(crate) fn begin(door: Door, communicator: Option<Communicator>) -> Option<Seat> {
    BEST.fetch_max(door as u8, Ordering::AcqRel);
    if RANKS.get().is_none() {
        decide(door, communicator)?;
    }
    let ranks = *RANKS.get()?;
    let seat = match (ranks, &communicator) {
        (Ranks::None, _) => return None,
        (_, None) => Seat::FIRST,
        (Ranks::ByLauncher, Some(communicator)) => seats::of_the_only_rank(communicator)?,
        (Ranks::ByCommunicators, Some(communicator)) => {
            seats::of_device(communicator, gpu::driver::current())?
        }
    };
    if let Some(communicator) = communicator {
        NEW_COMMUNICATORS.lock().unwrap_or_else(PoisonError::into_inner).push((seat, communicator));
    }
    Some(seat)
}

/// Finds out who says which rank this is, and starts observing it; `None` where a door that is not open yet may tell
/// more.
fn decide(door: Door, communicator: Option<Communicator>) -> Option<()> {
    let refused = |error: ConfigError| {
        agent::warn(&format!("not observing this job: {error}"));
        Ranks::None
    };
    let is_one = |config: &Config| communicator.is_none_or(|one| one.size <= config.world_size);
    let knows_rank = communicator.is_some_and(|one| one.rank.is_some());
    let launched = |config: Config| {
        let device = gpu::driver::current();
        move || start(Some((config, device)))
    };
    match Config::from_env(job()) {
        Ok(None) => RANKS.get_or_init(|| Ranks::None),
        Ok(Some(config)) if is_one(&config) => RANKS.get_or_init(launched(config)),
        Ok(Some(_))
        | Err(ConfigError::Missing { .. } | ConfigError::Launcher(LauncherError::Incomplete { .. }))
            if knows_rank =>
        {
            RANKS.get_or_init(|| match Config::from_env_as(job(), Rank(0), 1) {
                Ok(Some(_)) => start(None),
                Ok(None) => Ranks::None,
                Err(error) => refused(error),
            })
        }
        Ok(Some(_))
        | Err(ConfigError::Missing { .. } | ConfigError::Launcher(LauncherError::Incomplete { .. }))
            if door < Door::Plugin && plugin_will_tell() =>
        {
            return None;
        }
        Ok(Some(config)) => RANKS.get_or_init(launched(config)),
        Err(error) => RANKS.get_or_init(|| refused(error)),
    };
    Some(())
}

/// Whether this NCCL calls its profiler with the ranks of communicators, and this library is that.
fn plugin_will_tell() -> bool {
    let is_named = std::env::var_os("NCCL_PROFILER_PLUGIN").is_some();
    let version = || gpu::nccl::mapped().map(|nccl| nccl.version);
    is_named && version().is_some_and(|version| version.profiler_api() >= Some(4) && !version.needs_events())
}

/// The device is used, by a process that no other door has told of so far.
pub(crate) fn begin_for(device: UsedDevice) {
    RANKS.get_or_init(|| match Config::from_env(job()) {
        Ok(Some(config)) => start(Some((config, Some(device)))),
        _ => Ranks::None,
    });
}

/// True until the first door opens.
pub(crate) fn is_undecided() -> bool {
    RANKS.get().is_none()
}

/// Whether this process is observed; nothing is begun for it.
pub(crate) fn is_observed() -> bool {
    RANKS.get().is_some_and(|ranks| *ranks != Ranks::None)
}

/// Whether no door that is open tells more than this one: a collective is told of once.
pub(crate) fn is_best(door: Door) -> bool {
    BEST.load(Ordering::Acquire) <= door as u8
}

/// The way in, by the best door so far; the driver's tells of no collective, and counts as NCCL's.
fn origin() -> String {
    let is_pytorch = BEST.load(Ordering::Acquire) == Door::PyTorch as u8;
    if is_pytorch { BY_PYTORCH.into() } else { BY_NCCL.into() }
}

fn job() -> Job {
    Job { name: program_name(), sample_unit: String::new(), parameters: 0 }
}

/// Starts the thread, and recording where the rank is known already; [`Ranks::None`] where there is no way to do it,
/// which is said.
fn start(known: Option<(Config, Option<UsedDevice>)>) -> Ranks {
    host::watch_forks();
    host::without_signals(|| start_threads(known))
}

fn start_threads(known: Option<(Config, Option<UsedDevice>)>) -> Ranks {
    let ranks = if known.is_some() { Ranks::ByLauncher } else { Ranks::ByCommunicators };
    let mut observed = Vec::new();
    if let Some((config, device)) = known {
        let (rank, world_size) = (config.rank, config.world_size);
        let agent = Agent::start(Config { origin: origin(), ..config });
        if !agent.is_enabled() {
            return Ranks::None;
        }
        let mut first = Observed::default();
        first.begin((rank, world_size), agent, device.map(|device| device.bus_id), None);
        observed.push(first);
    }
    let thread = thread::Builder::new().name("paceline-observe".into());
    let budget = Budget::from_env();
    match thread.spawn(move || Observer::new(observed, budget).run()) {
        Ok(thread) => {
            *THREAD.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
            host::at_exit(finish);
            ranks
        }
        Err(error) => {
            agent::warn(&format!("not observing this job: {error}"));
            Ranks::None
        }
    }
}

/// The script of a Python job, else the program.
fn program_name() -> String {
    let words: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
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
    /// By seat. Empty at first where no launcher says which rank this is.
    ranks: Vec<Observed>,
    entries: Vec<Entry>,
    measured: Measured,
    budget: Budget,
    /// When the newest communicator was heard of, while it is not known which ranks this process is.
    unsettled: Option<MonoNanos>,
    /// Entries that had no room since the process began.
    lost: u64,
}

impl Observer {
    fn new(ranks: Vec<Observed>, budget: Budget) -> Self {
        Self { ranks, entries: Vec::new(), measured: Measured::default(), budget, unsettled: None, lost: 0 }
    }

    fn run(mut self) {
        while !STOP.load(Ordering::Acquire) {
            self.turn();
            thread::park_timeout(TICK);
        }
        // Of a short job, too, it is told which ranks there were.
        self.unsettled = self.unsettled.map(|_| MonoNanos(0));
        self.turn();
        let outcome = |rank: Rank| {
            let failed = |how: String| format!("rank {rank} {how}");
            EXIT_CODE.get().map_or(Ok(()), |code| code.check().map_err(failed))
        };
        // Each waits for the server by itself.
        thread::scope(|scope| {
            for rank in self.ranks {
                scope.spawn(move || rank.finish(outcome));
            }
        });
    }

    fn turn(&mut self) {
        self.join();
        self.budget.keep(agent::clock::now(), self.ranks.len());
        let lost = trail::take(&mut self.entries);
        let newly = lost - std::mem::replace(&mut self.lost, lost);
        // Nobody knows whose they were.
        self.ranks.iter_mut().take(1).for_each(|rank| rank.lose(newly));
        for entry in self.entries.drain(..) {
            match entry.seat() {
                Some(seat) => {
                    if let Some(rank) = self.ranks.get_mut(usize::from(seat.0)) {
                        rank.take(entry);
                    }
                }
                None => self.ranks.iter_mut().for_each(|rank| rank.take(entry)),
            }
        }
        if let Some(first) = self.ranks.first_mut() {
            self.measured.take(|entry| first.take(entry));
        }
        self.ranks.iter_mut().for_each(Observed::place);
        // The ranks of one process train one model: their steps consist of the same collectives.
        sampling::publish(self.ranks.first().and_then(Observed::steps));
        let now = agent::clock::now();
        let has_records = self.ranks.iter().any(Observed::is_unrecorded);
        if self.unsettled.is_some_and(|since| now - since > SETTLED_NANOS || has_records) {
            self.unsettled = None;
            seats::settle(&mut self.ranks, &job());
        }
        if self.unsettled.is_none() && self.ranks.iter().any(Observed::is_unrecorded) {
            seats::complain();
        }
        self.ranks.iter_mut().for_each(Observed::record);
    }

    /// Hears of communicators that were made.
    fn join(&mut self) {
        for (seat, communicator) in NEW_COMMUNICATORS.lock().unwrap_or_else(PoisonError::into_inner).drain(..)
        {
            let at = usize::from(seat.0);
            if self.ranks.len() <= at {
                self.ranks.resize_with(at + 1, Observed::default);
            }
            self.ranks[at].join(communicator);
            if !self.ranks[at].is_recorded() {
                self.unsettled = Some(agent::clock::now());
            }
        }
    }
}
