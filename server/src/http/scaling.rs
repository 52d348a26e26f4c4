//! The scaling of a run: measured over the runs of its name, and predicted by its model.

use analysis::scaling::{self, NotABaseline, NotPredicted};
use analysis::step::StepAnalysis;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use serde::Deserialize;
use utoipa::IntoParams;
use wire::ids::RunId;
use wire::views::ApiError;
use wire::views::scaling::{Scaling, Scenario, ScenarioPrediction};

use super::App;
use super::answer::{Form, answer, aside};
use super::api::open;
use super::error::Failure;

/// What runs are measured against, and the format of the answer.
#[derive(Debug, Deserialize, IntoParams)]
pub struct ScalingQuery {
    /// The run that measured efficiency refers to: one of the same name with the same batch per rank (weak scaling) or the
    /// same total batch (strong scaling). By default the newest one on the fewest ranks.
    baseline: Option<String>,
    /// `json` (the default) or `frame`.
    #[serde(default)]
    form: Form,
}

/// Returns the efficiency at each world size, predictions for others, and the effect of bucket caps.
#[utoipa::path(
    get,
    path = "/api/v1/runs/{run}/scaling",
    params(("run" = String, Path), ScalingQuery),
    responses(
        (status = 200, body = Scaling),
        (status = 400, body = ApiError, description = "The baseline has another batch"),
        (status = 404, body = ApiError, description = "There is no such run, or no such baseline")
    )
)]
pub async fn scaling(
    State(app): State<App>,
    Path(run): Path<String>,
    Query(query): Query<ScalingQuery>,
) -> Result<Response, Failure> {
    let baseline = query.baseline.map(RunId::new).transpose()?;
    let (shown, report) = open(&app, &run).await?;
    let summaries = app.hub.snapshot().summaries();
    let scaling = aside(move || {
        let steps: Vec<&StepAnalysis> = shown.steps.iter().map(AsRef::as_ref).collect();
        scaling::scaling(&report, &steps, summaries.into_iter(), baseline.as_ref())
    });
    answer(query.form, &scaling.await??)
}

/// The format of the answer.
#[derive(Debug, Deserialize, IntoParams)]
pub struct FormQuery {
    /// `json` (the default) or `frame`.
    #[serde(default)]
    form: Form,
}

/// Returns the predicted step of the run with another network, other buckets or another number of ranks.
#[utoipa::path(
    get,
    path = "/api/v1/runs/{run}/what-if",
    params(("run" = String, Path), Scenario, FormQuery),
    responses(
        (status = 200, body = ScenarioPrediction),
        (status = 400, body = ApiError, description = "A value is out of its range"),
        (status = 404, body = ApiError, description = "There is no such run, or it cannot be modeled")
    )
)]
pub async fn what_if(
    State(app): State<App>,
    Path(run): Path<String>,
    Query(scenario): Query<Scenario>,
    Query(query): Query<FormQuery>,
) -> Result<Response, Failure> {
    let (shown, report) = open(&app, &run).await?;
    let predicted = aside(move || {
        let steps: Vec<&StepAnalysis> = shown.steps.iter().map(AsRef::as_ref).collect();
        scaling::predict(&report, &steps, scenario)
    });
    answer(query.form, &predicted.await??)
}

impl From<NotPredicted> for Failure {
    fn from(error: NotPredicted) -> Self {
        match error {
            NotPredicted::OutOfRange { .. } => Self::BadRequest(error.to_string()),
            NotPredicted::Missing(_) | NotPredicted::OneBucket => Self::NotFound(error.to_string()),
        }
    }
}

impl From<NotABaseline> for Failure {
    fn from(error: NotABaseline) -> Self {
        match error {
            NotABaseline::NotAPoint { .. } => Self::NotFound(error.to_string()),
            NotABaseline::OtherBatch { .. } => Self::BadRequest(error.to_string()),
        }
    }
}
