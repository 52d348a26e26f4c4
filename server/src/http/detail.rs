//! Steps and ranks in detail: columns of steps, tiles of a heatmap, and one step rank by rank.

use std::sync::Arc;

use analysis::step::StepAnalysis;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use serde::Deserialize;
use utoipa::IntoParams;
use wire::ids::{RunId, Step};
use wire::live::tile::{MAX_CELLS, Measure, Reduce};
use wire::views::{ApiError, RunSummary};

use super::App;
use super::answer::{aside, binary};
use super::api::{find, has_rank};
use super::error::Failure;
use super::usage::usage_of;
use crate::state::detail::{self, Asked, AskedRanks};
use crate::state::query::RunQuery;
use crate::state::snapshot::columns;

/// A range of steps, both ends included.
#[derive(Debug, Deserialize, IntoParams)]
pub struct StepRange {
    /// The first step. Default: the oldest retained step.
    from: Option<u64>,
    /// The last step. Default: the newest step.
    to: Option<u64>,
}

/// Returns the figures of steps over all ranks, in little-endian columns (`StepColumns` of the `paceline-wire` crate).
#[utoipa::path(
    get,
    path = "/api/v1/runs/{run}/steps",
    params(("run" = String, Path), StepRange),
    responses(
        (status = 200, content_type = "application/octet-stream", body = Vec<u8>),
        (status = 404, body = ApiError)
    )
)]
pub async fn steps(
    State(app): State<App>,
    Path(run): Path<String>,
    Query(range): Query<StepRange>,
) -> Result<Response, Failure> {
    let summary = find(&app, &run)?.summary.clone();
    let kept = kept_steps(&app, summary.run, range.from.unwrap_or(0), range.to.unwrap_or(u64::MAX)).await?;
    aside(move || columns(&kept, summary.most_ranks, true).encode()).await.map(binary)
}

/// The content of a heatmap.
#[derive(Debug, Deserialize, IntoParams)]
pub struct HeatmapQuery {
    /// `lateness` (the default), `rank-step-time`, a part of the ledger such as `exposed-wait`, or a measure of devices and hosts
    /// such as `sm-activity` or `processor-use`.
    measure: Option<String>,
    /// The value of a cell that covers several steps or ranks: `max` (the default, which keeps a single slow step
    /// visible), `min`, `mean` or `median`.
    reduce: Option<String>,
    /// The first step. Default: the oldest retained step.
    from: Option<u64>,
    /// The last step. Default: the newest step.
    to: Option<u64>,
    /// The first rank. Default: 0.
    rank_from: Option<u32>,
    /// The last rank. Default: the last rank of the run.
    rank_to: Option<u32>,
    /// Ranks such as `7,3,12`, in place of `rank_from` and `rank_to`: one row each, in this order, at most 512.
    ranks: Option<String>,
    /// The largest number of columns (default 1,024). Each column covers 1, 2, 4, ... steps.
    columns: Option<u32>,
    /// The largest number of rows (default 512). Each row covers 1, 2, 4, ... ranks.
    rows: Option<u32>,
}

/// Returns a tile of a heatmap: (step, rank) cells at a level of detail, in columns (`Tile` of the `paceline-wire`
/// crate).
#[utoipa::path(
    get,
    path = "/api/v1/runs/{run}/heatmap",
    params(("run" = String, Path), HeatmapQuery),
    responses(
        (status = 200, content_type = "application/octet-stream", body = Vec<u8>),
        (status = 400, body = ApiError),
        (status = 404, body = ApiError)
    )
)]
pub async fn heatmap(
    State(app): State<App>,
    Path(run): Path<String>,
    Query(query): Query<HeatmapQuery>,
) -> Result<Response, Failure> {
    let summary = find(&app, &run)?.summary.clone();
    let reduce = query.reduce.as_deref().unwrap_or("max");
    let measure = query.measure.as_deref().unwrap_or("lateness");
    let mut asked = Asked {
        measure: Measure::from_key(measure)
            .ok_or_else(|| Failure::BadRequest(format!("unknown measure {measure:?}: {}", measures())))?,
        reduce: Reduce::from_name(reduce).ok_or_else(|| {
            Failure::BadRequest(format!("unknown reduce {reduce:?}: use `max`, `min`, `mean` or `median`"))
        })?,
        steps: (query.from.unwrap_or(0), query.to.unwrap_or(u64::MAX)),
        ranks: match &query.ranks {
            Some(listed) => {
                let ranks = ranks_in(listed)?;
                ranks.iter().try_for_each(|&rank| has_rank(&summary, rank))?;
                AskedRanks::Listed(ranks)
            }
            None => ranks_between(&summary, query.rank_from.unwrap_or(0), query.rank_to)?,
        },
        columns: query.columns.unwrap_or(1_024).max(1),
        rows: query.rows.unwrap_or(512).max(1),
    };
    if u64::from(asked.columns) * u64::from(asked.rows) > MAX_CELLS as u64 {
        return Err(Failure::BadRequest(format!(
            "columns x rows must be at most {MAX_CELLS} cells per tile"
        )));
    }
    let kept = kept_steps(&app, summary.run, asked.steps.0, asked.steps.1).await?;
    // Open ends are replaced by those of the retained steps. Otherwise a tile would extend to the largest step number.
    let ends = (kept.first().map_or(0, |step| step.step.0), kept.last().map_or(0, |step| step.step.0));
    asked.steps = (query.from.unwrap_or(ends.0), query.to.map_or(ends.1, |to| to.min(ends.1)));
    let usage = match asked.measure {
        Measure::Usage(usage) => usage_of(&app, &run, usage).await?,
        _ => Vec::new(),
    };
    aside(move || detail::tile(&kept, &asked, &usage).encode()).await.map(binary)
}

