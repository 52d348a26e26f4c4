//! The devices of a run: their samples, and bursts, which record every kernel for a short time.

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;
use wire::ids::Rank;
use wire::request::{MAX_MILLIS, RecordingRequest};
use wire::views::{ApiError, RankBurst, RankDevice};

use super::App;
use super::api::find;
use super::error::Failure;
use crate::state::command::Command;
use crate::state::devices::Devices;

async fn devices_of(app: &App, run: &str) -> Result<Devices, Failure> {
    let run = find(app, run)?.summary.run.clone();
    Ok(app.hub.ask(|reply| Command::Devices { run, reply }).await?)
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

/// The ranks to record, and the length.
#[derive(Debug, Deserialize, IntoParams)]
pub struct BurstQuery {
    /// The rank to record. Default: all ranks.
    rank: Option<u32>,
    /// The length of the burst, in milliseconds: 1 to 5,000. Default: 1,000.
    millis: Option<u16>,
}

/// Asks ranks for a burst: to record every kernel and copy of their devices for a short time (CUPTI).
///
/// Ranks receive the request with the answer to their next batch, at most two seconds later. `GET` on the same path
/// returns the result, or the reason why nothing was recorded, with the request number of this answer.
#[utoipa::path(
    post,
    path = "/api/v1/runs/{run}/bursts",
    params(("run" = String, Path), BurstQuery),
    responses(
        (status = 202, description = "The ranks will be asked.", body = RecordingRequest),
        (status = 400, body = ApiError),
        (status = 404, body = ApiError)
    )
)]
pub async fn ask(
    State(app): State<App>,
    Path(run): Path<String>,
    Query(wanted): Query<BurstQuery>,
) -> Result<(StatusCode, Json<RecordingRequest>), Failure> {
    let run = find(&app, &run)?.summary.run.clone();
    let millis = wanted.millis.unwrap_or(1_000);
    if !(1..=MAX_MILLIS).contains(&millis) {
        return Err(Failure::BadRequest(format!("millis is {millis}, but must be 1 to {MAX_MILLIS}")));
    }
    let rank = wanted.rank.map(Rank);
    let asked = app.hub.ask(|reply| Command::AskForBurst { run, rank, millis, reply }).await?;
    let missing = || Failure::NotFound(format!("the run has no rank {}", wanted.rank.unwrap_or(0)));
    let asked = asked.ok_or_else(missing)?;
    Ok((StatusCode::ACCEPTED, Json(asked)))
}
