//! A running server: directory, log, hub, door; started by `paceline serve` and by `paceline run`.

use std::collections::BTreeSet;
use std::fs::{DirBuilder, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
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
use wire::views::RunState;

use crate::clock::ServerClock;
use crate::http::connections;
use crate::http::guard::Guard;
use crate::http::ingest::Room;
use crate::http::{self, App};
use crate::metrics::Metrics;
use crate::state::collection::{Collection, Replayed};
use crate::state::hub::Hub;
use crate::state::snapshot::Snapshot;
use crate::store::directory::{Held, Layout};
use crate::store::log::Log;
use crate::store::log::writer::{Writer, most_open};
use crate::store::recovery;
use crate::store::replay;
use crate::store::sealer::{Closed, Sealer};
use crate::vitals::Vitals;

/// Requests under way get this long when the server stops.
const REQUEST_GRACE: Duration = Duration::from_millis(500);
/// And logs that are being sealed this long.
const SEAL_GRACE: Duration = Duration::from_secs(5);

/// How to serve.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The data directory.
    pub data: PathBuf,
    /// What clients must show; needed beyond loopback.
    pub token: Option<String>,
    /// Names, beside addresses, under which the server may be called.
    pub host_names: Vec<String>,
}

/// A server that runs until it is stopped.
pub struct Server {
    /// Where it listens, as a browser writes it: `http://127.0.0.1:8080`.
    pub address: String,
    /// The task that owns the runs.
    pub hub: Hub,
    /// Whether all its parts work.
    pub vitals: Vitals,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
    closing: JoinHandle<()>,
    sealing: std::thread::JoinHandle<()>,
    // Last, so that the directory is released when everything else has ended.
    _held: Held,
}

impl Server {
    /// Takes the directory, replays its runs, and listens.
    ///
    /// # Errors
    /// When the address or the directory cannot be had, or the address is beyond loopback and there is no
    /// token.
    pub async fn start(options: Options) -> anyhow::Result<Self> {
        check_exposure(&options)?;
        make_private(&options.data)?;
        let layout = Layout::new(&options.data);
        let mut held = Held::acquire(layout.clone())?;
        let clock = held.clock;
        let metrics = Metrics::new();
        let vitals = Vitals::default();
        let ((runs, unsealed), runs_at) = (replay_all(&layout, clock).await?, layout.clone());
        let (sealer, sealing) =
            Sealer::start(layout.clone(), &vitals).context("cannot start the sealer's thread")?;
        sealer.seal_later(unsealed);
        let writer = Writer::new(layout).holding_open(most_open(files_allowed()));
        let log = Log::start(writer, metrics.server.clone(), sealer, &vitals)
            .context("cannot start the log's thread")?;
        let listener = TcpListener::bind(options.listen)
            .await
            .with_context(|| format!("cannot listen on {}: choose another with --listen", options.listen))?;
        let address = format!("http://{}", listener.local_addr()?);
        held.announce(&address)?;
        let guard = Guard {
            host_names: options.host_names,
            loopback_only: options.listen.ip().is_loopback(),
            token: options.token,
        };
        let over = runs.over();
        let hub = Hub::start(runs, clock, metrics.clone(), &vitals, Some(runs_at));
        let closing = tokio::spawn(close_ended(hub.clone(), log.clone(), over));
        let (stop, stopping) = watch::channel(false);
        let app = App {
            hub: hub.clone(),
            log,
            metrics,
            clock,
            guard: Arc::new(guard),
            vitals: vitals.clone(),
            room: Room::default(),
            stopping: stopping.clone(),
        };
        let task = tokio::spawn(connections::serve(listener, http::router(app), files_allowed(), stopping));
        Ok(Self { address, hub, vitals, stop, task, closing, sealing, _held: held })
    }

    /// Stops taking requests, waits a moment for those under way, cuts live streams, and seals what has ended.
    pub async fn stop(self) {
        let Self { stop, mut task, closing, sealing, hub, _held, .. } = self;
        stop.send_replace(true);
        if tokio::time::timeout(REQUEST_GRACE, &mut task).await.is_err() {
            task.abort();
            let _aborted = task.await;
        }
        closing.abort();
        let _aborted = closing.await;
        drop(hub);
        // The log ends with its last handle, the sealer with the log. What it does not finish in time is
        // sealed at the next start.
        let joined = tokio::task::spawn_blocking(move || sealing.join());
        let _in_time = tokio::time::timeout(SEAL_GRACE, joined).await;
    }
}

