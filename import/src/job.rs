//! The traces of several ranks as one job: which rank each is, and the batches that an agent on each rank would have sent.

mod batches;
mod clocks;
mod ranks;

use wire::batch::Batch;
use wire::ids::RunId;

use crate::kineto::{Trace, device_steps};
use crate::records::{RankRecords, records};

pub use ranks::Source;

/// What a file became.
#[derive(Clone, Debug)]
pub struct ImportedRank {
    /// The rank.
    pub rank: u32,
    /// The name of its file.
    pub file: String,
    /// The numbers of the imported steps ([`RankRecords::steps`]).
    pub steps: Vec<u64>,
    /// The number of kernels and copies in the file.
    pub kernels: u64,
    /// The number of collectives in the imported steps.
    pub collectives: u64,
    /// What is damaged, missing, or left out, as sentences.
    pub remarks: Vec<String>,
}

/// A job as its traces show it.
#[derive(Clone, Debug)]
pub struct Job {
    /// The ranks that have a file, in ascending order.
    pub ranks: Vec<ImportedRank>,
    /// The number of ranks of the job, with those that have no file.
    pub world_size: u32,
    /// The batches, in the order in which they are to be sent.
    pub batches: Vec<Batch>,
    /// What concerns all files, as sentences.
    pub remarks: Vec<String>,
}

impl Job {
    /// Returns the number of ranks that have no file.
    #[must_use]
    pub fn missing(&self) -> u32 {
        self.world_size - self.ranks.len() as u32
    }
}

/// The reason why traces are not one job.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum NotAJob {
    /// There is no trace.
    #[error("there is no trace to import")]
    Empty,
    /// Two files are of one rank.
    #[error(
        "{first} and {second} both say that they are of rank {rank}: import the traces of one job, of the same steps, at a time"
    )]
    SameRank {
        /// The rank.
        rank: u32,
        /// A file.
        first: String,
        /// Another file.
        second: String,
    },
    /// Two traces have no step in common.
    #[error(
        "{first} and {second} have no step in common: import the traces of one job, of the same steps, at a time"
    )]
    OtherSteps {
        /// A file.
        first: String,
        /// Another file.
        second: String,
    },
}

/// Joins the traces of the files of one job, in any order.
///
/// # Errors
/// Returns an error if they cannot be of one job.
pub fn join(run: &RunId, name: &str, sources: Vec<Source>) -> Result<Job, NotAJob> {
    let placed = ranks::place(sources)?;
    let mut found = Vec::with_capacity(placed.ranks.len());
    for (rank, Source { file, trace }) in placed.ranks {
        let records = records(&trace, &device_steps(&trace), placed.world_size);
        found.push((rank, file, trace, records));
    }
    same_steps(&found)?;
    let batches = batches::batches(run, name, placed.world_size, &found);
    let ranks =
        found.into_iter().map(|(rank, file, trace, records)| imported(rank, file, &trace, records)).collect();
    Ok(Job { ranks, world_size: placed.world_size, batches, remarks: placed.remarks })
}

/// Checks that all ranks have a step in common.
fn same_steps(found: &[(u32, String, Trace, RankRecords)]) -> Result<(), NotAJob> {
    let Some(((_, first, _, of_first), others)) = found.split_first() else { return Err(NotAJob::Empty) };
    match others.iter().find(|(.., records)| !records.steps.iter().any(|step| of_first.steps.contains(step)))
    {
        Some((_, second, ..)) => Err(NotAJob::OtherSteps { first: first.clone(), second: second.clone() }),
        None => Ok(()),
    }
}

fn imported(rank: u32, file: String, trace: &Trace, records: RankRecords) -> ImportedRank {
    let mut remarks = trace.remarks.clone();
    records.remarks.iter().for_each(|(text, _)| remarks.add(text));
    ImportedRank {
        rank,
        file,
        steps: records.steps,
        kernels: trace.work.len() as u64,
        collectives: records.collectives,
        remarks: remarks.sentences(),
    }
}
