//! The observer thread, which turns the call log into records.

mod local_ranks;
mod rank;

use std::ffi::OsStr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use agent::launcher::LauncherError;
use agent::{Agent, Budget, Config, ConfigError, Job};
use gpu::driver::UsedDevice;
use wire::batch::Instrumentation;
use wire::clock::MonoNanos;
use wire::ids::Rank;

use crate::call_log::{self, Entry, LocalRank};
use crate::host::{self, ExitCode};
use crate::sampling;
use rank::Observed;

/// The interval at which the observer thread empties the rings (see the sizing of the rings in [`call_log`]).
const TICK: Duration = Duration::from_millis(20);
/// The interval in a job that only PyTorch's hooks observe. They append a few entries per collective, so the thread can leave
/// the job's cores alone.
const SLOW_TICK: Duration = Duration::from_millis(100);
/// The time without a new communicator after which the ranks of this process count as known, in nanoseconds. Applies
/// if no launcher names the ranks: the communicator of all ranks may be created after those of subgroups.
const SETTLED_NANOS: i64 = 2_000_000_000;

/// A communicator, as NCCL describes it at creation from profiler interface 4 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Communicator {
    /// Identifies the communicator; the same on all its ranks.
    pub(crate) number: u64,
    /// The number of ranks in the communicator.
    pub(crate) size: u32,
    /// The rank in the communicator that it was created for, if reported.
    pub(crate) rank: Option<u32>,
}

/// The hooks that report collectives, the most detailed one last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Hook {
    /// PyTorch's hooks, for collectives that gloo runs.
    PyTorch = 1,
    /// NVTX ranges around NCCL's calls, which give the time of enqueueing.
    Nvtx = 2,
    /// CUDA events around NCCL's calls.
    Calls = 3,
    /// NCCL's profiler interface.
    Plugin = 4,
}

/// The source of this process's rank numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ranks {
    /// No source: the process is not observed.
    None,
    /// The launcher: the process is one rank.
    ByLauncher,
    /// The process's communicators: one rank per device, with the rank numbers that NCCL reports.
    ByCommunicators,
}

/// The most detailed hook so far, as a [`Hook`]; 0 before the first.
static BEST: AtomicU8 = AtomicU8::new(0);
static RANKS: OnceLock<Ranks> = OnceLock::new();
static THREAD: Mutex<Option<JoinHandle<()>>> = Mutex::new(None);
static STOP: AtomicBool = AtomicBool::new(false);
/// The exit code of the process, set when it ends.
static EXIT_CODE: OnceLock<ExitCode> = OnceLock::new();
/// The error that ended the job's own code, if it is known.
static ERROR: OnceLock<String> = OnceLock::new();
/// New communicators that the observer thread has not read yet.
static NEW_COMMUNICATORS: Mutex<Vec<(LocalRank, Communicator)>> = Mutex::new(Vec::new());
/// See [`poll`].
static POLLED: Mutex<Vec<Poll>> = Mutex::new(Vec::new());

/// Passes the entries that have become available since the last call.
pub(crate) type Poll = Box<dyn FnMut(&mut dyn FnMut(Entry)) + Send>;

/// Adds a source of entries about the first local rank, which the observer thread reads in every turn. Hooks use it for
/// what a device reports later than the call.
pub(crate) fn poll(source: Poll) {
    POLLED.lock().unwrap_or_else(PoisonError::into_inner).push(source);
}

/// Registers that the job communicates: a communicator was created on this thread and its device, or a collective was
/// called. Returns the local rank that the communicator belongs to.
///
/// Returns `None` if that rank is not observed: the environment names no server, or the process observes another of its
/// ranks only.
pub(crate) fn begin(hook: Hook, communicator: Option<Communicator>) -> Option<LocalRank> {
    let best = BEST.fetch_max(hook as u8, Ordering::AcqRel);
    if best == Hook::PyTorch as u8 && best < hook as u8 {
        // The thread may be in a long wait.
        wake();
    }
    if RANKS.get().is_none() {
        decide(hook, communicator)?;
    }
    let ranks = *RANKS.get()?;
    let local_rank = match (ranks, &communicator) {
        (Ranks::None, _) => return None,
        (_, None) => LocalRank::FIRST,
        (Ranks::ByLauncher, Some(communicator)) => local_ranks::only_local_rank(communicator)?,
        (Ranks::ByCommunicators, Some(communicator)) => {
            local_ranks::device_local_rank(communicator, gpu::driver::current())?
        }
    };
    if let Some(communicator) = communicator {
        NEW_COMMUNICATORS.lock().unwrap_or_else(PoisonError::into_inner).push((local_rank, communicator));
    }
    Some(local_rank)
}

