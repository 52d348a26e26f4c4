//! Captures: which ranks and steps to ask for, and the traces that ranks send.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::sync::Arc;

use analysis::traces::{self, Summary};
use axum::body::Bytes;
use flate2::read::MultiGzDecoder;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;
use wire::clock::ServerNanos;
use wire::ids::{Rank, RunId, Step};
use wire::request::TraceRequest;
use wire::views::captures::{Capture, CaptureOutcome, CapturedRank, StoredTrace, TraceComparison};
use wire::views::{AttributeKind, Cause, Culprit, Report, VerdictState};

use crate::clock::ServerClock;
use crate::printable::one_line;
use crate::state::command::Command;
use crate::state::hub::{Hub, Stopped};
use crate::state::snapshot::RunSnapshot;
use crate::store::StoreError;
use crate::store::captures::{Asked, Captures, Incoming, pair};
use crate::store::directory::Layout;

/// The number of steps of a trace if the request does not say it.
pub const DEFAULT_STEPS: u8 = 3;
/// How far ahead of the newest known step the first one is, in nanoseconds: a request reaches a rank within two seconds.
const AHEAD_NANOS: f64 = 3e9;
/// The longest time for which the newest known step may be late, in nanoseconds. A job that has made no step for longer does
/// something else.
const MOST_LATE_NANOS: i64 = 5_000_000_000;
/// The number of newest steps whose pace counts.
const NEWEST_STEPS: usize = 32;
/// The number of steps that the first step is ahead in addition.
const AHEAD_STEPS: u64 = 2;
/// The largest number of traces that are received at the same time.
const MAX_RECEIVING: usize = 8;
/// The largest size of a trace that is read to compare it, in bytes, uncompressed.
const MAX_PLAIN_BYTES: u64 = 2 << 30;
/// The number of pieces of a trace that wait to be written.
const MAX_WAITING: usize = 8;

/// The reason why ranks are not asked.
#[derive(Debug, thiserror::Error)]
pub enum NotAsked {
    /// The request is not valid.
    #[error("{0}")]
    Invalid(String),
    /// The run cannot be traced now.
    #[error("{0}")]
    Unfit(String),
    /// There is no such rank.
    #[error("{0}")]
    NoRank(String),
    /// The capture cannot be stored.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The server stops.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

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

    /// Returns the captures of a run.
    #[must_use]
    pub fn of(&self, run: &RunId) -> Captures {
        Captures::of(self.layout.folder(run))
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
        let asked = plan(shown, ranks, steps, self.clock.now(), automatic)?;
        let (captures, stored) = (self.of(&shown.summary.run), asked.clone());
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
        let (captures, attempt) = (self.of(run), self.clock.now().0.unsigned_abs());
        let writing = tokio::task::spawn_blocking(move || {
            let mut incoming = captures.receive(id, rank, attempt)?;
            while let Some(bytes) = arriving.blocking_recv() {
                incoming.add(&bytes)?;
            }
            Ok(incoming)
        });
        Receiving { pieces, writing, id, rank }
    }
}

