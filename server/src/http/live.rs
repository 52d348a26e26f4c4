//! The live stream: a snapshot of a run, then its changes. Each client is served at its own pace, so a slow browser
//! does not delay the others: when it is ready, it receives the newest snapshot and the steps that it still lacks.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::response::Response;
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, timeout};
use wire::ids::RunId;
use wire::live::view;
use wire::views::{LiveView, Report};

use super::App;
use super::connections::{ConnectionPlace, wait_for_stop};
use super::detail::kept_steps;
use super::error::Failure;
use crate::state::query::RunQuery;
use crate::state::snapshot::{RunSnapshot, Snapshot, columns};

/// The shortest time between two views of a run. Frames of steps are sent as steps arrive.
const VIEW_EVERY: Duration = Duration::from_millis(250);
/// The longest time between two messages, so that clients can treat silence as a failure.
const KEEP_ALIVE: Duration = Duration::from_secs(2);
/// The shortest time between two reports to the hub that the run is viewed.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// The shortest time between two lists of runs.
const RUNS_EVERY: Duration = Duration::from_secs(1);
/// The time limit for a client to accept a frame. A slower client is disconnected.
const SEND_WITHIN: Duration = Duration::from_secs(10);
/// The largest number of streams. A dashboard has one per page, and each stream takes a task and the buffers of a connection.
const MAX_STREAMS: usize = 512;
/// The longest silence of a client, which answers each ping. A client that reads nothing answers none: what it does not read
/// fits into the buffers of its connection for hours.
const SILENT_WITHIN: Duration = Duration::from_secs(30);
/// The number of pings in that time, so that a single late answer ends no stream.
const PINGS: u32 = 3;

/// The places for live streams.
#[derive(Clone, Debug)]
pub struct Streams {
    places: Arc<Semaphore>,
    most: usize,
    silent_within: Duration,
}

impl Default for Streams {
    fn default() -> Self {
        Self::new(MAX_STREAMS, SILENT_WITHIN)
    }
}

impl Streams {
    /// Creates places for `most` streams, whose clients are silent for at most `silent_within`.
    #[must_use]
    pub fn new(most: usize, silent_within: Duration) -> Self {
        Self { places: Arc::new(Semaphore::new(most)), most, silent_within }
    }

    fn take(&self) -> Result<OwnedSemaphorePermit, Failure> {
        let full = |_| {
            Failure::Busy(format!(
                "{} live streams are open, which is the limit of this server: close dashboards that no one looks at, or \
                 try again",
                self.most
            ))
        };
        self.places.clone().try_acquire_owned().map_err(full)
    }
}

/// The largest message or frame of a client, in bytes. Clients only send that they close.
const MAX_MESSAGE_BYTES: usize = 4 << 10;

/// The content of a live stream.
#[derive(Debug, Deserialize)]
pub struct LiveQuery {
    /// The run. Default: the list of runs.
    run: Option<String>,
}

/// Upgrades the connection to a WebSocket, and streams until the client disconnects or signs out, or the server stops.
pub async fn live(
    State(app): State<App>,
    Query(query): Query<LiveQuery>,
    place: Option<Extension<ConnectionPlace>>,
    headers: HeaderMap,
    upgrade: WebSocketUpgrade,
) -> Result<Response, Failure> {
    let stream_place = app.streams.take()?;
    let upgrade = upgrade.max_message_size(MAX_MESSAGE_BYTES).max_frame_size(MAX_MESSAGE_BYTES);
    Ok(upgrade.on_upgrade(move |socket| async move {
        // The connection and the stream hold their places as long as the stream lasts.
        let _places = (place, stream_place);
        let (snapshots, live_clients) = (app.hub.subscribe(), app.metrics.server.live_clients.clone());
        let stopped = wait_for_stop(app.stopping.clone());
        let (guard, now) = (app.guard.clone(), Instant::now());
        let mut client = Client { socket, snapshots, app, heard_at: now, asked_at: now };
        let stream = async {
            match query.run {
                Some(run) => client.stream_run(&run).await,
                None => client.stream_runs().await,
            }
        };
        live_clients.inc();
        tokio::select! {
            // A client that disconnected needs no answer.
            _closed = stream => {}
            () = stopped => {}
            () = guard.signed_out(&headers) => {}
        }
        live_clients.dec();
    }))
}

/// The error that the client has disconnected, or cannot be served any more.
struct Gone;

struct Client {
    app: App,
    socket: WebSocket,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    /// When the client was last heard from.
    heard_at: Instant,
    /// When the client was last asked to answer.
    asked_at: Instant,
}

impl Client {
    async fn stream_runs(&mut self) -> Result<(), Gone> {
        loop {
            let runs = self.snapshots.borrow_and_update().summaries();
            self.view(&LiveView::Runs { runs }).await?;
            self.pause(RUNS_EVERY).await?;
            self.changed(KEEP_ALIVE.saturating_sub(RUNS_EVERY)).await?;
        }
    }

    async fn stream_run(&mut self, run: &str) -> Result<(), Gone> {
        let id = RunId::new(run).ok();
        let mut sent = Sent::default();
        loop {
            if let Some(id) = id.as_ref().filter(|_| sent.told_at.is_none_or(|at| at.elapsed() >= TELL_EVERY))
            {
                self.app.hub.view(id.clone());
                sent.told_at = Some(Instant::now());
            }
            let shown = id.as_ref().and_then(|id| self.snapshots.borrow_and_update().runs.get(id).cloned());
            match shown {
                Some(shown) if shown.report.is_none() => self.open(&shown).await?,
                Some(shown) => self.send_run(&shown, &mut sent).await?,
                None if sent.is_stale() => {
                    self.view(&LiveView::NoSuchRun).await?;
                    sent.view_at = Some(Instant::now());
                }
                None => {}
            }
            self.changed(sent.view_due_in()).await?;
        }
    }

