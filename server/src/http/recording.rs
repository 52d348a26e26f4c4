//! Requests to ranks for a short recording: a burst, or stacks.

use axum::Json;
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;
use wire::ids::Rank;
use wire::request::{MAX_MILLIS, RecordingRequest};

use super::App;
use super::api::find;
use super::error::Failure;
use crate::state::command::{Command, Recording};

/// The ranks to record, and for how long.
#[derive(Debug, Deserialize, IntoParams)]
pub struct RecordingQuery {
    /// The rank to record. Default: all ranks.
    rank: Option<u32>,
    /// The length of the recording, in milliseconds: 1 to 5,000.
    millis: Option<u16>,
}

impl RecordingQuery {
    /// Asks the ranks of a run.
    ///
    /// # Errors
    /// Returns an error if there is no such run or rank, or if the length is not allowed.
    pub async fn ask(
        &self,
        app: &App,
        run: &str,
        recording: Recording,
        default_millis: u16,
    ) -> Result<(StatusCode, Json<RecordingRequest>), Failure> {
        let run = find(app, run)?.summary.run.clone();
        let millis = self.millis.unwrap_or(default_millis);
        if !(1..=MAX_MILLIS).contains(&millis) {
            return Err(Failure::BadRequest(format!("millis is {millis}, but must be 1 to {MAX_MILLIS}")));
        }
        let rank = self.rank.map(Rank);
        let ask = |reply| Command::AskForRecording { run, recording, rank, millis, reply };
        let asked = app.hub.ask(ask).await?;
        let missing = || Failure::NotFound(format!("the run has no rank {}", self.rank.unwrap_or(0)));
        Ok((StatusCode::ACCEPTED, Json(asked.ok_or_else(missing)?)))
    }
}