/// How many files this process may have open.
fn files_allowed() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

/// Lets this process have as many files open as it may ask for: a connection is one, and so is a log. For a server alone:
/// jobs inherit the limit.
pub fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    // Where this is refused the limit stays, and connections are bounded by it.
    let _refused = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// What jobs say of themselves is for their user: the directory and all in it are closed to others.
fn make_private(data: &Path) -> anyhow::Result<()> {
    let runs = data.join("runs");
    let context = || format!("cannot make the data directory {}", data.display());
    DirBuilder::new().recursive(true).mode(0o700).create(&runs).with_context(context)?;
    std::fs::set_permissions(&runs, Permissions::from_mode(0o700)).with_context(context)
}

/// Files of this process are its user's alone. For a server alone: jobs inherit it.
pub fn close_files_to_others() {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
}

fn check_exposure(options: &Options) -> anyhow::Result<()> {
    if !options.listen.ip().is_loopback() && options.token.is_none() {
        bail!(
            "{} can be reached from other machines: give a token with --token-file or PACELINE_TOKEN, or listen on \
             127.0.0.1",
            options.listen
        );
    }
    if options.token.as_deref().is_some_and(|token| token.len() < 8 || !token.bytes().all(is_token_byte)) {
        bail!(
            "the token needs at least 8 characters of A-Z a-z 0-9 - . _ ~ (it travels in headers and cookies)"
        );
    }
    Ok(())
}

fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// Replays all runs, before any log is written to. Returns the logs of runs that are over, to be sealed.
async fn replay_all(layout: &Layout, clock: ServerClock) -> anyhow::Result<(Collection, Vec<Closed>)> {
    let layout = layout.clone();
    let work = move || {
        let (mut runs, mut unsealed) = (Collection::default(), Vec::new());
        let replayed = |id: &RunId| (id.clone(), replay_one(&layout, id, clock));
        replay::each(&layout, replayed, |(id, replayed)| match replayed {
            Some(Ok(run)) => {
                if let Replayed::Over(..) = &run {
                    unsealed.extend(logs(&layout, id));
                }
                runs.add(run);
            }
            Some(Err(reason)) => {
                tracing::error!(run = %id, %reason, "this run cannot be read: it is not shown, and takes no batches");
                runs.set_aside(id, reason);
            }
            None => {}
        })?;
        Ok::<_, anyhow::Error>((runs, unsealed))
    };
    tokio::task::spawn_blocking(work).await.context("reading the data directory failed")?
}

fn replay_one(layout: &Layout, id: &RunId, clock: ServerClock) -> Option<Result<Replayed, String>> {
    recovery::cut_and_say(layout, id);
    let of = |run| catch_unwind(AssertUnwindSafe(|| Replayed::of(run, clock.now())));
    let run = replay::guarded_run(layout, id)?;
    Some(run.and_then(|run| of(run).map_err(|_| "summing it up fails: this is a defect of Paceline".into())))
}

/// The logs of a run that is over, if there are any that are not sealed.
fn logs(layout: &Layout, run: RunId) -> Option<Closed> {
    match layout.folder(&run).logs() {
        Ok(logs) => logs.last().map(|&last| Closed { run, last }),
        Err(error) => {
            tracing::warn!(%run, %error, "its logs could not be listed, and are not sealed now");
            None
        }
    }
}

/// Closes the log of each run that ends, so that it is sealed while the server lives. Those that were over when it started
/// are `closed` already.
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

/// Runs that have ended and whose log was not closed for it.
fn ended_runs(snapshot: &Snapshot, closed: &BTreeSet<RunId>) -> Vec<RunId> {
    let ended = |state| matches!(state, RunState::Completed | RunState::Failed);
    let runs = snapshot.runs.iter().filter(|(id, run)| ended(run.summary.state) && !closed.contains(id));
    runs.map(|(id, _)| id.clone()).collect()
}
