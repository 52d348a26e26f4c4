//! What ran on the ranks of an imported run, by name.

use std::sync::Arc;

use analysis::traces;
use axum::Json;
use axum::extract::{Path, Query, State};
use serde::Deserialize;
use utoipa::IntoParams;
use wire::ids::{Rank, RunId, Step};
use wire::traces::TraceSummary;
use wire::views::ApiError;
use wire::views::captures::{RankTrace, TraceComparison};

use super::App;
use super::api::{find, has_rank, open};
use super::error::Failure;
use crate::state::query::RunQuery;

/// The rank.
#[derive(Debug, Deserialize, IntoParams)]
pub struct TracedQuery {
    /// The rank. Default: all ranks with a trace.
    rank: Option<u32>,
}

/// Returns what ran in the traced steps of each rank: operators and ranges by self time, calls of the runtime, and kernels with
/// the launch gaps before them. Empty unless the run is imported from traces.
#[utoipa::path(
    get,
    path = "/api/v1/runs/{run}/traced",
    params(("run" = String, Path), TracedQuery),
    responses((status = 200, body = Vec<RankTrace>), (status = 404, body = ApiError))
)]
pub async fn traced(
    State(app): State<App>,
    Path(run): Path<String>,
    Query(wanted): Query<TracedQuery>,
) -> Result<Json<Vec<RankTrace>>, Failure> {
    let (_, found) = summaries(&app, &run).await?;
    wanted.rank.map_or(Ok(()), |rank| has_rank(&find(&app, &run)?.summary, rank))?;
    let found = found.into_iter().filter(|(rank, _)| wanted.rank.is_none_or(|wanted| wanted == rank.0));
    Ok(Json(found.map(|(rank, summary)| RankTrace { rank, summary: (*summary).clone() }).collect()))
}

/// The ranks to compare.
#[derive(Debug, Deserialize, IntoParams)]
pub struct TracedComparisonQuery {
    /// The rank to compare.
    rank: u32,
    /// The rank that it is compared with.
    against: u32,
}

/// Compares the traces of two ranks of an imported run: which operators, ranges and kernels take one of them longer per step.
#[utoipa::path(
    get,
    path = "/api/v1/runs/{run}/traced/comparison",
    params(("run" = String, Path), TracedComparisonQuery),
    responses((status = 200, body = TraceComparison), (status = 404, body = ApiError))
)]
pub async fn traced_comparison(
    State(app): State<App>,
    Path(run): Path<String>,
    Query(wanted): Query<TracedComparisonQuery>,
) -> Result<Json<TraceComparison>, Failure> {
    let (first_step, found) = summaries(&app, &run).await?;
    let summary_of = |wanted: u32| {
        let ran = found.iter().find(|(rank, _)| rank.0 == wanted).map(|(rank, summary)| (*rank, &**summary));
        ran.ok_or_else(|| Failure::NotFound(format!("run {run} has no imported trace of rank {wanted}")))
    };
    Ok(Json(traces::compare(summary_of(wanted.rank)?, summary_of(wanted.against)?, first_step)))
}

/// Returns the first observed step of a run and what its ranks ran. A run that has left memory is read from disk.
async fn summaries(app: &App, run: &str) -> Result<(Step, Vec<(Rank, Arc<TraceSummary>)>), Failure> {
    let (shown, report) = open(app, run).await?;
    let run: RunId = shown.summary.run.clone();
    let found = app.hub.query(run, |reply| RunQuery::TraceSummaries { reply }).await?;
    Ok((Step(report.step_range.map_or(0, |(first, _)| first)), found))
}
