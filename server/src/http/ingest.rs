//! Batches in: decode, check, make durable, hand to the hub, and only then acknowledge.

use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::StatusCode;
use wire::codec::DecodeError;

use super::App;
use super::error::Failure;
use crate::state::hub::Command;
use crate::state::run::ApplyError;
use crate::store::log::AppendError;

/// Takes one batch in. The answer comes when it is on disk: what was answered 200 survives a crash.
///
/// Sending a batch again is harmless: it is recognised by run, rank, incarnation and number.
#[utoipa::path(
    post,
    path = "/api/v1/ingest",
    request_body(content = Vec<u8>, content_type = "application/vnd.paceline.batch"),
    responses(
        (status = 200, description = "Durable."),
        (status = 400, description = "Not a batch; the error says what is wrong and where.", body = wire::views::ApiError),
        (status = 409, description = "It contradicts its run.", body = wire::views::ApiError),
        (status = 413, description = "Larger than a batch may be.", body = wire::views::ApiError),
        (status = 503, description = "No room now; see Retry-After.", body = wire::views::ApiError),
    )
)]
pub async fn ingest(
    State(app): State<App>,
    body: Result<Bytes, BytesRejection>,
) -> Result<StatusCode, Failure> {
    let received = app.clock.now();
    let frame = body.map_err(|rejection| refused(&app, unreadable(&rejection)))?;
    let batch = wire::codec::decode(&frame).map_err(|error| refused(&app, bad_batch(&error)))?;
    let batch = Box::new(batch);
    let (batch, checked) = app.hub.ask(|reply| Command::Check { batch, reply }).await?;
    match checked {
        Ok(()) => {}
        Err(ApplyError::Duplicate) => return Ok(StatusCode::OK),
        Err(error) => return Err(refused(&app, Failure::Conflict(error.to_string()))),
    }
    let (bytes, records) = (frame.len() as u64, batch.events.len() as u64);
    app.log.append(batch.run.clone(), received, frame).await.map_err(|error| deferred(&app, &error))?;
    app.hub.send(Command::Apply { batch, received }).await?;
    let server = &app.metrics.server;
    server.batches.inc();
    server.records.inc_by(records);
    server.bytes.inc_by(bytes);
    Ok(StatusCode::OK)
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

fn refused(app: &App, failure: Failure) -> Failure {
    app.metrics.server.refused.inc();
    failure
}

fn deferred(app: &App, error: &AppendError) -> Failure {
    app.metrics.server.deferred.inc();
    Failure::Busy(error.to_string())
}