/// Determines the source of rank numbers and starts observing. Returns `None` if the decision must wait for a more
/// detailed hook.
fn decide(hook: Hook, communicator: Option<Communicator>) -> Option<()> {
    let refused = |error: ConfigError| {
        agent::warn(&format!("not observing this job: {error}"));
        Ranks::None
    };
    let is_one = |config: &Config| communicator.is_none_or(|known| known.size <= config.world_size);
    let knows_rank = communicator.is_some_and(|known| known.rank.is_some());
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
            if hook < Hook::Plugin && plugin_reports_ranks() =>
        {
            return None;
        }
        Ok(Some(config)) => RANKS.get_or_init(launched(config)),
        Err(error) => RANKS.get_or_init(|| refused(error)),
    };
    Some(())
}

/// Returns whether this library is NCCL's profiler plugin and this NCCL reports the ranks of communicators to it.
fn plugin_reports_ranks() -> bool {
    let is_ours = std::env::var_os("NCCL_PROFILER_PLUGIN").is_some_and(|plugin| is_this_library(&plugin));
    let version = || gpu::nccl::mapped().map(|nccl| nccl.version);
    is_ours && version().is_some_and(|version| version.profiler_api() >= Some(4) && !version.needs_events())
}

/// Returns whether `plugin` names this library. Another tool's plugin never reports ranks to us.
fn is_this_library(plugin: &OsStr) -> bool {
    Path::new(plugin).file_name() == Some(OsStr::new("libpaceline_attach.so"))
}

/// Starts observing a process that uses `device` and has triggered no other hook so far.
pub(crate) fn begin_for(device: UsedDevice) {
    RANKS.get_or_init(|| match Config::from_env(job()) {
        Ok(Some(config)) => start(Some((config, Some(device)))),
        _ => Ranks::None,
    });
}

/// Returns true until a hook decides whether this process is observed.
pub(crate) fn is_undecided() -> bool {
    RANKS.get().is_none()
}

/// Returns whether this process is observed. Does not start observing.
pub(crate) fn is_observed() -> bool {
    RANKS.get().is_some_and(|ranks| *ranks != Ranks::None)
}

/// Returns whether no active hook is more detailed than `hook`. Only the most detailed hook reports a collective.
pub(crate) fn is_best(hook: Hook) -> bool {
    BEST.load(Ordering::Acquire) <= hook as u8
}

/// Returns whether only PyTorch's hooks observe the job so far. The CUDA hook reports no collectives and counts as NCCL's.
fn is_pytorch_alone() -> bool {
    BEST.load(Ordering::Acquire) == Hook::PyTorch as u8
}

/// Returns what records the job, by the best hook so far.
fn instrumentation() -> Instrumentation {
    if is_pytorch_alone() { Instrumentation::PyTorch } else { Instrumentation::Nccl }
}

fn job() -> Job {
    Job { name: program_name(), sample_unit: String::new(), parameters: 0 }
}

/// Starts the observer thread, and the recorder if the rank is already known. Returns [`Ranks::None`] after a warning
/// if either cannot start.
fn start(known: Option<(Config, Option<UsedDevice>)>) -> Ranks {
    host::watch_forks();
    host::block_signals(|| start_threads(known))
}

fn start_threads(known: Option<(Config, Option<UsedDevice>)>) -> Ranks {
    let ranks = if known.is_some() { Ranks::ByLauncher } else { Ranks::ByCommunicators };
    let mut observed = Vec::new();
    if let Some((config, device)) = known {
        let (rank, world_size) = (config.rank, config.world_size);
        let agent = Agent::start(Config { instrumentation: instrumentation(), ..config });
        if !agent.is_enabled() {
            return Ranks::None;
        }
        let mut first = Observed::default();
        first.begin((rank, world_size), agent, device, None);
        observed.push(first);
    }
    let thread = thread::Builder::new().name("paceline-observe".into());
    let budget = Budget::from_env();
    match thread.spawn(move || Observer::new(observed, budget).run()) {
        Ok(thread) => {
            *THREAD.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
            host::call_at_exit(finish);
            ranks
        }
        Err(error) => {
            agent::warn(&format!("not observing this job: {error}"));
            Ranks::None
        }
    }
}

/// Returns the name of the script in a Python job, otherwise the name of the program.
fn program_name() -> String {
    let words: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let script = words.iter().find(|word| word.ends_with(".py")).or(words.first());
    let stem = script.and_then(|word| Path::new(word).file_stem()).unwrap_or_default();
    stem.to_string_lossy().into_owned()
}

fn wake() {
    if let Some(thread) = &*THREAD.lock().unwrap_or_else(PoisonError::into_inner) {
        thread.thread().unpark();
    }
}

