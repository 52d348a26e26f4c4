//! The scaling of a run: measured over the runs of its name, and predicted by its model.

use analysis::scaling;
use analysis::step::StepAnalysis;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use serde::Deserialize;
use utoipa::IntoParams;
use wire::views::ApiError;
use wire::views::scaling::Scaling;

use super::App;
use super::answer::{Form, answer, aside};
use super::api::open;
use super::error::Failure;

/// The format of the answer.
#[derive(Debug, Deserialize, IntoParams)]
pub struct ScalingQuery {
    /// `json` (the default) or `frame`.
    #[serde(default)]
    form: Form,
}

/// Returns the efficiency at each world size, predictions for others, and the effect of bucket caps.
#[utoipa::path(
    get,
    path = "/api/v1/runs/{run}/scaling",
    params(("run" = String, Path), ScalingQuery),
    responses((status = 200, body = Scaling), (status = 404, body = ApiError))
)]
pub async fn scaling(
    State(app): State<App>,
    Path(run): Path<String>,
    Query(query): Query<ScalingQuery>,
) -> Result<Response, Failure> {
    let (shown, report) = open(&app, &run).await?;
    let summaries = app.hub.snapshot().summaries();
    let scaling = aside(move || {
        let steps: Vec<&StepAnalysis> = shown.steps.iter().map(AsRef::as_ref).collect();
        scaling::scaling(&report, &steps, summaries.into_iter())
    });
    answer(query.form, &scaling.await?)
}