/// Returns the ranks from `first` to `last`, or to the last rank of the run if that is lower.
fn ranks_between(run: &RunSummary, first: u32, last: Option<u32>) -> Result<AskedRanks, Failure> {
    has_rank(run, first)?;
    if let Some(last) = last.filter(|&last| last < first) {
        return Err(Failure::BadRequest(format!(
            "`rank_from` is {first} and `rank_to` is {last}: `rank_to` must not be lower"
        )));
    }
    let end = run.most_ranks.saturating_sub(1);
    Ok(AskedRanks::Between(first, last.unwrap_or(end).min(end)))
}

/// The largest number of listed ranks.
const MAX_LISTED: usize = 512;

/// Parses a list of ranks such as `7,3,12`.
fn ranks_in(listed: &str) -> Result<Vec<u32>, Failure> {
    let ranks: Result<Vec<u32>, _> = listed.split(',').map(|rank| rank.trim().parse::<u32>()).collect();
    match ranks {
        Ok(ranks) if ranks.len() <= MAX_LISTED => Ok(ranks),
        Ok(ranks) => {
            Err(Failure::BadRequest(format!("`ranks` lists {} ranks: at most {MAX_LISTED}", ranks.len())))
        }
        Err(_) => Err(Failure::BadRequest(format!("`ranks` is {listed:?}: write ranks such as `7,3,12`"))),
    }
}

fn measures() -> String {
    let keys: Vec<String> = Measure::all().map(Measure::key).collect();
    format!("use one of {}", keys.join(", "))
}

/// Returns one step rank by rank, in columns (`StepRanks` of the `paceline-wire` crate). A step that has left memory is
/// read from disk and analyzed again, with the current alignment of clocks.
#[utoipa::path(
    get,
    path = "/api/v1/runs/{run}/steps/{step}/ranks",
    params(("run" = String, Path), ("step" = u64, Path)),
    responses(
        (status = 200, content_type = "application/octet-stream", body = Vec<u8>),
        (status = 404, body = ApiError),
        (status = 413, body = ApiError),
        (status = 503, body = ApiError)
    )
)]
pub async fn step_ranks(
    State(app): State<App>,
    Path((run, step)): Path<(String, u64)>,
) -> Result<Response, Failure> {
    let run = find(&app, &run)?.summary.run.clone();
    let kept = kept_steps(&app, run.clone(), step, step).await?;
    if let Some(found) = kept.first() {
        return Ok(binary(detail::ranks(found).encode()));
    }
    let step = Some(Step(step));
    let placed = app.hub.query(run, |reply| RunQuery::Placed { step, reply }).await??;
    aside(move || detail::ranks(&placed.analyze()).encode()).await.map(binary)
}

/// Returns the retained steps from `first` to `last`, to be read outside the hub.
pub async fn kept_steps(
    app: &App,
    run: RunId,
    first: u64,
    last: u64,
) -> Result<Vec<Arc<StepAnalysis>>, Failure> {
    let (first, last) = (Step(first), Step(last));
    Ok(app.hub.query(run, |reply| RunQuery::Steps { first, last, reply }).await?)
}
