//! Commands for the hub. What only reads a run is a [`RunQuery`].

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use wire::batch::Batch;
use wire::clock::ServerNanos;
use wire::ids::{Rank, RunId};
use wire::request::{RecordingRequest, Requests, TraceRequest};
use wire::views::captures::TraceComparison;

use super::query::RunQuery;
use super::refusal::{ApplyError, NotAccepted};
use crate::store::losses::Loss;

/// A command for the hub.
pub enum Command {
    /// Accept a batch: check it, make it durable, answer, and apply it.
    Ingest(Box<Arrived>),
    /// Apply a batch that is durable.
    Apply {
        batch: Box<Batch>,
        /// The time of arrival.
        received: ServerNanos,
        /// The reserved memory, released once the batch is applied.
        room: Option<OwnedSemaphorePermit>,
        /// Who waits until the batch is applied.
        waiting: Option<Waiting>,
    },
    /// Note that stored batches of a run were removed from the disk.
    Lost { run: RunId, lost: Vec<Loss> },
    /// Note that a run is viewed: a page shows it, or a request reads it.
    View { run: RunId },
    /// Ask ranks for a short recording.
    AskForRecording {
        run: RunId,
        recording: Recording,
        /// The rank, or `None` for all ranks.
        rank: Option<Rank>,
        /// The length of the recording, in milliseconds.
        millis: u16,
        /// The request, or `None` if there is no such run or rank.
        reply: oneshot::Sender<Option<RecordingRequest>>,
    },
    /// Ask ranks for a trace of some steps.
    AskForTrace { run: RunId, ranks: Vec<Rank>, request: TraceRequest },
    /// Note what differs between two traces.
    Traced {
        run: RunId,
        /// What differs.
        compared: Box<TraceComparison>,
    },
    /// Read a run.
    Query {
        run: RunId,
        /// What to read.
        query: RunQuery,
    },
}

impl Command {
    /// Returns the run that the command concerns.
    #[must_use]
    pub fn run(&self) -> &RunId {
        match self {
            Self::Ingest(arrived) => &arrived.batch.run,
            Self::Apply { batch, .. } => &batch.run,
            Self::Lost { run, .. }
            | Self::View { run }
            | Self::AskForRecording { run, .. }
            | Self::AskForTrace { run, .. }
            | Self::Traced { run, .. }
            | Self::Query { run, .. } => run,
        }
    }
}

/// A short recording that ranks are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recording {
    /// Every kernel and copy of their devices.
    Burst,
    /// The stacks of their threads.
    Stacks,
}

/// A batch that arrived.
pub struct Arrived {
    pub batch: Batch,
    /// The batch as it was sent.
    pub frame: Bytes,
    /// The time of arrival.
    pub received: ServerNanos,
    /// The reserved memory, released once the batch is applied.
    pub room: OwnedSemaphorePermit,
    /// What became of the batch.
    pub reply: AcceptReply,
}

/// Where the answer to a batch goes.
pub type AcceptReply = oneshot::Sender<Result<Accepted, NotAccepted>>;

/// What became of a batch that is acknowledged.
#[derive(Clone, Copy, Debug)]
pub enum Accepted {
    /// It arrived before, and is applied once.
    Before,
    /// It is durable, and applied before anything else of its rank.
    Stored {
        /// What it takes on disk, in bytes.
        bytes: u64,
        /// What its rank is asked for.
        asked: Requests,
    },
}

/// An answer that waits until a batch is applied.
pub struct Waiting {
    /// The answer, unless the batch cannot be applied.
    pub accepted: Accepted,
    /// Where it goes.
    pub reply: AcceptReply,
}

impl Waiting {
    /// Answers. The client may have disconnected.
    pub fn answer(self, applied: Result<(), ApplyError>) {
        let answer = match applied {
            Ok(()) | Err(ApplyError::Duplicate) => Ok(self.accepted),
            Err(error) => Err(NotAccepted::Denied(error)),
        };
        let _gone = self.reply.send(answer);
    }
}
