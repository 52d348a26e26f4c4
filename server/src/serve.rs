//! A running server, started by `paceline serve` and `paceline run`: it holds the data directory and runs the log, the
//! hub and the HTTP listener.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{DirBuilder, Permissions};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use wire::ids::RunId;

use crate::captures::Capturing;
use crate::clock::ServerClock;
use crate::http::assets::Page;
use crate::http::connections;
use crate::http::guard::Guard;
use crate::http::large;
use crate::http::live::Streams;
use crate::http::{self, App};
use crate::imports::places::Places;
use crate::ingest::Intake;
use crate::metrics::Metrics;
use crate::state::collection::{Collection, Restored};
use crate::state::command::Command;
use crate::state::hub::Hub;
use crate::state::restore::{self, Room};
use crate::state::run::Run;
use crate::state::snapshot::Snapshot;
use crate::store::batches;
use crate::store::directory::{Held, Layout};
use crate::store::log::Log;
use crate::store::log::writer::{Writer, most_open};
use crate::store::losses::Loss;
use crate::store::recovery;
use crate::store::sealer::{Closed, Sealer};
use crate::vitals::Vitals;

/// The time that requests in progress get when the server stops.
const REQUEST_GRACE: Duration = Duration::from_millis(500);
/// The time that logs being sealed get when the server stops.
const SEAL_GRACE: Duration = Duration::from_secs(5);
/// The time between two looks for batches that someone removed from the disk.
const LOOK_FOR_LOSSES_EVERY: Duration = Duration::from_secs(5);
/// The smallest length of a token, in characters.
const MIN_TOKEN: usize = 8;
/// The largest length of a token. A request with a longer one would be refused for the size of its head.
const MAX_TOKEN: usize = 4_096;

/// The options of a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address to listen on. Port 0 selects a free port.
    pub listen: SocketAddr,
    /// The data directory.
    pub data: PathBuf,
    /// The token that clients must present. Required for an address beyond loopback.
    pub token: Option<String>,
    /// Host names, in addition to IP addresses, that requests may use for the server.
    pub host_names: Vec<String>,
    /// Whether to ask for traces because of verdicts on slow compute.
    pub auto_traces: bool,
    /// How runs are presented.
    pub presentation: Presentation,
}

/// How a server presents runs. It is the same for every server that the program starts.
#[derive(Clone, Copy, Debug)]
pub struct Presentation {
    /// The dashboard.
    pub page: Page,
    /// The share of the time, 0 to 1, below which an effect is a note instead of a verdict.
    pub notable_share: f64,
}

/// A server. It runs until [`Self::stop`].
pub struct Server {
    /// The URL that the server listens on, such as `http://127.0.0.1:8080`.
    pub address: String,
    /// The task that owns the runs.
    pub hub: Hub,
    /// The health of the server's threads and tasks.
    pub vitals: Vitals,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
    /// The tasks beside the listener.
    tasks: Vec<JoinHandle<()>>,
    sealing: std::thread::JoinHandle<()>,
    // Last, because fields are dropped in order: the directory is released after everything else.
    _held: Held,
}

impl Server {
    /// Locks the data directory, restores its runs and listens.
    ///
    /// # Errors
    /// Returns an error if the address is in use or the directory cannot be locked, or if the address is beyond
    /// loopback and there is no token.
    pub async fn start(options: Options) -> anyhow::Result<Self> {
        check_exposure(&options)?;
        make_private(&options.data)?;
        let layout = Layout::new(&options.data);
        let mut held = Held::acquire(layout.clone())?;
        let clock = held.clock;
        let metrics = Arc::new(Metrics::new());
        let vitals = Vitals::default();
        let (AllRestored { runs, unsealed, stored }, runs_at) =
            (restore_all(&layout, clock, options.presentation.notable_share).await?, layout.clone());
        let (sealer, sealing) =
            Sealer::start(layout.clone(), &vitals).context("cannot start the sealer thread")?;
        sealer.seal_later(unsealed);
        let mut writer = Writer::new(layout).holding_open(most_open(files_allowed()));
        stored.into_iter().for_each(|(run, (batches, losses))| writer.knows(run, batches, losses));
        let log = Log::start(writer, metrics.server.clone(), sealer, &vitals)
            .context("cannot start the log thread")?;
        let listener = TcpListener::bind(options.listen)
            .await
            .with_context(|| format!("cannot listen on {}: use another --listen address", options.listen))?;
        let address = format!("http://{}", listener.local_addr()?);
        held.announce(&address);
        if let Some(error) = held.unwritable() {
            tracing::error!(%error, "this server shows what is stored, and accepts no batches until it can write");
        }
        let guard = Guard {
            host_names: options.host_names,
            loopback_only: options.listen.ip().is_loopback(),
            token: options.token,
            ..Guard::default()
        };
        let ended = runs.ended_runs();
        let hub = Hub::start(runs, clock, metrics.clone(), &vitals, log.clone(), Some(runs_at.clone()));
        let intake = Intake::new(hub.clone(), metrics.server.clone(), clock);
        let mut tasks = vec![
            tokio::spawn(close_ended(hub.clone(), log.clone(), ended)),
            tokio::spawn(tell_losses(hub.clone(), log.clone())),
        ];
        let captures = Capturing::new(hub.clone(), runs_at, clock);
        tasks.extend(options.auto_traces.then(|| tokio::spawn(captures.clone().trace_verdicts())));
        let (stop, stopping) = watch::channel(false);
        let app = App {
            hub: hub.clone(),
            log,
            captures,
            page: options.presentation.page,
            metrics,
            clock,
            guard: Arc::new(guard),
            vitals: vitals.clone(),
            intake,
            turns: large::Turns::default(),
            imports: Places::default(),
            streams: Streams::default(),
            stopping: stopping.clone(),
        };
        let task = tokio::spawn(connections::serve(listener, http::router(app), files_allowed(), stopping));
        Ok(Self { address, hub, vitals, stop, task, tasks, sealing, _held: held })
    }

