//! The files of several ranks as one job: which rank each is, and the batches that an agent on each rank would have sent.

mod batches;
mod clocks;
mod ranks;

use std::borrow::Cow;

use wire::batch::Batch;
use wire::ids::RunId;

use crate::calls::{self, Calls};
use crate::flight_recorder;
use crate::format::Format;
use crate::kineto::device_steps;
use crate::records::{RankRecords, records};
use crate::remarks::Remarks;
use crate::source::{Content, OfRank, Source};

/// What a rank of a file became.
#[derive(Clone, Debug)]
pub struct ImportedRank {
    /// The rank.
    pub rank: u32,
    /// The name of its file.
    pub file: String,
    /// The numbers of the imported steps ([`RankRecords::steps`]).
    pub steps: Vec<u64>,
    /// The number of kernels and copies in the file; 0 if its format holds none.
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
    /// What concerns all files, as sentences. What they say about a hang comes first.
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
    /// Two files are of different formats.
    #[error(
        "{first} is {first_format}, and {second} is {second_format}: import files of one format at a time"
    )]
    Mixed {
        /// A file.
        first: String,
        /// Its format.
        first_format: Format,
        /// Another file.
        second: String,
        /// Its format.
        second_format: Format,
    },
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
    /// A rank is too high.
    #[error("{file} is of rank {rank}, and a job has at most {} ranks", wire::batch::MAX_RANKS)]
    TooManyRanks {
        /// A file.
        file: String,
        /// The rank that it says.
        rank: u32,
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

/// A rank with its content and its records.
struct Found {
    rank: u32,
    file: String,
    of: OfRank,
    records: RankRecords,
}

/// Joins the files of one job, in any order.
///
/// # Errors
/// Returns an error if they cannot be of one job.
pub fn join(run: &RunId, name: &str, sources: Vec<Source>) -> Result<Job, NotAJob> {
    one_format(&sources)?;
    let placed = ranks::place(sources)?;
    let (world_size, mut remarks) = (placed.world_size, placed.remarks);
    let (ranks, files): (Vec<u32>, Vec<(String, OfRank)>) = placed.ranks.into_iter().unzip();
    let of: Vec<(u32, &OfRank)> = ranks.iter().copied().zip(files.iter().map(|(_, of)| of)).collect();
    let (records, said) = all_records(&of, world_size);
    said.into_iter().rev().for_each(|sentence| remarks.insert(0, sentence));
    let found = ranks.into_iter().zip(files).zip(records);
    let found: Vec<Found> =
        found.map(|((rank, (file, of)), records)| Found { rank, file, of, records }).collect();
    same_steps(&found)?;
    let batches = batches::batches(run, name, world_size, &found);
    Ok(Job { ranks: found.into_iter().map(imported).collect(), world_size, batches, remarks })
}

/// Checks that all files are of one format: their times mean different things.
fn one_format(sources: &[Source]) -> Result<(), NotAJob> {
    let Some((first, others)) = sources.split_first() else { return Err(NotAJob::Empty) };
    match others.iter().find(|other| other.format != first.format) {
        Some(second) => Err(NotAJob::Mixed {
            first: first.file.clone(),
            first_format: first.format,
            second: second.file.clone(),
            second_format: second.format,
        }),
        None => Ok(()),
    }
}

/// Returns the records of each rank, and what the files say of the job, as sentences.
fn all_records(of: &[(u32, &OfRank)], world_size: u32) -> (Vec<RankRecords>, Vec<String>) {
    let dumps: Vec<_> = of
        .iter()
        .filter_map(|&(rank, of)| match &of.content {
            Content::Dump(dump) => Some((rank, &**dump)),
            _ => None,
        })
        .collect();
    let mut sentences =
        if dumps.is_empty() { Vec::new() } else { flight_recorder::findings(&dumps, world_size) };
    let calls: Vec<Cow<'_, Calls>> = of.iter().filter_map(|(_, of)| calls_of(&of.content)).collect();
    if calls.len() == of.len() {
        let (timelines, remarks) =
            calls::timelines(&calls.iter().map(|calls| &**calls).collect::<Vec<_>>(), world_size);
        sentences.extend(remarks.sentences());
        return (timelines.iter().map(|timeline| timeline.records(world_size)).collect(), sentences);
    }
    let of_rank = |(rank, of): &(u32, &OfRank)| match &of.content {
        Content::Trace(trace) => records(trace, &device_steps(trace), *rank, world_size),
        Content::Timeline(timeline) => timeline.records(world_size),
        Content::Dump(_) | Content::Calls(_) => RankRecords::default(),
    };
    (of.iter().map(of_rank).collect(), sentences)
}

fn calls_of(content: &Content) -> Option<Cow<'_, Calls>> {
    match content {
        Content::Dump(dump) => Some(Cow::Owned(dump.calls())),
        Content::Calls(calls) => Some(Cow::Borrowed(calls)),
        Content::Trace(_) | Content::Timeline(_) => None,
    }
}

/// Checks that all ranks have a step in common.
fn same_steps(found: &[Found]) -> Result<(), NotAJob> {
    let Some((first, others)) = found.split_first() else { return Err(NotAJob::Empty) };
    let is_common = |step: &u64| first.records.steps.contains(step);
    match others.iter().find(|other| !other.records.steps.iter().any(is_common)) {
        Some(second) => Err(NotAJob::OtherSteps { first: first.file.clone(), second: second.file.clone() }),
        None => Ok(()),
    }
}

fn imported(found: Found) -> ImportedRank {
    let Found { rank, file, of, records } = found;
    let mut remarks: Remarks = of.remarks.clone();
    records.remarks.iter().for_each(|(text, _)| remarks.add(text));
    ImportedRank {
        rank,
        file,
        steps: records.steps,
        kernels: of.kernels(),
        collectives: records.collectives,
        remarks: remarks.sentences(),
    }
}
