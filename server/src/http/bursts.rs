//! Bursts: asking ranks for every kernel of a short while, and what came of it.

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;
use wire::burst::{BurstRequest, MOST_MILLIS};
use wire::ids::Rank;
use wire::views::{ApiError, RankBurst};

use super::App;
use super::api::find;
use super::error::Failure;
use crate::state::hub::Command;

/// Which ranks, and how long.
#[derive(Debug, Deserialize, IntoParams)]
pub struct Wanted {
    /// The rank; all of them where it is left out.
    rank: Option<u32>,
    /// How long to record, in milliseconds: 1 to 5,000, a second where it is left out.
    millis: Option<u16>,
}

/// Asks ranks to record every kernel and copy of their devices for a short while (CUPTI). They hear of it with their next
/// batch, two seconds later at most; what came of it, or why nothing did, is in `GET` of the same path under the number
/// that is answered here.
#[utoipa::path(
    post,
    path = "/api/v1/runs/{run}/bursts",
    params(("run" = String, Path), Wanted),
    responses(
        (status = 202, description = "Asked.", body = BurstRequest),
        (status = 400, body = ApiError),
        (status = 404, body = ApiError)
    )
)]
pub async fn ask(
    State(app): State<App>,
    Path(run): Path<String>,
    Query(wanted): Query<Wanted>,
) -> Result<(StatusCode, Json<BurstRequest>), Failure> {
    let run = find(&app, &run)?.summary.run.clone();
    let millis = wanted.millis.unwrap_or(1_000);
    if !(1..=MOST_MILLIS).contains(&millis) {
        return Err(Failure::BadRequest(format!("millis is {millis}: 1 to {MOST_MILLIS} can be recorded")));
    }
    let rank = wanted.rank.map(Rank);
    let asked = app.hub.ask(|reply| Command::AskForBurst { run, rank, millis, reply }).await?;
    let missing = || Failure::NotFound(format!("the run has no rank {}", wanted.rank.unwrap_or(0)));
    Ok((StatusCode::ACCEPTED, Json(asked.ok_or_else(missing)?)))
}

/// The newest burst of each rank that answered one: top kernels, exact overlap, idle time; or why there is none.
#[utoipa::path(
    get,
    path = "/api/v1/runs/{run}/bursts",
    params(("run" = String, Path)),
    responses((status = 200, body = Vec<RankBurst>), (status = 404, body = ApiError))
)]
pub async fn newest(
    State(app): State<App>,
    Path(run): Path<String>,
) -> Result<Json<Vec<RankBurst>>, Failure> {
    let run = find(&app, &run)?.summary.run.clone();
    Ok(Json(app.hub.ask(|reply| Command::Bursts { run, reply }).await?))
}