    /// Stops accepting requests, waits briefly for those in progress, ends live streams, and seals logs of ended runs.
    pub async fn stop(self) {
        let Self { stop, mut task, tasks, sealing, hub, _held, .. } = self;
        stop.send_replace(true);
        if tokio::time::timeout(REQUEST_GRACE, &mut task).await.is_err() {
            task.abort();
            let _aborted = task.await;
        }
        for task in tasks {
            task.abort();
            let _aborted = task.await;
        }
        drop(hub);
        // The log thread ends with its last handle, and the sealer with the log thread. Logs that are not sealed in
        // time are sealed at the next start.
        let joined = tokio::task::spawn_blocking(move || sealing.join());
        let _in_time = tokio::time::timeout(SEAL_GRACE, joined).await;
    }
}

/// Returns the number of files that this process may have open.
fn files_allowed() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

/// Raises this process's limit of open files to its maximum, because each connection and each log is a file. Only for a
/// process that is nothing but a server: jobs would inherit the limit.
pub fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    // If this fails, the limit stays and bounds the number of connections.
    let _refused = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Creates the directory of runs and closes it to other users: records of jobs are for their user only. No other user may write to the
/// data directory either, because that user could replace its files.
fn make_private(data: &Path) -> anyhow::Result<()> {
    let runs = data.join("runs");
    if !runs.is_dir() {
        let what = if data.is_dir() { "use" } else { "create" };
        let context = || format!("cannot {what} the data directory {}", data.display());
        DirBuilder::new().recursive(true).mode(0o700).create(&runs).with_context(context)?;
    }
    restrict(&runs, |mode| mode & 0o700)?;
    let owner = std::fs::metadata(&runs).map(|found| found.uid()).ok();
    if let Some(owner) = owner.filter(|owner| *owner != rustix::process::getuid().as_raw()) {
        tracing::warn!(
            "{} belongs to another user ({owner}), who can read and change what is stored: chown it",
            runs.display()
        );
    }
    // In a folder such as /tmp, others may create files, but not replace those of this user.
    restrict(data, |mode| if mode & 0o1000 == 0 { mode & !0o022 } else { mode })
}

/// Changes the permissions of a folder, if they are not as they should be.
fn restrict(folder: &Path, allowed: impl Fn(u32) -> u32) -> anyhow::Result<()> {
    let context = || {
        format!(
            "other users may write to {}, and this server cannot change that: choose another --data directory, or close it (chmod go-w)",
            folder.display()
        )
    };
    let mode = std::fs::metadata(folder).with_context(context)?.permissions().mode() & 0o7777;
    let allowed = allowed(mode);
    if mode == allowed {
        return Ok(());
    }
    match std::fs::set_permissions(folder, Permissions::from_mode(allowed)) {
        // On a read-only disk, no user can write.
        Err(error) if mode & 0o022 != 0 && error.kind() != ErrorKind::ReadOnlyFilesystem => {
            Err(error).with_context(context)
        }
        _ => Ok(()),
    }
}

/// Makes new files of this process private to its user. Only for a process that is nothing but a server: jobs would
/// inherit the umask.
pub fn close_files_to_others() {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
}

