//! The reasons for refusing a batch, each with its remedy.

use wire::ids::{Rank, RunId, Step};

use super::budget;
use crate::store::log::AppendError;

/// The reason why a batch is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The batch arrived before. It is acknowledged again, but applied once.
    #[error("duplicate")]
    Duplicate,
    /// The server has as many runs as it accepts.
    #[error("this server holds {0} runs, which is its limit: remove old runs from its data directory")]
    TooManyRuns(usize),
    /// All runs together take as much memory as they may, and this one is new or takes more than its share.
    #[error(
        "the runs in this server's memory take the {} that they may, and nothing of them can be dropped, so this batch of run \
         {run} is not accepted now: it is once another run has ended. The job continues meanwhile",
        units::bytes(*most as u64)
    )]
    NoRoom {
        run: RunId,
        /// The largest size of all runs in memory, in bytes.
        most: usize,
    },
    /// A new run has an id that commands read as an option.
    #[error(
        "run id {:?} begins with a dash, which commands read as an option: start the job with another \
         PACELINE_RUN_ID",
        run.as_str()
    )]
    LikeAnOption { run: RunId },
    /// A step number is too large.
    #[error(
        "rank {rank} of run {run} sent step {step}, but step numbers go from 0 to {}: use the job's own step count",
        budget::MAX_STEP
    )]
    StepNumber {
        run: RunId,
        /// The rank that sent the batch.
        rank: Rank,
        /// The step number.
        step: Step,
    },
    /// The notes of the ranks take too much memory.
    #[error(
        "the notes of ranks, devices and hosts of run {run} take {bytes} bytes, and the limit per run is {}: \
         send fewer or shorter names",
        budget::RANK_BYTES
    )]
    TooMuchSaid {
        run: RunId,
        /// The size with the refused batch, in bytes.
        bytes: usize,
    },
    /// Another process has the rank, or ended a moment ago. The same batch may be accepted later.
    #[error(
        "rank {rank} of run {run} is taken by another process, last heard from {heard_ago_millis} ms ago: \
         if that process has ended, rank {rank} is free within seconds"
    )]
    Wait {
        run: RunId,
        /// The rank that both processes claim.
        rank: Rank,
        /// The time since the other process was last heard from, in milliseconds.
        heard_ago_millis: i64,
    },
    /// Another process has the rank and is still alive.
    #[error(
        "two processes claim to be rank {rank} of run {run}: the first one is alive (last heard from \
         {heard_ago_millis} ms ago), so this one is refused. Give each process its own rank (RANK), and each job \
         its own run id (PACELINE_RUN_ID)"
    )]
    Taken {
        run: RunId,
        /// The rank that both processes claim.
        rank: Rank,
        /// The time since the other process was last heard from, in milliseconds.
        heard_ago_millis: i64,
    },
    /// The rank was restarted too often.
    #[error("rank {rank} of run {run} was restarted too often: start the job with another PACELINE_RUN_ID")]
    TooManyIncarnations { run: RunId, rank: Rank },
    /// The batch is no longer distinguishable from a duplicate.
    #[error(
        "this batch of rank {rank} of run {run} arrives so late that the server cannot tell whether it is a duplicate"
    )]
    TooOld { run: RunId, rank: Rank },
    /// The run is set aside.
    #[error(
        "run {run} cannot be read from disk, so it accepts no batches: {reason}. Repair or move its directory and \
         restart the server, or give the job another PACELINE_RUN_ID"
    )]
    Aside {
        run: RunId,
        /// The reason why the run cannot be read.
        reason: String,
    },
    /// The batch's world size differs from the run's, and a process of the run was heard from a moment ago. The same batch
    /// may be accepted later.
    #[error(
        "rank {rank} says that run {run} has {said} ranks, but it has {known}, and the last batch of these arrived \
         {heard_ago_millis} ms ago: once they have all ended, the job may continue with {said} ranks"
    )]
    WaitForWorld {
        run: RunId,
        /// The rank that sent the batch.
        rank: Rank,
        /// The batch's world size.
        said: u32,
        /// The run's world size.
        known: u32,
        /// The time since a process of the run was last heard from, in milliseconds.
        heard_ago_millis: i64,
    },
    /// The batch's world size differs from the run's, whose processes are alive or have been followed by others.
    #[error(
        "rank {rank} says that run {run} has {said} ranks, but it has {known}: give each job its own run id \
         (PACELINE_RUN_ID)"
    )]
    WorldSize {
        run: RunId,
        /// The rank that sent the batch.
        rank: Rank,
        /// The batch's world size.
        said: u32,
        /// The run's world size.
        known: u32,
    },
}

impl ApplyError {
    /// Returns true if the batch is not stored and never will be.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        !matches!(self, Self::Duplicate | Self::NoRoom { .. } | Self::Wait { .. } | Self::WaitForWorld { .. })
    }
}

/// The reason why a batch is not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAccepted {
    /// It may not be stored.
    #[error(transparent)]
    Denied(#[from] ApplyError),
    /// It cannot be stored now.
    #[error(transparent)]
    NotStored(#[from] AppendError),
    /// It cannot be encoded with the step numbers that it gets.
    #[error("{0}")]
    NotEncoded(String),
}
