//! Comparison of two runs.

use analysis::compare::compare;
use axum::extract::{Query, State};
use axum::response::Response;
use serde::Deserialize;
use utoipa::IntoParams;
use wire::views::ApiError;
use wire::views::comparison::Comparison;

use super::App;
use super::answer::{Form, answer};
use super::api::open;
use super::error::Failure;

/// The runs to compare, and the format of the answer.
#[derive(Debug, Deserialize, IntoParams)]
pub struct CompareQuery {
    /// The baseline run.
    a: String,
    /// The run to compare with the baseline.
    b: String,
    /// `json` (the default) or `frame`.
    #[serde(default)]
    form: Form,
}

/// Compares two runs figure by figure. A finished run is compared over all retained steps, a live run over its
/// recent steps.
#[utoipa::path(
    get,
    path = "/api/v1/compare",
    params(CompareQuery),
    responses((status = 200, body = Comparison), (status = 404, body = ApiError))
)]
pub async fn comparison(
    State(app): State<App>,
    Query(query): Query<CompareQuery>,
) -> Result<Response, Failure> {
    let (_, a) = open(&app, &query.a).await?;
    let (_, b) = open(&app, &query.b).await?;
    answer(query.form, &compare(&a, &b))
}
