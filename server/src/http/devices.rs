//! The devices of a run: their samples, and bursts, which record every kernel for a short time.

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use wire::request::RecordingRequest;
use wire::views::{ApiError, RankBurst, RankDevice};

use super::App;
use super::api::find;
use super::error::Failure;
use super::recording::RecordingQuery;
use crate::state::command::Recording;
use crate::state::query::RunQuery;
use crate::state::run::devices::Devices;

/// How long a burst is if the request does not say it, in milliseconds.
const DEFAULT_MILLIS: u16 = 1_000;

async fn devices_of(app: &App, run: &str) -> Result<Devices, Failure> {
    let run = find(app, run)?.summary.run.clone();
    Ok(app.hub.query(run, |reply| RunQuery::Devices { reply }).await?)
}

/// Returns the newest sample of each rank's device: utilization, clocks and the reasons why they are lowered, power,
/// memory. Ranks whose device cannot be sampled are left out.
#[utoipa::path(
    get,
    path = "/api/v1/runs/{run}/devices",
    params(("run" = String, Path)),
    responses((status = 200, body = Vec<RankDevice>), (status = 404, body = ApiError))
)]
pub async fn devices(
    State(app): State<App>,
    Path(run): Path<String>,
) -> Result<Json<Vec<RankDevice>>, Failure> {
    Ok(Json(devices_of(&app, &run).await?.samples))
}

/// Returns the newest burst of each rank that answered a request: top kernels, exact overlap and idle time, or the
/// reason why nothing was recorded.
#[utoipa::path(
    get,
    path = "/api/v1/runs/{run}/bursts",
    params(("run" = String, Path)),
    responses((status = 200, body = Vec<RankBurst>), (status = 404, body = ApiError))
)]
pub async fn bursts(
    State(app): State<App>,
    Path(run): Path<String>,
) -> Result<Json<Vec<RankBurst>>, Failure> {
    Ok(Json(devices_of(&app, &run).await?.bursts))
}

/// Asks ranks for a burst: to record every kernel and copy of their devices for a short time (CUPTI), 1,000 ms by default.
///
/// Ranks receive the request with the answer to their next batch, at most two seconds later. `GET` on the same path
/// returns the result, or the reason why nothing was recorded, with the request number of this answer.
#[utoipa::path(
    post,
    path = "/api/v1/runs/{run}/bursts",
    params(("run" = String, Path), RecordingQuery),
    responses(
        (status = 202, description = "The ranks will be asked.", body = RecordingRequest),
        (status = 400, body = ApiError),
        (status = 404, body = ApiError)
    )
)]
pub async fn ask(
    State(app): State<App>,
    Path(run): Path<String>,
    Query(wanted): Query<RecordingQuery>,
) -> Result<(StatusCode, Json<RecordingRequest>), Failure> {
    wanted.ask(&app, &run, Recording::Burst, DEFAULT_MILLIS).await
}
