//! The REST API. Handlers hold no state: each one reads a snapshot or asks the hub.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;
use wire::ids::{RunId, Step};
use wire::views::{ApiError, Report, RunSummary};

use super::App;
use super::answer::{aside, binary};
use super::error::Failure;
use crate::state::query::RunQuery;
use crate::state::snapshot::RunSnapshot;

/// Lists all runs, newest first.
#[utoipa::path(get, path = "/api/v1/runs", responses((status = 200, body = Vec<RunSummary>)))]
pub async fn runs(State(app): State<App>) -> Json<Vec<RunSummary>> {
    Json(app.hub.snapshot().summaries())
}

/// Returns the newest snapshot of a run. The snapshot has no report while the run is on disk only.
///
/// # Errors
/// Returns an error if the run does not exist or is set aside.
pub fn find(app: &App, run: &str) -> Result<Arc<RunSnapshot>, Failure> {
    let id = RunId::new(run)?;
    let snapshot = app.hub.snapshot();
    if let Some(reason) = snapshot.aside.get(&id) {
        return Err(Failure::Conflict(format!("run {id} is set aside and not served: {reason}")));
    }
    let found = snapshot.runs.get(&id).cloned();
    found.ok_or_else(|| Failure::NotFound(format!("there is no run \"{id}\"; GET /api/v1/runs lists them")))
}

/// Checks that a run has a rank that a request names.
///
/// # Errors
/// Returns an error with the ranks that the run has.
pub fn has_rank(run: &RunSummary, rank: u32) -> Result<(), Failure> {
    if rank < run.most_ranks {
        return Ok(());
    }
    let has = match run.most_ranks {
        0 | 1 => "only rank 0".into(),
        ranks => format!("ranks 0 to {}", ranks - 1),
    };
    Err(Failure::NotFound(format!("run {} has no rank {rank}: it has {has}", run.run)))
}

/// Returns a run with its report. A run that has left memory is read from disk.
///
/// # Errors
/// Returns an error if the run does not exist or cannot be read.
pub async fn open(app: &App, run: &str) -> Result<(Arc<RunSnapshot>, Arc<Report>), Failure> {
    let mut found = find(app, run);
    // The hub opens a run that is on disk only, or so new that no snapshot has it.
    if matches!(&found, Ok(shown) if shown.report.is_none()) || matches!(&found, Err(Failure::NotFound(_))) {
        let run = RunId::new(run)?;
        if let Some(opened) = app.hub.query(run, |reply| RunQuery::Open { reply }).await? {
            found = Ok(opened);
        }
    }
    let found = found?;
    let report =
        found.report.clone().ok_or_else(|| Failure::Busy("the run has no report yet: try again".into()))?;
    Ok((found, report))
}

/// Returns the summary of a run, as in the list of runs.
#[utoipa::path(
    get,
    path = "/api/v1/runs/{run}/summary",
    params(("run" = String, Path)),
    responses((status = 200, body = RunSummary), (status = 404, body = ApiError))
)]
pub async fn summary(State(app): State<App>, Path(run): Path<String>) -> Result<Json<RunSummary>, Failure> {
    Ok(Json(find(&app, &run)?.summary.clone()))
}

/// Returns one step of all ranks, aligned to the server's clock, in columns (`Waterfall` of the `paceline-wire` crate).
/// Records that have left memory are read from disk.
#[utoipa::path(
    get,
    path = "/api/v1/runs/{run}/steps/{step}/waterfall",
    params(("run" = String, Path), ("step" = String, Path, description = "A step number, or `latest`.")),
    responses(
        (status = 200, content_type = "application/octet-stream", body = Vec<u8>),
        (status = 404, body = ApiError),
        (status = 413, body = ApiError),
        (status = 503, body = ApiError)
    )
)]
pub async fn waterfall(
    State(app): State<App>,
    Path((run, step)): Path<(String, String)>,
) -> Result<Response, Failure> {
    let run = find(&app, &run)?.summary.run.clone();
    let wanted = match step.as_str() {
        "latest" => None,
        number => Some(Step(number.parse().map_err(|_| {
            Failure::BadRequest(format!("{number:?} is neither a step number nor `latest`"))
        })?)),
    };
    let placed = app.hub.query(run, |reply| RunQuery::Placed { step: wanted, reply }).await??;
    aside(move || placed.waterfall().encode()).await.map(binary)
}

/// Two readings of the server's clock, for two-way probes.
#[derive(Debug, Serialize, ToSchema)]
pub struct ClockReading {
    /// The server's time when the request arrived, in nanoseconds.
    received_nanos: i64,
    /// The server's time when the answer was sent, in nanoseconds.
    sent_nanos: i64,
}

/// Returns two readings of the server's clock: at the request and at the answer.
#[utoipa::path(get, path = "/api/v1/clock", responses((status = 200, body = ClockReading)))]
pub async fn clock(State(app): State<App>) -> Json<ClockReading> {
    let received_nanos = app.clock.now().0;
    Json(ClockReading { received_nanos, sent_nanos: app.clock.now().0 })
}

/// Returns the metrics in Prometheus text format.
pub async fn metrics(State(app): State<App>) -> Result<Response, Failure> {
    let can_store = app.log.can_store().await.is_ok();
    app.metrics.server.can_store.set(i64::from(can_store));
    let text = app.metrics.encode().map_err(|error| Failure::Server(error.to_string()))?;
    Ok(([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], text).into_response())
}

/// Answers 200 as long as the process is alive.
pub async fn healthz() -> &'static str {
    "ok\n"
}

/// Answers 200 if the server accepts batches of a new run, and 503 with a reason otherwise.
pub async fn readyz(State(app): State<App>) -> Response {
    if let Some(failure) = app.vitals.failure() {
        (StatusCode::SERVICE_UNAVAILABLE, format!("failed: {failure}\n")).into_response()
    } else if app.hub.is_full() {
        (StatusCode::SERVICE_UNAVAILABLE, "busy: too many batches are waiting\n").into_response()
    } else if let Err(reason) = app.log.can_store().await {
        (StatusCode::SERVICE_UNAVAILABLE, format!("cannot store batches: {reason}\n")).into_response()
    } else {
        "ready\n".into_response()
    }
}
