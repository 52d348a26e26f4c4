//! The layouts of a run's buckets.

use axum::Json;
use axum::extract::{Path, State};
use wire::views::{ApiError, ModuleLayouts};

use super::App;
use super::api::find;
use super::error::Failure;
use crate::state::query::RunQuery;

/// Returns which parameters lie in which bucket: the layouts of each module, as rank 0 has them. Empty if none are known.
#[utoipa::path(
    get,
    path = "/api/v1/runs/{run}/layouts",
    params(("run" = String, Path)),
    responses((status = 200, body = Vec<ModuleLayouts>), (status = 404, body = ApiError))
)]
pub async fn layouts(
    State(app): State<App>,
    Path(run): Path<String>,
) -> Result<Json<Vec<ModuleLayouts>>, Failure> {
    let run = find(&app, &run)?.summary.run.clone();
    Ok(Json(app.hub.query(run, |reply| RunQuery::Layouts { reply }).await?))
}