fn check_exposure(options: &Options) -> anyhow::Result<()> {
    if !options.listen.ip().is_loopback() && options.token.is_none() {
        bail!(
            "{} can be reached from other machines: set a token with --token-file or PACELINE_TOKEN, or listen on \
             127.0.0.1",
            options.listen
        );
    }
    let is_bad = |token: &str| {
        !(MIN_TOKEN..=MAX_TOKEN).contains(&token.len()) || !token.bytes().all(|byte| byte.is_ascii_graphic())
    };
    if options.token.as_deref().is_some_and(is_bad) {
        bail!(
            "the token needs {MIN_TOKEN} to {MAX_TOKEN} characters, all of them printable ASCII without spaces and line \
             breaks, because it travels in a header: make one with `head -c 32 /dev/urandom | base64`"
        );
    }
    Ok(())
}

/// What is known of all runs once they are read.
#[derive(Default)]
struct AllRestored {
    runs: Collection,
    /// The logs of ended runs, to be sealed.
    unsealed: Vec<Closed>,
    stored: Vec<(RunId, Stored)>,
}

/// The number of batches in each log or segment of a run, and what is lost.
type Stored = (BTreeMap<u32, u64>, Vec<Loss>);

/// Restores all runs before any log is written to.
async fn restore_all(layout: &Layout, clock: ServerClock, notable_share: f64) -> anyhow::Result<AllRestored> {
    let layout = layout.clone();
    let work = move || {
        let (mut all, room) = (AllRestored::default(), Room::default());
        all.runs = all.runs.judged_from(notable_share);
        let restored = |id: &RunId| (id.clone(), restore_one(&layout, id, clock, &room, notable_share));
        batches::visit_runs(&layout, restored, |(id, restored)| match restored {
            Some(Ok((run, stored))) => {
                all.stored.push((id.clone(), stored));
                if let Restored::Over(..) = &run {
                    all.unsealed.extend(logs(&layout, id));
                }
                all.runs.add(run);
            }
            Some(Err(reason)) => {
                tracing::error!(run = %id, %reason, "this run cannot be read: it is not shown and accepts no batches");
                all.runs.set_aside(id, reason);
            }
            None => {}
        })?;
        Ok::<_, anyhow::Error>(all)
    };
    tokio::task::spawn_blocking(work).await.context("cannot read the data directory")?
}

fn restore_one(
    layout: &Layout,
    id: &RunId,
    clock: ServerClock,
    room: &Room,
    notable_share: f64,
) -> Option<Result<(Restored, Stored), String>> {
    recovery::cut_and_say(layout, id);
    let classified = |run: Run| {
        let bytes = run.bytes();
        let restored = catch_unwind(AssertUnwindSafe(|| Restored::new(run, clock.now())));
        if !matches!(restored, Ok(Restored::Live(..))) {
            room.leave(bytes);
        }
        restored
    };
    let run = restore::guarded_run(layout, id, room)?;
    Some(run.and_then(|run| {
        let stored = run.stored();
        let restored = classified(run.judged_from(notable_share))
            .map_err(|_| "its summary fails: this is a defect of Paceline")?;
        Ok((restored, stored))
    }))
}

/// Returns the logs of an ended run that are not sealed, or `None` if all are.
fn logs(layout: &Layout, run: RunId) -> Option<Closed> {
    match layout.folder(&run).logs() {
        Ok(logs) => logs.last().map(|&last| Closed { run, last }),
        Err(error) => {
            tracing::warn!(%run, %error, "cannot list the logs of this run: they are sealed at the next start");
            None
        }
    }
}

/// Closes the log of each run when the run ends, so that the log is sealed while the server runs. `closed` holds the
/// runs that had ended before the server started.
async fn close_ended(hub: Hub, log: Log, mut closed: BTreeSet<RunId>) {
    let mut snapshots = hub.subscribe();
    loop {
        for run in ended_runs(&snapshots.borrow_and_update(), &closed) {
            closed.insert(run.clone());
            log.close(run);
        }
        if snapshots.changed().await.is_err() {
            return;
        }
    }
}

/// Tells the hub what someone removed from the disk. The next batch of a run would find it too, but a silent run has none.
async fn tell_losses(hub: Hub, log: Log) {
    let mut due = tokio::time::interval(LOOK_FOR_LOSSES_EVERY);
    due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        due.tick().await;
        for (run, lost) in log.find_losses().await {
            if hub.send(Command::Lost { run, lost }).await.is_err() {
                return;
            }
        }
    }
}

fn ended_runs(snapshot: &Snapshot, closed: &BTreeSet<RunId>) -> Vec<RunId> {
    let runs = snapshot.runs.iter();
    let runs = runs.filter(|(id, run)| run.summary.state.has_ended() && !closed.contains(id));
    runs.map(|(id, _)| id.clone()).collect()
}
