//! A request for a step that has left memory.

use std::time::Instant;

use tokio::sync::oneshot;
use wire::ids::{RunId, Step};

use super::not_shown::NotShown;
use super::stored::{self, Limits, Lost, NotRead};
use crate::state::budget;
use crate::state::steps::incoming::Closed;
use crate::state::steps::placed::Placed;
use crate::store::folder::RunFolder;

/// Where the answer to a request for a step goes.
pub type PlacedReply = oneshot::Sender<Result<Placed, NotShown>>;

/// The result of reading a step: the step, if any file has records of it, and the damage in the files that were read.
pub type Read = Result<(Option<Closed>, Vec<Lost>), NotRead>;

/// A step to read.
pub struct Request {
    pub run: RunId,
    pub step: Step,
    /// The reply channel of the request, or `None` for an example step of a verdict.
    pub reply: Option<PlacedReply>,
}

impl Request {
    /// Returns true if no one waits for the answer any more: the client has disconnected.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.reply.as_ref().is_some_and(PlacedReply::is_closed)
    }

    /// Answers, if someone waits for it.
    pub fn answer(self, shown: Result<Box<Placed>, NotShown>) {
        if let Some(reply) = self.reply {
            answer(reply, shown);
        }
    }
}

/// Sends a reply. It may fail because the client has disconnected.
pub fn answer(reply: PlacedReply, shown: Result<Box<Placed>, NotShown>) {
    let _gone = reply.send(shown.map(|placed| *placed));
}

/// Reads a step within the limits of one request.
///
/// # Errors
/// Returns an error if the step cannot be read ([`NotRead`]).
pub fn read(folder: &RunFolder, step: Step) -> Read {
    let limits = Limits { bytes: budget::RECALL_BYTES, deadline: Instant::now() + budget::RECALL_WITHIN };
    stored::read_step(folder, step, &limits)
}
