//! The report of a run: as JSON, as a frame for the dashboard, and as an HTML or Markdown file.

use axum::extract::{Path, Query, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};
use wire::ids::{RunId, Step};
use wire::views::{ApiError, Report};

use super::App;
use super::answer::{Form, answer, aside};
use super::api::open;
use super::error::Failure;
use crate::export;
use crate::export::report::{document, html, markdown};
use crate::state::query::RunQuery;

/// The steps that a report covers, and its format.
#[derive(Debug, Deserialize, IntoParams)]
pub struct ReportQuery {
    /// `recent` (the default): the newest 512 steps of a live run. `all`: all retained steps.
    window: Option<String>,
    /// A step: return the report as it was when this step was the newest.
    at: Option<u64>,
    /// `A..B`, both ends included: return the report over these steps, as far as they are in memory.
    steps: Option<String>,
    /// `json` (the default), `html`, `markdown`, or `frame` for the dashboard of this server.
    #[serde(default)]
    form: ReportForm,
}

/// The format of a report.
#[derive(Clone, Copy, Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum ReportForm {
    #[default]
    Json,
    Frame,
    Html,
    Markdown,
}

/// Returns the report of a run.
#[utoipa::path(
    get,
    path = "/api/v1/runs/{run}",
    params(("run" = String, Path), ReportQuery),
    responses((status = 200, body = Report), (status = 404, body = ApiError))
)]
pub async fn report(
    State(app): State<App>,
    Path(run): Path<String>,
    Query(query): Query<ReportQuery>,
) -> Result<Response, Failure> {
    let (shown, report) = open(&app, &run).await?;
    let run = shown.summary.run.clone();
    if [query.window.is_some(), query.at.is_some(), query.steps.is_some()].iter().filter(|&&is| is).count()
        > 1
    {
        return Err(Failure::BadRequest("`window`, `at` and `steps` exclude each other".into()));
    }
    if let Some(steps) = &query.steps {
        let (first, last) =
            export::parse_range(steps).map_err(|error| Failure::BadRequest(error.to_string()))?;
        return written(query.form, &report_between(&app, run, Some(first), last).await?);
    }
    if let Some(at) = query.at {
        return written(query.form, &report_between(&app, run, None, Step(at)).await?);
    }
    match query.window.as_deref() {
        None | Some("recent") => written(query.form, &report),
        Some("all") => {
            let work = app.hub.query(run, |reply| RunQuery::Report { newest: usize::MAX, reply }).await?;
            let work = work.ok_or_else(gone)?;
            let others = app.hub.snapshot();
            written(query.form, &aside(move || others.measure(work.report_with_past_faults())).await?)
        }
        Some(other) => Err(Failure::BadRequest(format!("unknown window {other:?}: use `recent` or `all`"))),
    }
}

/// Returns the report over the steps from `first` to `last`. Without `first`, it covers as many steps as the report of a
/// live run.
async fn report_between(app: &App, run: RunId, first: Option<Step>, last: Step) -> Result<Report, Failure> {
    let work = app.hub.query(run, |reply| RunQuery::ReportBetween { first, last, reply }).await?;
    let work = work.ok_or_else(gone)?;
    let others = app.hub.snapshot();
    aside(move || others.measure(work.report())).await
}

fn gone() -> Failure {
    Failure::NotFound("the run has been removed".into())
}

fn written(form: ReportForm, report: &Report) -> Result<Response, Failure> {
    Ok(match form {
        ReportForm::Json => answer(Form::Json, report)?,
        ReportForm::Frame => answer(Form::Frame, report)?,
        ReportForm::Html => file(report, "text/html; charset=utf-8", "html", html(&document(report))),
        ReportForm::Markdown => {
            file(report, "text/markdown; charset=utf-8", "md", markdown(&document(report)))
        }
    })
}

/// Returns the report as a download. The browser must not show it in place: the content security policy forbids inline
/// styles, and the file has them.
fn file(report: &Report, media_type: &str, extension: &str, text: String) -> Response {
    // A run id has only characters that are safe in a header (wire::ids::RunId).
    let name = format!("attachment; filename=\"{}.{extension}\"", report.run);
    ([(header::CONTENT_TYPE, media_type.to_owned()), (header::CONTENT_DISPOSITION, name)], text)
        .into_response()
}