impl Capturing {
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
        let (captures, capture) = (self.of(run), capture.clone());
        let compared = tokio::task::spawn_blocking(move || compare(&captures, &capture, ranks)).await;
        compared.map_err(|error| error.to_string())?
    }

    /// Compares the first two ranks of a capture, as evidence, once all of its ranks have answered.
    pub async fn compare_complete(self, run: RunId, id: u64) {
        let captures = self.of(&run);
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
                let suspect = shown.report.as_deref().and_then(slow_compute);
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
    let is_it = |one: &&CapturedRank| one.rank == rank;
    let first = match capture.ranks.iter().find(is_it).map(|one| &one.outcome) {
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

fn summary(captures: &Captures, capture: &Capture, rank: Rank) -> Result<Summary, String> {
    let of_rank = |error: String| format!("rank {rank}: {error}");
    let stored = capture.ranks.iter().find_map(|one| match &one.outcome {
        CaptureOutcome::Stored(stored) if one.rank == rank => Some(stored),
        _ => None,
    });
    let stored = stored.ok_or_else(|| of_rank("there is no trace".into()))?;
    let bytes = captures.trace(capture.id, rank, stored).map_err(|error| of_rank(error.to_string()))?;
    traces::summary(MultiGzDecoder::new(&bytes[..]).take(MAX_PLAIN_BYTES))
        .map_err(|error| of_rank(error.to_string()))
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

/// Decides which steps of which ranks to ask for.
fn plan(
    shown: &RunSnapshot,
    ranks: Option<Vec<u32>>,
    steps: u8,
    now: ServerNanos,
    automatic: bool,
) -> Result<Asked, NotAsked> {
    let summary = &shown.summary;
    let run = &summary.run;
    if !(1..=TraceRequest::MAX_STEPS).contains(&steps) {
        let most = TraceRequest::MAX_STEPS;
        return Err(NotAsked::Invalid(format!("steps is {steps}, but must be 1 to {most}")));
    }
    if summary.state.has_ended() {
        return Err(NotAsked::Unfit(format!("run {run} has ended: only a running job can be traced")));
    }
    let report = shown.report.as_deref();
    let (Some(report), Some(newest)) = (report, summary.last_step) else {
        return Err(NotAsked::Unfit(format!("run {run} has no complete step yet: try again once it has")));
    };
    let is_torch = |name: &str, kind| kind == AttributeKind::Software && name == "torch";
    if !report.attributes.iter().any(|one| is_torch(&one.name, one.kind)) {
        return Err(NotAsked::Unfit(format!(
            "no rank of run {run} has reported PyTorch, whose profiler makes the traces: start the job with `paceline \
             run torchrun ...` or `paceline attach`, or call paceline.watch()"
        )));
    }
    let ranks = ranks.unwrap_or_else(|| usual_ranks(report));
    let mut distinct = ranks.clone();
    distinct.sort_unstable();
    distinct.dedup();
    if ranks.is_empty() || distinct.len() != ranks.len() || ranks.len() > TraceRequest::MAX_RANKS {
        let most = TraceRequest::MAX_RANKS;
        return Err(NotAsked::Invalid(format!("ranks must name 1 to {most} different ranks")));
    }
    if let Some(missing) = ranks.iter().find(|&&rank| rank >= summary.ranks_expected) {
        return Err(NotAsked::NoRank(format!("run {run} has no rank {missing}")));
    }
    let newest = shown.steps.last().map_or(newest, |step| newest.max(step.step.0));
    let first = Step(newest + steps_ahead(shown, report, now));
    let id = TraceRequest::at(now, first, steps).number;
    Ok(Asked { id, first_step: first, steps, automatic, ranks: ranks.into_iter().map(Rank).collect() })
}

/// Returns how many steps after the newest known one no rank has begun when the request reaches it.
fn steps_ahead(shown: &RunSnapshot, report: &Report, now: ServerNanos) -> u64 {
    let newest = &shown.steps[shown.steps.len().saturating_sub(NEWEST_STEPS)..];
    let ends: Vec<(Step, ServerNanos)> =
        newest.iter().filter_map(|step| Some((step.step, step.window?.1))).collect();
    let usual = report.period_nanos.value().unwrap_or(AHEAD_NANOS);
    let (period, late) = match (ends.first(), ends.last()) {
        (Some(first), Some(last)) => {
            let steps = last.0.0.saturating_sub(first.0.0);
            let recent = if steps > 0 { (last.1 - first.1) as f64 / steps as f64 } else { usual };
            (usual.min(recent), (now - last.1).clamp(0, MOST_LATE_NANOS))
        }
        _ => (usual, 0),
    };
    ((AHEAD_NANOS + late as f64) / period.max(1.0)).ceil() as u64 + AHEAD_STEPS
}

/// Returns the culprit of the worst verdict that is not over, if it computes slowly.
fn slow_compute(report: &Report) -> Option<u32> {
    let worst = report.verdicts.iter().find(|verdict| verdict.state != VerdictState::Resolved)?;
    let is_it = matches!(worst.cause, Cause::Compute | Cause::MoreWork | Cause::Host | Cause::Processor);
    worst.culprit.as_ref().filter(|_| is_it)?.ranks().first().copied()
}

/// Returns the culprit of the worst verdict that is not over and a rank that no verdict names; ranks 0 and 1 if no rank
/// stands out.
fn usual_ranks(report: &Report) -> Vec<u32> {
    let present = report.verdicts.iter().filter(|verdict| verdict.state != VerdictState::Resolved);
    let blamed: Vec<u32> =
        present.filter_map(|verdict| verdict.culprit.as_ref()).flat_map(Culprit::ranks).copied().collect();
    let others = (0..report.ranks).filter(|rank| !blamed.contains(rank));
    blamed.first().copied().into_iter().chain(others).take(2).collect()
}
