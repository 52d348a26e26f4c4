//! The report of a run: for programs, for the page, and as a file for people.

use axum::extract::{Path, Query, State};
use axum::http::header;
use axum::response::{Html, IntoResponse, Response};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};
use wire::ids::{RunId, Step};
use wire::views::{ApiError, Report};

use super::App;
use super::answer::{Form, answer, aside};
use super::api::open;
use super::error::Failure;
use crate::export::report::{self, document, html, markdown};
use crate::state::hub::Command;

/// What a report covers.
#[derive(Debug, Deserialize, IntoParams)]
pub struct ReportQuery {
    /// `recent`: the newest 512 steps of a live run (the default). `all`: every kept step.
    window: Option<String>,
    /// The report as it was when this step was the newest one.
    at: Option<u64>,
    /// `json` (the default); `frame` for the page of this server; `html` or `markdown` for people.
    #[serde(default)]
    form: ReportForm,
}

/// How a report is written.
#[derive(Clone, Copy, Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum ReportForm {
    #[default]
    Json,
    Frame,
    Html,
    Markdown,
}

/// The report of a run.
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
    match (query.window.as_deref(), query.at) {
        (None | Some("recent"), None) => written(query.form, &report),
        (None | Some("recent"), Some(at)) => written(query.form, &report_at(&app, run, at).await?),
        (Some("all"), None) => {
            let work = app.hub.ask(|reply| Command::Report { run, newest: usize::MAX, reply }).await?;
            let work = work.ok_or_else(gone)?;
            let others = app.hub.snapshot();
            written(query.form, &aside(move || others.measure(work.report())).await?)
        }
        (Some("all"), Some(_)) => Err(Failure::BadRequest("window=all has no `at`".into())),
        (Some(other), _) => Err(Failure::BadRequest(format!("window={other:?}: it is `recent` or `all`"))),
    }
}

/// What collectives cost by group, as a part of the page.
pub async fn groups(app: State<App>, run: Path<String>, query: Query<PartQuery>) -> PartResult {
    part(app, run, query, report::groups_part).await
}

/// How far the figures can be trusted, as a part of the page.
pub async fn trust(app: State<App>, run: Path<String>, query: Query<PartQuery>) -> PartResult {
    part(app, run, query, report::trust_part).await
}

type PartResult = Result<Html<String>, Failure>;

async fn part(
    State(app): State<App>,
    Path(run): Path<String>,
    Query(query): Query<PartQuery>,
    write: fn(&Report) -> String,
) -> PartResult {
    let (shown, report) = open(&app, &run).await?;
    Ok(Html(match query.at {
        None => write(&report),
        Some(at) => write(&report_at(&app, shown.summary.run.clone(), at).await?),
    }))
}

/// Which moment a part of the page shows.
#[derive(Debug, Deserialize)]
pub struct PartQuery {
    /// As [`ReportQuery`]'s.
    at: Option<u64>,
}

/// The report as it was when this step was the newest one.
async fn report_at(app: &App, run: RunId, at: u64) -> Result<Report, Failure> {
    let work = app.hub.ask(|reply| Command::ReportAt { run, last: Step(at), reply }).await?;
    let work = work.ok_or_else(gone)?;
    let others = app.hub.snapshot();
    aside(move || others.measure(work.report())).await
}

fn gone() -> Failure {
    Failure::NotFound("the run is gone".into())
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

/// To be saved, not shown: this server's pages may have no styles of their own, and the file has.
fn file(report: &Report, media_type: &str, extension: &str, text: String) -> Response {
    // A run's id is safe in a header (wire::ids::RunId).
    let name = format!("attachment; filename=\"{}.{extension}\"", report.run);
    ([(header::CONTENT_TYPE, media_type.to_owned()), (header::CONTENT_DISPOSITION, name)], text)
        .into_response()
}
