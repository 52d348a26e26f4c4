//! Ingestion: decodes a batch, checks it, makes it durable, passes it to the hub, and only then acknowledges it.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{AppendHeaders, IntoResponse, Response};
use bytes::BytesMut;
use http_body_util::BodyExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use wire::batch::{Batch, MAX_PLAIN_BYTES, MAX_WIRE_BYTES, RECEIPT_HEADER};
use wire::codec::DecodeError;

use super::App;
use super::error::Failure;
use crate::state::command::{Checked, Command};
use crate::state::refusal::ApplyError;
use crate::store::log::AppendError;
use crate::store::log::writer::Record;

/// The memory for batches in flight, in bytes: about twenty of the largest batches ([`MAX_HELD_BYTES`]), or 50,000
/// usual batches of 100 ms.
const ROOM_BYTES: usize = 512 << 20;
/// The largest size of a decoded batch, in bytes: 16 MiB of lists and texts, and 65,536 records of 88 bytes.
const MAX_HELD_BYTES: usize = 22 << 20;
/// The largest ratio of decoded to encoded size that most batches have. A record takes 88 bytes decoded and about seven
/// encoded.
const GROWTH: usize = 16;
/// The time that a request waits for memory before it is refused.
const ROOM_WITHIN: Duration = Duration::from_secs(1);
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
    accept(&app, frame).await
}

/// Stores an encoded batch and passes it to the hub, as [`ingest`] says. Returns the answer to the agent.
///
/// # Errors
/// Returns an error if the batch is not valid, does not fit its run, or cannot be stored now.
pub async fn accept(app: &App, frame: Bytes) -> Result<Response, Failure> {
    let received = app.clock.now();
    let expected = expected_bytes(&frame);
    let mut room = app.room.take(expected).await.map_err(|full| full.counted(app))?;
    let batch = wire::codec::decode(&frame).map_err(|error| refused(app, bad_batch(&error)))?;
    // Tables of equal rows and lists of empty texts grow far more. Waiting for memory here would hold them meanwhile.
    let more = batch.held_bytes().saturating_sub(expected);
    room.merge(app.room.take_now(more).map_err(|full| full.counted(app))?);
    let batch = Box::new(batch);
    let Checked { batch, verdict, is_first, asked, is_renumbered } =
        app.hub.ask(|reply| Command::Check { batch, reply }).await?;
    match verdict {
        Ok(()) => {}
        Err(ApplyError::Duplicate) => return Ok(receipt(&batch).into_response()),
        Err(error) => return Err(denied(app, &error)),
    }
    // What is stored has the numbers under which the steps are analyzed.
    let frame = match is_renumbered {
        true => wire::codec::encode(&batch).map_err(|error| Failure::Server(error.to_string()))?.into(),
        false => frame,
    };
    let (bytes, records) = (frame.len() as u64, batch.events.len() as u64);
    let record = Record { received, frame, decoded_bytes: batch.held_bytes() as u64 };
    let lost = app.log.append(batch.run.clone(), record).await.map_err(|error| deferred(app, &error))?;
    if !lost.is_empty() {
        app.hub.send(Command::Lost { run: batch.run.clone(), lost }).await?;
    }
    let receipt = receipt(&batch);
    let room = Some(room);
    if is_first {
        // Another batch may have become the first in the meantime, and have defined the run differently.
        let apply = |reply| Command::Apply { batch, received, reply: Some(reply), room };
        match app.hub.ask(apply).await? {
            Ok(()) | Err(ApplyError::Duplicate) => {}
            Err(error) => return Err(denied(app, &error)),
        }
    } else {
        app.hub.send(Command::Apply { batch, received, reply: None, room }).await?;
    }
    let server = &app.metrics.server;
    server.batches.inc();
    server.records.inc_by(records);
    server.bytes.inc_by(bytes);
    let asked: Vec<(&str, String)> = asked.headers().collect();
    Ok((AppendHeaders(asked), receipt).into_response())
}

