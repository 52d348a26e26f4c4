//! The live stream: a snapshot, then deltas, each client at its own pace. A slow browser slows nobody: it
//! sees the newest snapshot when it is ready for one, and gets the steps it has not had.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Query, State};
use axum::response::Response;
use serde::Deserialize;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use wire::ids::RunId;
use wire::views::{LiveText, Report};

use super::App;
use crate::state::snapshot::{RunSnapshot, Snapshot, columns};

/// Text frames of a run go out at most this often; step frames as they come.
const TEXT_EVERY: Duration = Duration::from_millis(250);
/// Something goes out at least this often, so that silence means trouble.
const KEEP_ALIVE: Duration = Duration::from_secs(2);
/// The list of runs changes slowly.
const RUNS_EVERY: Duration = Duration::from_secs(1);
/// A client that does not take a frame for so long is gone.
const SEND_WITHIN: Duration = Duration::from_secs(10);

/// What to stream.
#[derive(Debug, Deserialize)]
pub struct LiveQuery {
    /// A run; the list of runs when absent.
    run: Option<String>,
}

/// Upgrades to a WebSocket and streams.
pub async fn live(
    State(app): State<App>,
    Query(query): Query<LiveQuery>,
    upgrade: WebSocketUpgrade,
) -> Response {
    upgrade.on_upgrade(move |socket| async move {
        app.metrics.server.live_clients.inc();
        let mut client = Client { socket, snapshots: app.hub.subscribe() };
        // The end of a stream is the client's end; there is nobody to tell.
        let _closed = match query.run {
            Some(run) => client.stream_run(&run).await,
            None => client.stream_runs().await,
        };
        app.metrics.server.live_clients.dec();
    })
}

/// The client went away.
struct Gone;

struct Client {
    socket: WebSocket,
    snapshots: watch::Receiver<Arc<Snapshot>>,
}

impl Client {
    async fn stream_runs(&mut self) -> Result<(), Gone> {
        loop {
            let runs = self.snapshots.borrow_and_update().summaries();
            self.text(&LiveText::Runs { runs }).await?;
            self.pause(RUNS_EVERY).await?;
            self.changed(KEEP_ALIVE.saturating_sub(RUNS_EVERY)).await?;
        }
    }

    async fn stream_run(&mut self, run: &str) -> Result<(), Gone> {
        let id = RunId::new(run).ok();
        let mut sent = Sent::default();
        loop {
            let shown = id.as_ref().and_then(|id| self.snapshots.borrow_and_update().runs.get(id).cloned());
            match shown {
                Some(shown) => self.send_run(&shown, &mut sent).await?,
                None if sent.is_stale() => {
                    self.text(&LiveText::NoSuchRun { run: run.to_owned() }).await?;
                    sent.text_at = Some(Instant::now());
                }
                None => {}
            }
            self.changed(sent.text_due_in()).await?;
        }
    }

    async fn send_run(&mut self, shown: &RunSnapshot, sent: &mut Sent) -> Result<(), Gone> {
        if sent.wants_text(shown) {
            let (summary, report) = (Box::new(shown.summary.clone()), Box::new((*shown.report).clone()));
            self.text(&LiveText::Run { summary, report }).await?;
            sent.text_at = Some(Instant::now());
            sent.report = Some(shown.report.clone());
        }
        let new = sent.new_steps(shown);
        if sent.last_step.is_none() || !new.is_empty() {
            let reset = sent.last_step.is_none();
            let frame = columns(new, shown.summary.ranks_expected, reset).encode();
            self.send(Message::Binary(frame.into())).await?;
            sent.last_step = Some(new.last().map(|step| step.step.0));
        }
        Ok(())
    }

    async fn text(&mut self, text: &LiveText) -> Result<(), Gone> {
        let json = serde_json::to_string(text).map_err(|_| Gone)?;
        self.send(Message::Text(json.into())).await
    }

    async fn send(&mut self, message: Message) -> Result<(), Gone> {
        timeout(SEND_WITHIN, self.socket.send(message)).await.map_err(|_| Gone)?.map_err(|_| Gone)
    }

    /// Waits for a new snapshot, `most` at the longest.
    async fn changed(&mut self, most: Duration) -> Result<(), Gone> {
        let deadline = Instant::now() + most;
        loop {
            tokio::select! {
                changed = self.snapshots.changed() => return changed.map_err(|_| Gone),
                () = tokio::time::sleep_until(deadline) => return Ok(()),
                message = self.socket.recv() => is_open(message)?,
            }
        }
    }

    /// Waits, whatever changes.
    async fn pause(&mut self, length: Duration) -> Result<(), Gone> {
        let deadline = Instant::now() + length;
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(deadline) => return Ok(()),
                message = self.socket.recv() => is_open(message)?,
            }
        }
    }
}

/// Clients have nothing to say; what they send is read so that a close is seen.
fn is_open(message: Option<Result<Message, axum::Error>>) -> Result<(), Gone> {
    match message {
        Some(Ok(Message::Close(_)) | Err(_)) | None => Err(Gone),
        Some(Ok(_)) => Ok(()),
    }
}

/// What one client has had.
#[derive(Default)]
struct Sent {
    text_at: Option<Instant>,
    report: Option<Arc<Report>>,
    /// `None` before the first frame; `Some(None)` after one without steps.
    last_step: Option<Option<u64>>,
}

impl Sent {
    fn age(&self) -> Duration {
        self.text_at.map_or(Duration::MAX, |at| at.elapsed())
    }

    fn is_stale(&self) -> bool {
        self.age() >= KEEP_ALIVE
    }

    fn wants_text(&self, shown: &RunSnapshot) -> bool {
        let is_new = self.report.as_ref().is_none_or(|had| !Arc::ptr_eq(had, &shown.report));
        self.is_stale() || (is_new && self.age() >= TEXT_EVERY)
    }

    fn text_due_in(&self) -> Duration {
        KEEP_ALIVE.saturating_sub(self.age())
    }

    fn new_steps<'a>(&self, shown: &'a RunSnapshot) -> &'a [Arc<analysis::step::StepAnalysis>] {
        let had = self.last_step.flatten();
        let first_new = shown.steps.partition_point(|step| Some(step.step.0) <= had);
        &shown.steps[first_new..]
    }
}
