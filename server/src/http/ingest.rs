//! Batches in: decode, check, make durable, hand to the hub, and only then acknowledge.

use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::StatusCode;
use axum::response::{AppendHeaders, IntoResponse as _, Response};
use wire::burst::BurstRequest;
use wire::codec::DecodeError;

use super::App;
use super::error::Failure;
use crate::state::hub::{Checked, Command};
use crate::state::run::ApplyError;
use crate::store::log::AppendError;

/// Takes one batch in. The answer comes when it is on disk: what was answered 200 survives a crash.
///
/// Sending a batch again is harmless: it is recognised by run, rank, incarnation and number. A batch that is not stored
/// is never answered 200. The header
/// `paceline-burst` of an answer asks the rank for a burst: its number, and how many milliseconds.
#[utoipa::path(
    post,
    path = "/api/v1/ingest",
    request_body(content = Vec<u8>, content_type = "application/vnd.paceline.batch"),
    responses(
        (status = 200, description = "Durable."),
        (status = 400, description = "Not a batch; the error says what is wrong and where.", body = wire::views::ApiError),
        (status = 409, description = "It contradicts its run, another process has its rank, or its run cannot be read.", body = wire::views::ApiError),
        (status = 413, description = "Larger than a batch may be.", body = wire::views::ApiError),
        (status = 503, description = "No room now; see Retry-After.", body = wire::views::ApiError),
    )
)]
pub async fn ingest(
    State(app): State<App>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Failure> {
    let received = app.clock.now();
    let frame = body.map_err(|rejection| refused(&app, unreadable(&rejection)))?;
    let batch = wire::codec::decode(&frame).map_err(|error| refused(&app, bad_batch(&error)))?;
    let batch = Box::new(batch);
    let Checked { batch, verdict, is_first, asked } =
        app.hub.ask(|reply| Command::Check { batch, reply }).await?;
    match verdict {
        Ok(()) => {}
        Err(ApplyError::Duplicate) => return Ok(StatusCode::OK.into_response()),
        Err(error) => return Err(denied(&app, &error)),
    }
    let (bytes, records) = (frame.len() as u64, batch.events.len() as u64);
    app.log.append(batch.run.clone(), received, frame).await.map_err(|error| deferred(&app, &error))?;
    if is_first {
        // Another batch may have been the first, and made the run another.
        match app.hub.ask(|reply| Command::Apply { batch, received, reply: Some(reply) }).await? {
            Ok(()) | Err(ApplyError::Duplicate) => {}
            Err(error) => return Err(denied(&app, &error)),
        }
    } else {
        app.hub.send(Command::Apply { batch, received, reply: None }).await?;
    }
    let server = &app.metrics.server;
    server.batches.inc();
    server.records.inc_by(records);
    server.bytes.inc_by(bytes);
    let asked = asked.map(|request| [(BurstRequest::HEADER, request.to_header())]);
    Ok((StatusCode::OK, asked.map(AppendHeaders), ()).into_response())
}

fn unreadable(rejection: &BytesRejection) -> Failure {
    if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
        Failure::TooLarge(format!("the body is larger than {} bytes", wire::batch::MAX_WIRE_BYTES))
    } else {
        Failure::BadRequest(rejection.to_string())
    }
}

fn bad_batch(error: &DecodeError) -> Failure {
    match error {
        DecodeError::TooLarge { .. } => Failure::TooLarge(error.to_string()),
        _ => Failure::BadRequest(error.to_string()),
    }
}

fn denied(app: &App, error: &ApplyError) -> Failure {
    if error.is_refusal() {
        app.metrics.server.conflicts.inc();
        Failure::Conflict(error.to_string())
    } else {
        app.metrics.server.deferred.inc();
        Failure::Busy(error.to_string())
    }
}

fn refused(app: &App, failure: Failure) -> Failure {
    app.metrics.server.refused.inc();
    failure
}

fn deferred(app: &App, error: &AppendError) -> Failure {
    app.metrics.server.deferred.inc();
    Failure::Busy(error.to_string())
}
