//! Ingestion over HTTP: receives the body, and answers as the [intake](crate::ingest) decides.

use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{AppendHeaders, IntoResponse, Response};
use http_body_util::BodyExt as _;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use wire::batch::RECEIPT_HEADER;

use super::App;
use super::error::Failure;
use crate::ingest::{Receipt, Refusal, RefusalKind};

/// The time limit for a request's body to arrive.
const BODY_WITHIN: Duration = Duration::from_secs(10);

/// Accepts one batch. The answer is sent once the batch is on disk: a batch that was answered 200 survives a crash.
///
/// A batch that is not stored is never answered 200. The header `paceline-receipt` of the answer names the run, rank,
/// incarnation and sequence number of the batch; an answer without it is not from a Paceline server. A batch may be
/// sent again: a duplicate is recognized by run, rank, incarnation and sequence number. The header `paceline-burst` of
/// an answer asks the rank for a burst: its request number, and its length in milliseconds. `paceline-stacks` asks in the
/// same way for the stacks of its threads. `paceline-batch-interval` says how long to wait between batches, in
/// milliseconds: less while someone views the run.
#[utoipa::path(
    post,
    path = "/api/v1/ingest",
    request_body(content = Vec<u8>, content_type = "application/vnd.paceline.batch"),
    responses(
        (status = 200, description = "The batch is durable."),
        (status = 400, description = "The body is not a valid batch. The error says what is wrong and where.",
            body = wire::views::ApiError),
        (status = 409, description = "The batch contradicts its run.", body = wire::views::ApiError),
        (status = 413, description = "The batch is larger than allowed.", body = wire::views::ApiError),
        (status = 503, description = "The server is busy. Try again after Retry-After.", body = wire::views::ApiError),
    )
)]
pub async fn ingest(State(app): State<App>, request: Request) -> Result<Response, Failure> {
    let (frame, _room) = read(&app, request).await?;
    let Receipt { batch, asked } = app.intake.accept(frame).await?;
    let asked: Vec<(&str, String)> = asked.headers().collect();
    // The receipt proves to the agent that a Paceline server has stored the batch.
    let receipt = (StatusCode::OK, AppendHeaders([(RECEIPT_HEADER, batch)]));
    Ok((AppendHeaders(asked), receipt).into_response())
}

/// Receives a body, with the memory that is reserved for it.
async fn read(app: &App, request: Request) -> Result<(Bytes, OwnedSemaphorePermit), Failure> {
    match timeout(BODY_WITHIN, receive(app, request.into_body())).await {
        Ok(received) => received,
        Err(_) => Err(broken(app, format!("the body did not arrive within {} s", BODY_WITHIN.as_secs()))),
    }
}

async fn receive(app: &App, mut body: Body) -> Result<(Bytes, OwnedSemaphorePermit), Failure> {
    let mut arriving = app.intake.receive(body.size_hint().lower())?;
    while let Some(part) = body.frame().await {
        let part = part.map_err(|error| broken(app, format!("the body broke off: {error}")))?;
        // Trailers hold nothing that is needed.
        let Ok(data) = part.into_data() else { continue };
        arriving.add(&data).await?;
    }
    Ok(arriving.finish())
}

/// Counts and returns the failure of a request whose body does not arrive.
fn broken(app: &App, sentence: String) -> Failure {
    app.metrics.server.refused.inc();
    Failure::BadRequest(sentence)
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let sentence = refusal.to_string();
        match refusal.kind() {
            RefusalKind::Invalid => Self::BadRequest(sentence),
            RefusalKind::TooLarge => Self::TooLarge(sentence),
            RefusalKind::Conflict => Self::Conflict(sentence),
            RefusalKind::Busy => Self::Busy(sentence),
            RefusalKind::Failed => Self::Server(sentence),
        }
    }
}
