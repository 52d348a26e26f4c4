//! Captures: traces of the same steps of some ranks, by PyTorch's profiler.

use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use http_body_util::BodyExt as _;
use hyper::body::Frame;
use serde::Deserialize;
use tokio::time::timeout;
use utoipa::IntoParams;
use wire::ids::{Rank, RunId, Step};
use wire::request::TraceRequest;
use wire::views::ApiError;
use wire::views::captures::{Capture, CaptureOutcome, StoredTrace, TraceComparison};

use super::App;
use super::answer::aside;
use super::api::{find, open};
use super::error::Failure;
use super::pace::Pace;
use crate::captures::{DEFAULT_STEPS, NotAsked};
use crate::printable::one_line;
use crate::store::StoreError;

/// The longest time for a trace to arrive.
const TRACE_WITHIN: Duration = Duration::from_secs(300);
/// The longest reason of a rank that is stored, in characters.
const MAX_REASON_CHARS: usize = 300;
/// The first bytes of a compressed file.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The ranks and steps to trace.
#[derive(Debug, Deserialize, IntoParams)]
pub struct CaptureQuery {
    /// The ranks, separated by commas: 1 to 4. The first is compared with the others. Default: the culprit of the worst
    /// verdict, and a rank that no verdict names.
    ranks: Option<String>,
    /// The number of steps: 1 to 20. Default: 3.
    steps: Option<u8>,
}

/// Asks ranks for traces of the same steps, a few seconds ahead, by PyTorch's profiler.
///
/// `GET` on the same path returns the capture with the answer of each rank. The profiler slows these steps down. A rank
/// whose job has its own profiler active refuses.
#[utoipa::path(
    post,
    path = "/api/v1/runs/{run}/captures",
    params(("run" = String, Path), CaptureQuery),
    responses(
        (status = 202, description = "The ranks will be asked.", body = Capture),
        (status = 400, body = ApiError),
        (status = 404, body = ApiError),
        (status = 409, description = "The run cannot be traced.", body = ApiError)
    )
)]
pub async fn ask(
    State(app): State<App>,
    Path(run): Path<String>,
    Query(wanted): Query<CaptureQuery>,
) -> Result<(StatusCode, Json<Capture>), Failure> {
    let (shown, _) = open(&app, &run).await?;
    let ranks = wanted.ranks.as_deref().map(parse_ranks).transpose()?;
    let asked = app.captures.ask(&shown, ranks, wanted.steps.unwrap_or(DEFAULT_STEPS), false).await?;
    let capture = capture(&app, &shown.summary.run, asked.id).await?;
    Ok((StatusCode::ACCEPTED, Json(capture)))
}

fn parse_ranks(text: &str) -> Result<Vec<u32>, Failure> {
    let ranks: Result<Vec<u32>, _> = text.split(',').map(|rank| rank.trim().parse()).collect();
    ranks.map_err(|_| Failure::BadRequest(format!("ranks is {text:?}, but must be numbers such as 2,3")))
}

/// Lists the captures of a run, newest first.
#[utoipa::path(
    get,
    path = "/api/v1/runs/{run}/captures",
    params(("run" = String, Path)),
    responses((status = 200, body = Vec<Capture>), (status = 404, body = ApiError))
)]
pub async fn captures(
    State(app): State<App>,
    Path(run): Path<String>,
) -> Result<Json<Vec<Capture>>, Failure> {
    let captures = app.captures.captures(&find(&app, &run)?.summary.run);
    Ok(Json(aside(move || captures.list()).await??))
}

/// Returns the trace of a rank: a Chrome trace, compressed by gzip, which Perfetto opens.
#[utoipa::path(
    get,
    path = "/api/v1/runs/{run}/captures/{id}/ranks/{rank}",
    params(("run" = String, Path), ("id" = u64, Path), ("rank" = u32, Path)),
    responses(
        (status = 200, content_type = "application/gzip", body = Vec<u8>),
        (status = 404, body = ApiError),
        (status = 500, description = "The file is damaged.", body = ApiError)
    )
)]
pub async fn trace(
    State(app): State<App>,
    Path((run, id, rank)): Path<(String, u64, u32)>,
) -> Result<Response, Failure> {
    let run = find(&app, &run)?.summary.run.clone();
    let capture = capture(&app, &run, id).await?;
    let stored = stored(&capture, Rank(rank))?;
    let captures = app.captures.captures(&run);
    let turn = app.turns.wait().await?;
    let bytes = aside(move || captures.trace(id, Rank(rank), &stored)).await??;
    let last = stored.first_step.0 + u64::from(stored.steps.max(1)) - 1;
    let name = format!("{run}-rank-{rank}-steps-{}-{last}.trace.json.gz", stored.first_step);
    let headers = [
        (header::CONTENT_TYPE, "application/gzip".to_owned()),
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"{name}\"")),
    ];
    Ok((headers, turn.body(bytes)).into_response())
}