/// Records the error that ends the process, for its end-of-run message. The first one counts.
pub(crate) fn fails_with(error: &str) {
    let _first = ERROR.set(error.to_owned());
}

/// Sends the remaining records at process exit, for five seconds at most.
fn finish(code: ExitCode) {
    let _first = EXIT_CODE.set(code);
    STOP.store(true, Ordering::Release);
    let thread = THREAD.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(thread) = thread {
        thread.thread().unpark();
        // The thread does not panic. If it did, the host process must still not panic.
        let _outcome = thread.join();
    }
}

/// The state of the observer thread.
struct Observer {
    /// Ranks by local rank. Initially empty where no launcher names the rank.
    ranks: Vec<Observed>,
    entries: Vec<Entry>,
    budget: Budget,
    /// When the newest communicator of an unrecorded rank was read; `None` when no rank waits for its number.
    unsettled: Option<MonoNanos>,
    /// Entries dropped for lack of space since the process started.
    lost: u64,
}

impl Observer {
    fn new(ranks: Vec<Observed>, budget: Budget) -> Self {
        Self { ranks, entries: Vec::new(), budget, unsettled: None, lost: 0 }
    }

    fn run(mut self) {
        while !STOP.load(Ordering::Acquire) {
            self.turn();
            thread::park_timeout(if is_pytorch_alone() { SLOW_TICK } else { TICK });
        }
        // A short job may end before its communicators count as settled: determine the ranks now.
        self.unsettled = self.unsettled.map(|_| MonoNanos(0));
        self.turn();
        self.ranks.iter_mut().for_each(|rank| {
            rank.settle();
            rank.record();
        });
        while self.ranks.first().and_then(Observed::send_layout).is_some() {}
        let outcome = |rank: Rank| {
            let failed = |how: String| match ERROR.get() {
                Some(error) => format!("rank {rank} {how} ({error})"),
                None => format!("rank {rank} {how}"),
            };
            EXIT_CODE.get().map_or(Ok(()), |code| code.check().map_err(failed))
        };
        // Each rank waits for the server independently.
        thread::scope(|scope| {
            for rank in self.ranks {
                scope.spawn(move || rank.finish(outcome));
            }
        });
    }

    fn turn(&mut self) {
        self.join();
        sampling::keep(&mut self.budget, agent::clock::now(), self.ranks.len());
        let lost = call_log::drain(&mut self.entries);
        let newly = lost - std::mem::replace(&mut self.lost, lost);
        // The rank that the dropped entries belong to is unknown: count them for the first one.
        self.ranks.iter_mut().take(1).for_each(|rank| rank.lose(newly));
        for entry in self.entries.drain(..) {
            match entry.local_rank() {
                Some(local_rank) => {
                    if let Some(rank) = self.ranks.get_mut(usize::from(local_rank.0)) {
                        rank.ingest(entry);
                    }
                }
                None => self.ranks.iter_mut().for_each(|rank| rank.ingest(entry)),
            }
        }
        if let Some(first) = self.ranks.first_mut() {
            let mut polled = POLLED.lock().unwrap_or_else(PoisonError::into_inner);
            polled.iter_mut().for_each(|poll| poll(&mut |entry| first.ingest(entry)));
        }
        self.ranks.iter_mut().for_each(Observed::place);
        // All ranks of a process train the same model, so their steps consist of the same collectives.
        sampling::publish(self.ranks.first().and_then(Observed::steps));
        let now = agent::clock::now();
        let has_records = self.ranks.iter().any(Observed::is_unrecorded);
        if self.unsettled.is_some_and(|begin| now - begin > SETTLED_NANOS || has_records) {
            self.unsettled = None;
            local_ranks::settle(&mut self.ranks, &job());
        }
        if self.unsettled.is_none() && self.ranks.iter().any(Observed::is_unrecorded) {
            local_ranks::complain();
        }
        self.ranks.iter_mut().for_each(Observed::record);
        // The layouts are those of the process, whose ranks train the same model.
        self.ranks.first().and_then(Observed::send_layout);
    }

    /// Passes new communicators to their ranks.
    fn join(&mut self) {
        for (local_rank, communicator) in
            NEW_COMMUNICATORS.lock().unwrap_or_else(PoisonError::into_inner).drain(..)
        {
            let at = usize::from(local_rank.0);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plugin_of_another_tool_is_not_this_library() {
        assert!(is_this_library(OsStr::new("/opt/paceline/libpaceline_attach.so")));
        assert!(is_this_library(OsStr::new("libpaceline_attach.so")));
        for other in ["/usr/lib/libnccl-profiler-inspector.so", "inspector", ""] {
            assert!(!is_this_library(OsStr::new(other)), "{other}");
        }
    }
}
