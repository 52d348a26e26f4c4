//! Captures: asks ranks for traces, receives them, and compares them.

mod plan;

use std::collections::BTreeSet;
use std::io::Read as _;
use std::sync::Arc;

use analysis::traces;
use axum::body::Bytes;
use flate2::read::MultiGzDecoder;
use import::kineto::{self, device_steps};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;
use wire::ids::{Rank, RunId};
use wire::traces::TraceSummary;
use wire::views::captures::{Capture, CaptureOutcome, CapturedRank, StoredTrace, TraceComparison};

use crate::clock::ServerClock;
use crate::printable::one_line;
use crate::state::command::Command;
use crate::state::hub::Hub;
use crate::state::snapshot::RunSnapshot;
use crate::store::StoreError;
use crate::store::captures::{Asked, Captures, Incoming, pair};
use crate::store::directory::Layout;

pub use plan::NotAsked;

/// The number of steps of a trace if the request does not say it.
pub const DEFAULT_STEPS: u8 = 3;
/// The largest number of traces that are received at the same time.
const MAX_RECEIVING: usize = 8;
/// The largest size of a trace that is read to compare it, in bytes, uncompressed.
const MAX_PLAIN_BYTES: u64 = 2 << 30;
/// The number of pieces of a trace that wait to be written.
const MAX_WAITING: usize = 8;

/// What asks for captures and receives their traces. Clones share it.
#[derive(Clone)]
pub struct Capturing {
    hub: Hub,
    layout: Layout,
    clock: ServerClock,
    receiving: Arc<Semaphore>,
    /// One comparison is made at a time: each reads two traces.
    comparing: Arc<Semaphore>,
}

impl Capturing {
    /// Creates the captures of a server.
    #[must_use]
    pub fn new(hub: Hub, layout: Layout, clock: ServerClock) -> Self {
        Self {
            hub,
            layout,
            clock,
            receiving: Arc::new(Semaphore::new(MAX_RECEIVING)),
            comparing: Arc::new(Semaphore::new(1)),
        }
    }

    #[must_use]
    pub fn captures(&self, run: &RunId) -> Captures {
        Captures::new(self.layout.folder(run))
    }

    /// Asks ranks of a run for traces of the same steps; without `ranks`, the culprit of its worst verdict and a rank that
    /// no verdict names.
    ///
    /// # Errors
    /// Returns the reason why the ranks are not asked.
    pub async fn ask(
        &self,
        shown: &RunSnapshot,
        ranks: Option<Vec<u32>>,
        steps: u8,
        automatic: bool,
    ) -> Result<Asked, NotAsked> {
        let asked = plan::plan(shown, ranks, steps, self.clock.now(), automatic)?;
        let (captures, stored) = (self.captures(&shown.summary.run), asked.clone());
        let begun = tokio::task::spawn_blocking(move || captures.begin(&stored)).await;
        begun.map_err(|error| NotAsked::Unfit(error.to_string()))??;
        let (run, ranks, request) = (shown.summary.run.clone(), asked.ranks.clone(), asked.request());
        self.hub.send(Command::AskForTrace { run, ranks, request }).await?;
        Ok(asked)
    }

    /// Returns the permit to receive a trace; `None` if too many are being received.
    #[must_use]
    pub fn may_receive(&self) -> Option<OwnedSemaphorePermit> {
        self.receiving.clone().try_acquire_owned().ok()
    }

    /// Begins to receive the trace of a rank.
    #[must_use]
    pub fn receive(&self, run: &RunId, id: u64, rank: Rank) -> Receiving {
        let (pieces, mut arriving) = mpsc::channel::<Bytes>(MAX_WAITING);
        let (captures, attempt) = (self.captures(run), self.clock.now().0.unsigned_abs());
        let writing = tokio::task::spawn_blocking(move || {
            let mut incoming = captures.receive(id, rank, attempt)?;
            while let Some(bytes) = arriving.blocking_recv() {
                incoming.add(&bytes)?;
            }
            Ok(incoming)
        });
        Receiving { pieces, writing, id, rank }
    }

    /// Compares the traces of two ranks of a capture. Waits while another comparison is made.
    ///
    /// # Errors
    /// Returns the reason why a trace cannot be read.
    pub async fn compare(
        &self,
        run: &RunId,
        capture: &Capture,
        ranks: (Rank, Rank),
    ) -> Result<TraceComparison, String> {
        let _turn = self.comparing.acquire().await.map_err(|closed| closed.to_string())?;
        let (captures, capture) = (self.captures(run), capture.clone());
        let compared = tokio::task::spawn_blocking(move || compare(&captures, &capture, ranks)).await;
        compared.map_err(|error| error.to_string())?
    }

