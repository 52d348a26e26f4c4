//! The stacks of a run's ranks.

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};
use wire::request::RecordingRequest;
use wire::views::{ApiError, RankStacks};

use super::App;
use super::api::{find, has_rank};
use super::error::Failure;
use super::recording::RecordingQuery;
use crate::export::stacks;
use crate::state::command::Recording;
use crate::state::query::RunQuery;

/// How long stacks are sampled if the request does not say it, in milliseconds.
const DEFAULT_MILLIS: u16 = 2_000;

/// The format of the answer, and the rank.
#[derive(Debug, Deserialize, IntoParams)]
pub struct StacksQuery {
    /// The rank. Default: all ranks that have sent stacks.
    rank: Option<u32>,
    /// The format. Default: `json`.
    #[serde(default)]
    #[param(inline)]
    format: StacksFormat,
}

/// The format of stacks.
#[derive(Clone, Copy, Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StacksFormat {
    /// All that the ranks sent.
    #[default]
    Json,
    /// A line per stack, for flame graphs.
    Folded,
    /// A profile for speedscope.
    Speedscope,
}

/// Returns the newest stacks of each rank that was asked for them, because a verdict named it or by `POST`.
#[utoipa::path(
    get,
    path = "/api/v1/runs/{run}/stacks",
    params(("run" = String, Path), StacksQuery),
    responses((status = 200, body = Vec<RankStacks>), (status = 404, body = ApiError))
)]
pub async fn stacks(
    State(app): State<App>,
    Path(run): Path<String>,
    Query(wanted): Query<StacksQuery>,
) -> Result<Response, Failure> {
    let shown = find(&app, &run)?;
    wanted.rank.map_or(Ok(()), |rank| has_rank(&shown.summary, rank))?;
    let run = shown.summary.run.clone();
    let found = app.hub.query(run, |reply| RunQuery::Stacks { reply }).await?;
    let found = found.into_iter().filter(|(rank, _)| wanted.rank.is_none_or(|wanted| wanted == rank.0));
    let ranks: Vec<RankStacks> =
        found.map(|(rank, stacks)| RankStacks { rank, stacks: (*stacks).clone() }).collect();
    Ok(match wanted.format {
        StacksFormat::Json => Json(ranks).into_response(),
        StacksFormat::Folded => stacks::folded(&ranks).into_response(),
        StacksFormat::Speedscope => Json(stacks::speedscope(&ranks)).into_response(),
    })
}

/// Asks ranks for the stacks of their threads, sampled for a short time, 2,000 ms by default.
///
/// Ranks receive the request with the answer to their next batch, at most two seconds later. `GET` on the same path
/// returns the result, or the reason why there is none, with the request number of this answer.
#[utoipa::path(
    post,
    path = "/api/v1/runs/{run}/stacks",
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
    wanted.ask(&app, &run, Recording::Stacks, DEFAULT_MILLIS).await
}