/// Returns the answer that proves to the agent that a Paceline server has stored the batch.
fn receipt(batch: &Batch) -> impl IntoResponse + use<> {
    (StatusCode::OK, AppendHeaders([(RECEIPT_HEADER, batch.receipt())]))
}

/// Receives a body, and reserves the memory for what has arrived of it. A client that only declares a length takes none.
async fn read(app: &App, request: Request) -> Result<(Bytes, OwnedSemaphorePermit), Failure> {
    match timeout(BODY_WITHIN, receive(app, request.into_body())).await {
        Ok(received) => received,
        Err(_) => {
            let sentence = format!("the body did not arrive within {} s", BODY_WITHIN.as_secs());
            Err(refused(app, Failure::BadRequest(sentence)))
        }
    }
}

async fn receive(app: &App, mut body: Body) -> Result<(Bytes, OwnedSemaphorePermit), Failure> {
    let too_large = || Failure::TooLarge(format!("the body is larger than {MAX_WIRE_BYTES} bytes"));
    if body.size_hint().lower() > MAX_WIRE_BYTES as u64 {
        return Err(refused(app, too_large()));
    }
    let mut room = app.room.take_now(0).map_err(|full| full.counted(app))?;
    let mut received = BytesMut::new();
    while let Some(part) = body.frame().await {
        let part =
            part.map_err(|error| refused(app, Failure::BadRequest(format!("the body broke off: {error}"))))?;
        // Trailers hold nothing that is needed.
        let Ok(data) = part.into_data() else { continue };
        if received.len() + data.len() > MAX_WIRE_BYTES {
            return Err(refused(app, too_large()));
        }
        let more = kib(received.len() + data.len()) as usize - room.num_permits();
        room.merge(app.room.take(more << 10).await.map_err(|full| full.counted(app))?);
        received.extend_from_slice(&data);
    }
    Ok((received.freeze(), room))
}

/// The memory for batches in flight from the socket to the hub, over all requests. A batch counts with the size of its
/// frame until it is decoded, and with its expected size after that.
#[derive(Clone)]
pub struct Room(Arc<Semaphore>);

/// The error that the memory for batches is used up.
struct Full;

impl Full {
    fn counted(self, app: &App) -> Failure {
        app.metrics.server.deferred.inc();
        Failure::Busy("the memory for batches in flight is used up: try again".into())
    }
}

impl Default for Room {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(ROOM_BYTES >> 10)))
    }
}

impl Room {
    /// Reserves this many bytes. Waits up to [`ROOM_WITHIN`] for them.
    async fn take(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Full> {
        let taken = timeout(ROOM_WITHIN, self.0.clone().acquire_many_owned(kib(bytes))).await;
        taken.ok().and_then(Result::ok).ok_or(Full)
    }

    /// Reserves this many bytes without waiting.
    fn take_now(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Full> {
        self.0.clone().try_acquire_many_owned(kib(bytes)).map_err(|_| Full)
    }
}

/// Returns the expected size of a decoded frame, from the frame's uncompressed length.
fn expected_bytes(frame: &[u8]) -> usize {
    let plain = wire::codec::plain_length(frame).unwrap_or(0).min(MAX_PLAIN_BYTES);
    (GROWTH * plain).min(MAX_HELD_BYTES)
}

fn kib(bytes: usize) -> u32 {
    bytes.min(ROOM_BYTES).div_ceil(1 << 10) as u32
}

fn denied(app: &App, error: &ApplyError) -> Failure {
    if let ApplyError::StepNumber { .. } = error {
        refused(app, Failure::BadRequest(error.to_string()))
    } else if let ApplyError::TooMuchSaid { .. } = error {
        refused(app, Failure::TooLarge(error.to_string()))
    } else if error.is_refusal() {
        app.metrics.server.conflicts.inc();
        Failure::Conflict(error.to_string())
    } else {
        app.metrics.server.deferred.inc();
        Failure::Busy(error.to_string())
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