/// The ranks to compare.
#[derive(Debug, Deserialize, IntoParams)]
pub struct ComparedQuery {
    /// The rank to compare. Default: the first rank of the capture that has a trace.
    rank: Option<u32>,
    /// The rank that it is compared with. Default: the next one that has a trace.
    against: Option<u32>,
}

/// Compares the traces of two ranks: which operators, kernels and ranges take one of them longer per step.
#[utoipa::path(
    get,
    path = "/api/v1/runs/{run}/captures/{id}/comparison",
    params(("run" = String, Path), ("id" = u64, Path), ComparedQuery),
    responses(
        (status = 200, body = TraceComparison),
        (status = 404, description = "There are no two traces.", body = ApiError),
        (status = 500, description = "A trace cannot be read.", body = ApiError)
    )
)]
pub async fn comparison(
    State(app): State<App>,
    Path((run, id)): Path<(String, u64)>,
    Query(wanted): Query<ComparedQuery>,
) -> Result<Json<TraceComparison>, Failure> {
    let run = find(&app, &run)?.summary.run.clone();
    let capture = capture(&app, &run, id).await?;
    let rank = wanted.rank.map(Rank).or_else(|| capture.stored().next());
    let other = wanted.against.map(Rank).or_else(|| capture.stored().find(|next| Some(*next) != rank));
    let (Some(rank), Some(other)) = (rank, other) else {
        let waits = if capture.is_complete() { "" } else { " yet" };
        return Err(Failure::NotFound(format!("capture {id} has no traces of two ranks{waits}")));
    };
    for rank in [rank, other] {
        stored(&capture, rank)?;
    }
    app.captures.compare(&run, &capture, (rank, other)).await.map(Json).map_err(Failure::Server)
}

async fn capture(app: &App, run: &RunId, id: u64) -> Result<Capture, Failure> {
    let captures = app.captures.captures(run);
    let found = aside(move || captures.find(id)).await??;
    let missing = || format!("run {run} has no capture {id}; GET /api/v1/runs/{run}/captures lists them");
    found.ok_or_else(|| Failure::NotFound(missing()))
}

fn stored(capture: &Capture, rank: Rank) -> Result<StoredTrace, Failure> {
    let asked = capture.ranks.iter().find(|captured| captured.rank == rank);
    let reason = match asked.map(|captured| &captured.outcome) {
        Some(CaptureOutcome::Stored(stored)) => return Ok(*stored),
        Some(CaptureOutcome::Refused { reason }) => reason.clone(),
        Some(CaptureOutcome::Waiting) => "it has not answered yet".into(),
        None => "it was not asked".into(),
    };
    Err(Failure::NotFound(format!("capture {} has no trace of rank {rank}: {reason}", capture.id)))
}

/// What a rank says about its trace.
#[derive(Debug, Deserialize, IntoParams)]
pub struct Uploaded {
    /// The first step in the trace.
    first: u64,
    /// The number of steps in the trace.
    steps: u32,
    /// How long the profiler held the training thread to start and stop, in nanoseconds.
    pause_nanos: u64,
}

/// Receives the trace of a rank that was asked for it: at most 64 MiB, compressed by gzip. The answer is sent once the
/// trace is on disk. A rank that has already answered may repeat its answer, which changes nothing.
#[utoipa::path(
    post,
    path = "/api/v1/captures/{run}/{id}/{rank}",
    params(("run" = String, Path), ("id" = u64, Path), ("rank" = u32, Path), Uploaded),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses(
        (status = 200, description = "The trace is durable."),
        (status = 400, description = "It is not compressed by gzip.", body = ApiError),
        (status = 404, description = "The rank was not asked.", body = ApiError),
        (status = 413, description = "The trace is larger than allowed.", body = ApiError),
        (status = 503, description = "The server is busy. Try again after Retry-After.", body = ApiError)
    )
)]
pub async fn upload(
    State(app): State<App>,
    Path((run, id, rank)): Path<(String, u64, u32)>,
    Query(said): Query<Uploaded>,
    body: Body,
) -> Result<StatusCode, Failure> {
    // Not from the snapshot, which has no run before its first report.
    let (run, rank) = (RunId::new(run)?, Rank(rank));
    let busy = || Failure::Busy("too many traces arrive at the same time: try again".into());
    let _place = app.captures.may_receive().ok_or_else(busy)?;
    let is_waiting = is_waiting(&app, &run, id, rank).await?;
    let late =
        || Failure::BadRequest(format!("the trace did not arrive within {} s", TRACE_WITHIN.as_secs()));
    let received = timeout(TRACE_WITHIN, receive(&app, &run, (id, rank), said, body, is_waiting));
    received.await.map_err(|_| late())??;
    let captures = app.captures.captures(&run);
    aside(move || captures.limit()).await??;
    tokio::spawn(app.captures.clone().compare_complete(run, id));
    Ok(StatusCode::OK)
}

