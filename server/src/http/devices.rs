//! Devices: what the ranks' devices say, and bursts, which ask ranks for every kernel of a short while.

mod markup;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use serde::Deserialize;
use utoipa::IntoParams;
use wire::burst::{BurstRequest, MOST_MILLIS};
use wire::ids::{Rank, RunId};
use wire::views::{ApiError, RankBurst, RankDevice};

use super::App;
use super::api::find;
use super::error::Failure;
use crate::state::devices::Devices;
use crate::state::hub::Command;

async fn devices_of(app: &App, run: &str) -> Result<(RunId, Devices), Failure> {
    let run = find(app, run)?.summary.run.clone();
    let asked = run.clone();
    Ok((run, app.hub.ask(|reply| Command::Devices { run: asked, reply }).await?))
}

/// What each rank's device said last (utilisation, clocks, why they are lowered, power, memory), for ranks whose device
/// can be looked at.
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
    Ok(Json(devices_of(&app, &run).await?.1.looks))
}

/// The newest burst of each rank that answered one: top kernels, exact overlap, idle time; or why there is none.
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
    Ok(Json(devices_of(&app, &run).await?.1.bursts))
}

/// Both as a part of the page, which only shows it: written here, it costs the page's download nothing.
pub async fn part(State(app): State<App>, Path(run): Path<String>) -> Result<Html<String>, Failure> {
    let (run, devices) = devices_of(&app, &run).await?;
    Ok(Html(markup::part(&run, &devices)))
}

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
/// that is answered here. (A browser's form is answered 204, so that it stays where it is.)
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
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let run = find(&app, &run)?.summary.run.clone();
    let millis = wanted.millis.unwrap_or(1_000);
    if !(1..=MOST_MILLIS).contains(&millis) {
        return Err(Failure::BadRequest(format!("millis is {millis}: 1 to {MOST_MILLIS} can be recorded")));
    }
    let rank = wanted.rank.map(Rank);
    let asked = app.hub.ask(|reply| Command::AskForBurst { run, rank, millis, reply }).await?;
    let missing = || Failure::NotFound(format!("the run has no rank {}", wanted.rank.unwrap_or(0)));
    let asked = asked.ok_or_else(missing)?;
    let accepted = headers.get(header::ACCEPT).and_then(|accepted| accepted.to_str().ok());
    if accepted.is_some_and(|accepted| accepted.starts_with("text/html")) {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    Ok((StatusCode::ACCEPTED, Json(asked)).into_response())
}