    /// Compares the first two ranks of a capture, as evidence, once all of its ranks have answered.
    pub async fn compare_complete(self, run: RunId, id: u64) {
        let captures = self.captures(&run);
        let found = tokio::task::spawn_blocking(move || captures.find(id)).await;
        let Ok(Ok(Some(capture))) = found else { return };
        let Some(ranks) = pair(&capture).filter(|_| capture.is_complete()) else { return };
        match self.compare(&run, &capture, ranks).await {
            Ok(compared) => {
                let compared = Box::new(compared);
                // A server that stops needs no evidence.
                let _stopped = self.hub.send(Command::Traced { run, compared }).await;
            }
            Err(error) => {
                tracing::warn!(%run, capture = id, %error, "the traces of this capture cannot be compared");
            }
        }
    }

    /// Asks for traces by itself, once for each rank whose compute makes a run slow, until the server stops.
    pub async fn trace_verdicts(self) {
        let (mut snapshots, mut asked) = (self.hub.subscribe(), BTreeSet::new());
        loop {
            let snapshot = snapshots.borrow_and_update().clone();
            asked.retain(|(run, _)| snapshot.runs.contains_key(run));
            for (id, shown) in &snapshot.runs {
                let suspect = shown.report.as_deref().and_then(plan::slow_compute);
                let Some(key) = suspect.map(|rank| (id.clone(), rank)) else { continue };
                if !shown.summary.state.has_ended()
                    && asked.insert(key)
                    && let Err(reason) = self.ask(shown, None, DEFAULT_STEPS, true).await
                {
                    tracing::info!(run = %id, %reason, "no traces are made because of the verdict on this run");
                }
            }
            if snapshots.changed().await.is_err() {
                return;
            }
        }
    }
}

fn compare(
    captures: &Captures,
    capture: &Capture,
    (rank, against): (Rank, Rank),
) -> Result<TraceComparison, String> {
    if let Some(known) = captures.comparison(capture.id, (rank, against)) {
        return Ok(known);
    }
    let (own, other) = (summary(captures, capture, rank)?, summary(captures, capture, against)?);
    let is_it = |captured: &&CapturedRank| captured.rank == rank;
    let first = match capture.ranks.iter().find(is_it).map(|captured| &captured.outcome) {
        Some(CaptureOutcome::Stored(stored)) => stored.first_step,
        _ => capture.first_step,
    };
    let mut compared = traces::compare((rank, &own), (against, &other), first);
    // Names come from the job.
    for row in &mut compared.rows {
        row.name = one_line(&row.name).into_owned();
    }
    captures.add_comparison(capture.id, &compared).map_err(|error| error.to_string())?;
    Ok(compared)
}

fn summary(captures: &Captures, capture: &Capture, rank: Rank) -> Result<TraceSummary, String> {
    let named = |error: String| format!("rank {rank}: {error}");
    let stored = capture.ranks.iter().find_map(|captured| match &captured.outcome {
        CaptureOutcome::Stored(stored) if captured.rank == rank => Some(stored),
        _ => None,
    });
    let stored = stored.ok_or_else(|| named("there is no trace".into()))?;
    let bytes = captures.trace(capture.id, rank, stored).map_err(|error| named(error.to_string()))?;
    let plain = MultiGzDecoder::new(&bytes[..]).take(MAX_PLAIN_BYTES);
    let trace = kineto::read(plain).map_err(|error| named(error.to_string()))?;
    // What is missing of one of two traces would seem to differ.
    if let Some(remark) = trace.remarks.sentences().into_iter().next() {
        return Err(named(remark));
    }
    if trace.steps.is_empty() {
        return Err(named("the trace marks no step (ProfilerStep#N)".into()));
    }
    let steps = device_steps(&trace);
    Ok(kineto::summary(&trace, &steps.iter().collect::<Vec<_>>()))
}

/// A trace that is being received. If the value is dropped, what was received is removed.
pub struct Receiving {
    pieces: mpsc::Sender<Bytes>,
    writing: JoinHandle<Result<Incoming, StoreError>>,
    id: u64,
    rank: Rank,
}

impl Receiving {
    /// Adds a piece. Returns false if the disk no longer takes any; [`Self::finish`] says why.
    pub async fn add(&self, piece: Bytes) -> bool {
        self.pieces.send(piece).await.is_ok()
    }

    /// Stores the trace, which is durable then.
    ///
    /// # Errors
    /// Returns the reason why it is not stored.
    pub async fn finish(self, trace: StoredTrace) -> Result<StoredTrace, String> {
        let Self { pieces, writing, id, rank } = self;
        drop(pieces);
        let incoming =
            writing.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        let finished = tokio::task::spawn_blocking(move || incoming.finish(id, rank, trace)).await;
        finished.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
    }
}
