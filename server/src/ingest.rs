//! Ingestion, whoever carries the batches: a frame is decoded within the memory for batches in flight and passed to the
//! hub, which checks it, makes it durable, acknowledges it and applies it.

mod arriving;
mod room;

use bytes::Bytes;
use wire::batch::{MAX_PLAIN_BYTES, MAX_WIRE_BYTES};
use wire::codec::DecodeError;
use wire::request::Requests;

use crate::clock::ServerClock;
use crate::metrics::ServerMetrics;
use crate::state::command::{Accepted, Arrived, Command};
use crate::state::hub::{Hub, Stopped};
use crate::state::refusal::{ApplyError, NotAccepted};
pub use arriving::Arriving;
use room::Room;

/// The largest size of a decoded batch, in bytes: 16 MiB of lists and texts, and 65,536 records of 88 bytes.
const MAX_HELD_BYTES: usize = 22 << 20;
/// The largest ratio of decoded to encoded size that most batches have. A record takes 88 bytes decoded and about seven
/// encoded.
const GROWTH: usize = 16;

/// Where batches enter the server. Clones share it.
#[derive(Clone)]
pub struct Intake {
    hub: Hub,
    metrics: ServerMetrics,
    clock: ServerClock,
    room: Room,
}

/// The proof that a batch is durable.
#[derive(Clone, Debug)]
pub struct Receipt {
    /// The run, rank, incarnation and sequence number of the batch.
    pub batch: String,
    /// What its rank is asked for.
    pub asked: Requests,
}

/// The reason why a batch has no receipt.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// More arrives than a batch may have.
    #[error("the body is larger than {MAX_WIRE_BYTES} bytes")]
    FrameTooLarge,
    /// The memory for batches in flight is used up.
    #[error("the memory for batches in flight is used up: try again")]
    Full,
    /// The frame is not a valid batch.
    #[error(transparent)]
    Invalid(#[from] DecodeError),
    /// The hub does not accept the batch.
    #[error(transparent)]
    NotAccepted(#[from] NotAccepted),
    /// The hub does not answer.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// What the sender of a refused batch can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// Nothing: the batch is not valid.
    Invalid,
    /// Send less at once.
    TooLarge,
    /// Nothing: the batch contradicts its run.
    Conflict,
    /// Send the batch again.
    Busy,
    /// Nothing: the server failed.
    Failed,
}

impl Refusal {
    /// Returns what the sender can do.
    #[must_use]
    pub fn kind(&self) -> RefusalKind {
        match self {
            Self::FrameTooLarge | Self::Invalid(DecodeError::TooLarge { .. }) => RefusalKind::TooLarge,
            Self::Invalid(_) => RefusalKind::Invalid,
            Self::Full | Self::Stopped(_) => RefusalKind::Busy,
            Self::NotAccepted(NotAccepted::Denied(error)) => kind_of_denial(error),
            Self::NotAccepted(NotAccepted::NotStored(_)) => RefusalKind::Busy,
            Self::NotAccepted(NotAccepted::NotEncoded(_)) => RefusalKind::Failed,
        }
    }
}

fn kind_of_denial(error: &ApplyError) -> RefusalKind {
    match error {
        ApplyError::StepNumber { .. } => RefusalKind::Invalid,
        ApplyError::TooMuchSaid { .. } => RefusalKind::TooLarge,
        error if error.is_refusal() => RefusalKind::Conflict,
        _ => RefusalKind::Busy,
    }
}

impl Intake {
    /// Returns an intake that passes batches to `hub` and counts them in `metrics`.
    #[must_use]
    pub fn new(hub: Hub, metrics: ServerMetrics, clock: ServerClock) -> Self {
        Self { hub, metrics, clock, room: Room::default() }
    }

    /// Accepts an encoded batch. It is durable once this returns a receipt, and it is never applied without being durable.
    /// A batch that arrived before has a receipt again and is applied once.
    ///
    /// # Errors
    /// Returns the reason if the batch is not valid, does not fit its run, or cannot be stored now.
    pub async fn accept(&self, frame: Bytes) -> Result<Receipt, Refusal> {
        self.pass_on(frame).await.map_err(|refusal| self.counted(refusal))
    }

    async fn pass_on(&self, frame: Bytes) -> Result<Receipt, Refusal> {
        let received = self.clock.now();
        let expected = expected_bytes(&frame);
        let mut room = self.room.take(expected).await?;
        let batch = wire::codec::decode(&frame)?;
        // Tables of equal rows and lists of empty texts grow far more. Waiting for memory here would hold them meanwhile.
        let more = batch.held_bytes().saturating_sub(expected);
        room.merge(self.room.take_now(more)?);
        let (named, records) = (batch.receipt(), batch.events.len() as u64);
        let arrived = |reply| Command::Ingest(Box::new(Arrived { batch, frame, received, room, reply }));
        match self.hub.ask(arrived).await?? {
            Accepted::Before => Ok(Receipt { batch: named, asked: Requests::default() }),
            Accepted::Stored { bytes, asked } => {
                self.metrics.batches.inc();
                self.metrics.records.inc_by(records);
                self.metrics.bytes.inc_by(bytes);
                Ok(Receipt { batch: named, asked })
            }
        }
    }

    fn counted(&self, refusal: Refusal) -> Refusal {
        match (&refusal, refusal.kind()) {
            // The server stops, or its disk is busy with other runs: nothing is said of this batch.
            (Refusal::Stopped(_), _) | (_, RefusalKind::Failed) => {}
            (_, RefusalKind::Invalid | RefusalKind::TooLarge) => self.metrics.refused.inc(),
            (_, RefusalKind::Conflict) => self.metrics.conflicts.inc(),
            (_, RefusalKind::Busy) => self.metrics.deferred.inc(),
        }
        refusal
    }
}

/// Returns the expected size of a decoded frame, from the frame's uncompressed length.
fn expected_bytes(frame: &[u8]) -> usize {
    let plain = wire::codec::plain_length(frame).unwrap_or(0).min(MAX_PLAIN_BYTES);
    (GROWTH * plain).min(MAX_HELD_BYTES)
}

#[cfg(test)]
mod tests;