async fn receive(
    app: &App,
    run: &RunId,
    (id, rank): (u64, Rank),
    said: Uploaded,
    mut body: Body,
    is_waiting: bool,
) -> Result<(), Failure> {
    let receiving = is_waiting.then(|| app.captures.receive(run, id, rank));
    let (mut bytes, mut is_open, mut pace) = (0, true, Pace::default());
    while let Some(piece) = next_piece(&mut body, &mut pace).await? {
        if bytes == 0 && !piece.starts_with(&GZIP[..piece.len().min(2)]) {
            return Err(Failure::BadRequest("the trace is not compressed by gzip".into()));
        }
        bytes += piece.len() as u64;
        if bytes > TraceRequest::MAX_BYTES {
            let most = TraceRequest::MAX_BYTES >> 20;
            return Err(Failure::TooLarge(format!("the trace is larger than {most} MiB")));
        }
        if let Some(receiving) = receiving.as_ref().filter(|_| is_open) {
            is_open = receiving.add(piece).await;
        }
    }
    if bytes == 0 {
        return Err(Failure::BadRequest("the trace is empty".into()));
    }
    let Some(receiving) = receiving else { return Ok(()) };
    let Uploaded { first, steps, pause_nanos } = said;
    // The rank counts the steps of its process.
    let earlier_steps = app.hub.snapshot().runs.get(run).map_or(0, |run| run.first_step_of_attempt);
    let trace = StoredTrace {
        first_step: Step(first.saturating_add(earlier_steps)),
        steps,
        pause_nanos,
        bytes,
        crc32: 0,
    };
    receiving.finish(trace).await.map(drop).map_err(Failure::Server)
}

async fn next_piece(body: &mut Body, pace: &mut Pace) -> Result<Option<Bytes>, Failure> {
    let size = |frame: &Option<Result<Frame<Bytes>, _>>| match frame {
        Some(Ok(frame)) => frame.data_ref().map_or(0, Bytes::len),
        _ => 0,
    };
    loop {
        let frame = pace.next(body.frame(), size).await?;
        let Some(frame) = frame else { return Ok(None) };
        let frame = frame.map_err(|error| Failure::BadRequest(error.to_string()))?;
        // Anything else is a trailer.
        if let Ok(piece) = frame.into_data()
            && !piece.is_empty()
        {
            return Ok(Some(piece));
        }
    }
}

/// Receives the reason why a rank that was asked has no trace.
#[utoipa::path(
    post,
    path = "/api/v1/captures/{run}/{id}/{rank}/refusal",
    params(("run" = String, Path), ("id" = u64, Path), ("rank" = u32, Path)),
    request_body(content = String, content_type = "text/plain"),
    responses((status = 200, description = "The reason is stored."), (status = 404, body = ApiError))
)]
pub async fn refuse(
    State(app): State<App>,
    Path((run, id, rank)): Path<(String, u64, u32)>,
    reason: Bytes,
) -> Result<StatusCode, Failure> {
    // Not from the snapshot, which has no run before its first report.
    let (run, rank) = (RunId::new(run)?, Rank(rank));
    if is_waiting(&app, &run, id, rank).await? {
        let text = String::from_utf8_lossy(&reason);
        let reason = one_line(&text).chars().take(MAX_REASON_CHARS).collect();
        let captures = app.captures.captures(&run);
        aside(move || captures.refuse(id, rank, reason)).await??;
        tokio::spawn(app.captures.clone().compare_complete(run, id));
    }
    Ok(StatusCode::OK)
}

/// Returns whether a rank has not answered yet.
async fn is_waiting(app: &App, run: &RunId, id: u64, rank: Rank) -> Result<bool, Failure> {
    let capture = capture(app, run, id).await?;
    let asked = capture.ranks.iter().find(|captured| captured.rank == rank);
    let stranger = || Failure::NotFound(format!("capture {id} of run {run} does not ask rank {rank}"));
    Ok(asked.ok_or_else(stranger)?.outcome == CaptureOutcome::Waiting)
}

impl From<NotAsked> for Failure {
    fn from(error: NotAsked) -> Self {
        match error {
            NotAsked::Invalid(sentence) => Self::BadRequest(sentence),
            NotAsked::Unfit(sentence) => Self::Conflict(sentence),
            NotAsked::NoRank(sentence) => Self::NotFound(sentence),
            NotAsked::Store(error) => error.into(),
            NotAsked::Stopped(stopped) => stopped.into(),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Server(error.to_string())
    }
}