    /// Makes the hub read the run from disk. The next snapshot has it.
    async fn open(&mut self, shown: &RunSnapshot) -> Result<(), Gone> {
        let run = shown.summary.run.clone();
        self.app.hub.query(run, |reply| RunQuery::Open { reply }).await.map(drop).map_err(|_| Gone)
    }

    async fn send_run(&mut self, shown: &RunSnapshot, sent: &mut Sent) -> Result<(), Gone> {
        if let Some(newest) = shown.report.as_ref().filter(|report| sent.wants_view(report)) {
            let (summary, report) = (Box::new(shown.summary.clone()), Box::new((**newest).clone()));
            self.view(&LiveView::Run { summary, report }).await?;
            sent.view_at = Some(Instant::now());
            sent.report = Some(newest.clone());
        }
        if sent.last_step.is_none() {
            let last_step = self.send_kept(shown).await?;
            sent.last_step = Some(last_step);
            return Ok(());
        }
        let new = sent.new_steps(shown);
        if let Some(last) = new.last() {
            let frame = columns(new, shown.summary.most_ranks, false).encode();
            self.send(Message::Binary(frame.into())).await?;
            sent.last_step = Some(Some(last.step.0));
        }
        Ok(())
    }

    /// Sends all retained steps, which are more than a snapshot holds. Returns the last one.
    async fn send_kept(&mut self, shown: &RunSnapshot) -> Result<Option<u64>, Gone> {
        let (run, ranks) = (shown.summary.run.clone(), shown.summary.most_ranks);
        let kept = kept_steps(&self.app, run, 0, u64::MAX).await.map_err(|_| Gone)?;
        let last = kept.last().map(|step| step.step.0);
        // Encoding takes some tens of milliseconds for a large run.
        let frame = tokio::task::spawn_blocking(move || columns(&kept, ranks, true).encode());
        self.send(Message::Binary(frame.await.map_err(|_| Gone)?.into())).await?;
        Ok(last)
    }

    async fn view(&mut self, shown: &LiveView) -> Result<(), Gone> {
        let frame = view::encode(shown).map_err(|_| Gone)?;
        self.send(Message::Binary(frame.into())).await
    }

    async fn send(&mut self, message: Message) -> Result<(), Gone> {
        timeout(SEND_WITHIN, self.socket.send(message)).await.map_err(|_| Gone)?.map_err(|_| Gone)
    }

    /// Waits for a new snapshot, but at most for `most`.
    async fn changed(&mut self, most: Duration) -> Result<(), Gone> {
        self.ask().await?;
        let deadline = Instant::now() + most;
        loop {
            tokio::select! {
                changed = self.snapshots.changed() => return changed.map_err(|_| Gone),
                () = tokio::time::sleep_until(deadline) => return Ok(()),
                message = self.socket.recv() => self.hear(message)?,
            }
        }
    }

    /// Waits for `length`, even if a new snapshot is published.
    async fn pause(&mut self, length: Duration) -> Result<(), Gone> {
        self.ask().await?;
        let deadline = Instant::now() + length;
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(deadline) => return Ok(()),
                message = self.socket.recv() => self.hear(message)?,
            }
        }
    }

    /// Asks the client for an answer now and then. Returns an error if it has been silent for too long.
    async fn ask(&mut self) -> Result<(), Gone> {
        // Messages that arrived while the stream was busy count.
        while let Ok(message) = timeout(Duration::ZERO, self.socket.recv()).await {
            self.hear(message)?;
        }
        let limit = self.app.streams.silent_within;
        if self.heard_at.elapsed() > limit {
            return Err(Gone);
        }
        if self.asked_at.elapsed() >= limit / PINGS {
            self.asked_at = Instant::now();
            self.send(Message::Ping(Bytes::new())).await?;
        }
        Ok(())
    }

    fn hear(&mut self, message: Option<Result<Message, axum::Error>>) -> Result<(), Gone> {
        self.heard_at = Instant::now();
        is_open(message)
    }
}

/// Returns an error if the client has closed the stream. Other messages are ignored.
fn is_open(message: Option<Result<Message, axum::Error>>) -> Result<(), Gone> {
    match message {
        Some(Ok(Message::Close(_)) | Err(_)) | None => Err(Gone),
        Some(Ok(_)) => Ok(()),
    }
}

/// The state of one client: the newest view and step that it has received.
#[derive(Default)]
struct Sent {
    view_at: Option<Instant>,
    /// When the hub was last told that the run is viewed.
    told_at: Option<Instant>,
    report: Option<Arc<Report>>,
    /// The last step that was sent. `None` before the first frame, and `Some(None)` after a frame without steps.
    last_step: Option<Option<u64>>,
}

impl Sent {
    fn age(&self) -> Duration {
        self.view_at.map_or(Duration::MAX, |at| at.elapsed())
    }

    fn is_stale(&self) -> bool {
        self.age() >= KEEP_ALIVE
    }

    fn wants_view(&self, report: &Arc<Report>) -> bool {
        let is_new = self.report.as_ref().is_none_or(|had| !Arc::ptr_eq(had, report));
        self.is_stale() || (is_new && self.age() >= VIEW_EVERY)
    }

    fn view_due_in(&self) -> Duration {
        KEEP_ALIVE.saturating_sub(self.age())
    }

    fn new_steps<'a>(&self, shown: &'a RunSnapshot) -> &'a [Arc<analysis::step::StepAnalysis>] {
        let had = self.last_step.flatten();
        let first_new = shown.steps.partition_point(|step| Some(step.step.0) <= had);
        &shown.steps[first_new..]
    }
}
