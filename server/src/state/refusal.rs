//! Why a batch was not taken in, each with what is to be done about it.

use wire::ids::{Rank, RunId, Step};

use super::budget;

/// Why a batch was not taken in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// It came before: acknowledged again, applied once.
    #[error("duplicate")]
    Duplicate,
    /// The server has as many runs as it takes.
    #[error("this server holds {0} runs, the most it takes: remove old ones from its data directory")]
    TooManyRuns(usize),
    /// A step has an absurd number.
    #[error(
        "rank {rank} of run {run} sent step {step}, and steps are numbered 0 to {}: number steps by the job's own count",
        budget::MOST_STEP
    )]
    StepNumber {
        /// The run.
        run: RunId,
        /// Who speaks.
        rank: Rank,
        /// The number.
        step: Step,
    },
    /// What the ranks say of themselves takes too much memory.
    #[error(
        "the ranks of run {run} have said {bytes} bytes about themselves and their devices, and {} is the most a run may: \
         send shorter names, or fewer of them",
        budget::RANK_BYTES
    )]
    TooMuchSaid {
        /// The run.
        run: RunId,
        /// How many bytes, with the refused batch.
        bytes: usize,
    },
    /// Another process has the rank, or may have ended a moment ago: the same batch may come in later.
    #[error(
        "rank {rank} of run {run} is taken by a process that was heard from {heard_ago_millis} ms ago; \
         if that process has ended, rank {rank} is free in some seconds"
    )]
    Wait {
        /// The run.
        run: RunId,
        /// The rank that both claim.
        rank: Rank,
        /// How long ago the other was heard from, in milliseconds.
        heard_ago_millis: i64,
    },
    /// Another process has the rank and is still alive.
    #[error(
        "two processes say that they are rank {rank} of run {run}: the first of them was heard from \
         {heard_ago_millis} ms ago and is still alive, so this one is refused. Give each process a rank of its own (RANK), and \
         each job a run id of its own (PACELINE_RUN_ID)"
    )]
    Taken {
        /// The run.
        run: RunId,
        /// The rank that both claim.
        rank: Rank,
        /// How long ago the other was heard from, in milliseconds.
        heard_ago_millis: i64,
    },
    /// The rank was restarted too often.
    #[error(
        "rank {rank} of run {run} was restarted too often for one run: start the job with another PACELINE_RUN_ID"
    )]
    TooManyLives {
        /// The run.
        run: RunId,
        /// The rank.
        rank: Rank,
    },
    /// It cannot be told from a duplicate any more.
    #[error(
        "this batch of rank {rank} of run {run} comes so late that the server cannot tell whether it came before"
    )]
    TooOld {
        /// The run.
        run: RunId,
        /// The rank.
        rank: Rank,
    },
    /// The run was set aside when the server started.
    #[error(
        "run {run} cannot be read from disk, so nothing is added to it: {reason}. Mend or move its directory and start the \
         server again, or give the job another PACELINE_RUN_ID"
    )]
    Aside {
        /// The run.
        run: RunId,
        /// Why it cannot be read.
        reason: String,
    },
    /// Its world size is not the run's.
    #[error(
        "rank {rank} says that run {run} has {said} ranks, the first batch of the run said {known}: \
         give every job a run id of its own"
    )]
    WorldSize {
        /// The run.
        run: RunId,
        /// Who speaks.
        rank: Rank,
        /// What it says.
        said: u32,
        /// What the run has.
        known: u32,
    },
}

impl ApplyError {
    /// True when the batch is not stored and never will be.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        !matches!(self, Self::Duplicate | Self::Wait { .. })
    }
}
