//! How the devices and the hosts of a run's ranks are used.

use axum::Json;
use axum::extract::{Path, State};
use wire::usage::Usage;
use wire::views::{ApiError, RecentUsage};

use super::App;
use super::api::find;
use super::error::Failure;
use crate::state::query::RunQuery;
use crate::state::run::usage::MeasureHistory;

/// Returns every measure of devices and hosts that some rank reports, over the last minute: the median over ranks, and the ranks with
/// the smallest and the largest value. The heatmap has each of them over time, rank by rank.
#[utoipa::path(
    get,
    path = "/api/v1/runs/{run}/usage",
    params(("run" = String, Path)),
    responses((status = 200, body = Vec<RecentUsage>), (status = 404, body = ApiError))
)]
pub async fn usage(
    State(app): State<App>,
    Path(run): Path<String>,
) -> Result<Json<Vec<RecentUsage>>, Failure> {
    let run = find(&app, &run)?.summary.run.clone();
    Ok(Json(app.hub.query(run, |reply| RunQuery::RecentUsage { reply }).await?))
}

/// Returns one measure of each rank over time.
pub(super) async fn usage_of(app: &App, run: &str, usage: Usage) -> Result<Vec<MeasureHistory>, Failure> {
    let run = find(app, run)?.summary.run.clone();
    Ok(app.hub.query(run, |reply| RunQuery::Usage { usage, reply }).await?)
}
