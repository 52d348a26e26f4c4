//! The files of several ranks as one job: which rank each is, and the batches that an agent on each rank would have sent.
//!
//! Ranks are converted on all cores. What a file holds of a rank is dropped as soon as its batches are packed, because packed
//! records take a small part of the memory.

mod batches;
mod clocks;
mod cut;
mod matching;
mod ranks;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;

use rayon::iter::{IntoParallelIterator as _, ParallelIterator as _};
use timing::parts::comm_of_parts;
use wire::batch::Bye;
use wire::event::Event;
use wire::ids::RunId;

use crate::calls::{self, Calls};
use crate::flight_recorder::{self, Findings};
use crate::format::Format;
use crate::kineto::device_steps;
use crate::records::{RankRecords, records};
use crate::remarks::Remarks;
use crate::source::{Content, RankRecording, Source};
use crate::timeline::Timeline;

pub use batches::Round;

use batches::Packed;
use clocks::Proof;
use ranks::{Placed, RankFile};

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
    /// The batches, packed ([`wire::codec::encode`]). A round is to be sent whole before the next one.
    pub rounds: Vec<Round>,
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
        first_format: Format,
        /// Another file.
        second: String,
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
    /// The records cannot be packed.
    #[error("the records cannot be packed: {0}")]
    NotPacked(String),
}

/// A rank whose records are packed.
struct Converted {
    imported: ImportedRank,
    /// By how much its times may be off against another rank's of its clock, in nanoseconds.
    error_nanos: u64,
    /// Whether its times are on one clock with those of the other files.
    is_placed: bool,
    /// Whether its collectives are numbered from the end of each step, because its file does not number them.
    counts_from_end: bool,
    proofs: Vec<Proof>,
    packed: Packed,
}

impl Converted {
    /// Returns what is known of its clock. `first` is the file of the first rank.
    fn recorded(&self, first: Option<&String>) -> clocks::Recorded<'_> {
        clocks::Recorded {
            proofs: &self.proofs,
            is_of_first: self.is_placed || Some(&self.imported.file) == first,
            error_nanos: self.error_nanos,
        }
    }
}

/// Joins the files of one job, in any order.
///
/// # Errors
/// Returns an error if they cannot be of one job.
pub fn join(run: &RunId, name: &str, sources: Vec<Source>) -> Result<Job, NotAJob> {
    one_format(&sources)?;
    let is_one_file = sources.len() == 1;
    let Placed { ranks, world_size, mut remarks } = ranks::place(sources)?;
    let (together, Findings { sentences, hang }) = together(&ranks, world_size);
    sentences.into_iter().rev().for_each(|sentence| remarks.insert(0, sentence));
    let count = ranks.len();
    let ranks: Vec<_> = ranks.into_iter().zip(together).collect();
    let convert = |((rank, RankFile { file, recording }), timeline): ((u32, RankFile), Option<Timeline>)| {
        let is_placed = timeline.as_ref().is_some_and(|timeline| timeline.is_placed);
        let mut records = match timeline {
            Some(timeline) => timeline.records(world_size),
            None => records_of(&recording, rank, world_size),
        };
        // Ranks of one file have one clock.
        let has_one_clock = is_one_file || is_placed;
        let proofs = if has_one_clock { Vec::new() } else { clocks::proofs(&records.events) };
        let goodbye = goodbye(hang.as_ref(), rank);
        let packer = batches::Packer {
            run,
            name,
            world_size,
            rank,
            file: &file,
            recording: &recording,
            ranks: count,
            goodbye: &goodbye,
        };
        let packed = packer.pack(&mut records).map_err(|error| NotAJob::NotPacked(error.to_string()))?;
        // Ranks end a collective together, as well as devices do.
        let error_nanos = if is_placed { clocks::APART_NANOS } else { recording.error_nanos() };
        let counts_from_end = matches!(recording.content, Content::Trace(_));
        let imported = imported(rank, file, &recording, records);
        Ok(Converted { imported, error_nanos, is_placed, counts_from_end, proofs, packed })
    };
    let mut converted: Vec<Converted> = ranks.into_par_iter().map(convert).collect::<Result<_, _>>()?;
    same_steps(&converted)?;
    match_collectives(&mut converted).map_err(|error| NotAJob::NotPacked(error.to_string()))?;
    let first = converted.first().map(|first| &first.imported.file);
    let recorded = converted.iter().map(|rank| rank.recorded(first));
    let clocks = clocks::align(&recorded.collect::<Vec<_>>());
    let (ranks, packed): (_, Vec<Packed>) =
        converted.into_iter().map(|rank| (rank.imported, rank.packed)).unzip();
    let rounds = batches::rounds(packed, clocks).map_err(|error| NotAJob::NotPacked(error.to_string()))?;
    Ok(Job { ranks, world_size, rounds, remarks })
}

/// Returns the last message of a rank. Of a job that hung, no rank has completed its work, and those that the others wait for say what is
/// known; all do if no dump says which these are.
fn goodbye(hang: Option<&flight_recorder::Hang>, rank: u32) -> Bye {
    let Some(hang) = hang else { return Bye { completed: true, reason: String::new() } };
    let speaks = hang.ranks.is_empty() || hang.ranks.contains(&rank);
    Bye { completed: false, reason: if speaks { hang.sentence.clone() } else { String::new() } }
}

/// Finds out which collectives of traces are the same ([`matching`]).
fn match_collectives(converted: &mut [Converted]) -> io::Result<()> {
    if !converted.iter().all(|rank| rank.counts_from_end) {
        return Ok(());
    }
    let mut proofs: Vec<Vec<Proof>> = converted.iter().map(|rank| rank.proofs.clone()).collect();
    let known = clocks::from_ends(&matching::alike(&proofs));
    let changes = matching::matched(&mut proofs, &known);
    for ((rank, proofs), places) in converted.iter_mut().zip(proofs).zip(changes) {
        let unmatched = std::mem::replace(&mut rank.proofs, proofs);
        if places.is_empty() {
            continue;
        }
        let parts = comm_of_parts(rank.imported.rank);
        let windows = cut::windows(&unmatched, &places);
        rank.packed.change(|event| {
            if let Event::Bucket(bucket) = event {
                matching::replace(bucket, &places, parts);
            }
            cut::clip(event, &windows)
        })?;
        let left_out = places.values().filter(|place| place.is_none()).count() as u64;
        if left_out > 0 {
            rank.imported.remarks.push(format!(
                "{left_out} of {} collectives are left out, because the file of another rank lacks them",
                rank.imported.collectives
            ));
        }
    }
    Ok(())
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

/// Returns the timelines of ranks whose files say only together when something happened. Also returns what the files say of the job.
fn together(ranks: &BTreeMap<u32, RankFile>, world_size: u32) -> (Vec<Option<Timeline>>, Findings) {
    let contents = || ranks.iter().map(|(&rank, of_file)| (rank, &of_file.recording.content));
    let dumps: Vec<_> = contents()
        .filter_map(|(rank, content)| match content {
            Content::Dump(dump) => Some((rank, &**dump)),
            _ => None,
        })
        .collect();
    let mut findings = match dumps.is_empty() {
        true => Findings::default(),
        false => flight_recorder::findings(&dumps, world_size),
    };
    let calls: Vec<Cow<'_, Calls>> = contents().filter_map(|(_, content)| calls_of(content)).collect();
    if calls.len() < ranks.len() {
        return (vec![None; ranks.len()], findings);
    }
    let (timelines, remarks) =
        calls::timelines(&calls.iter().map(|calls| &**calls).collect::<Vec<_>>(), world_size);
    findings.sentences.extend(remarks.sentences());
    (timelines.into_iter().map(Some).collect(), findings)
}

/// Returns the records of a rank whose file tells when something happened.
fn records_of(recording: &RankRecording, rank: u32, world_size: u32) -> RankRecords {
    match &recording.content {
        Content::Trace(trace) => records(trace, &device_steps(trace), rank, world_size),
        Content::Timeline(timeline) => timeline.records(world_size),
        Content::Shared(shared) => shared.timeline(rank).records(world_size),
        Content::Dump(_) | Content::Calls(_) => RankRecords::default(),
    }
}

fn calls_of(content: &Content) -> Option<Cow<'_, Calls>> {
    match content {
        Content::Dump(dump) => Some(Cow::Owned(dump.calls())),
        Content::Calls(calls) => Some(Cow::Borrowed(calls)),
        Content::Trace(_) | Content::Timeline(_) | Content::Shared(_) => None,
    }
}

/// Checks that all ranks have a step in common.
fn same_steps(converted: &[Converted]) -> Result<(), NotAJob> {
    let mut ranks = converted.iter().map(|rank| &rank.imported);
    let Some(first) = ranks.next() else { return Err(NotAJob::Empty) };
    let is_common = |step: &u64| first.steps.contains(step);
    match ranks.find(|other| !other.steps.iter().any(is_common)) {
        Some(second) => Err(NotAJob::OtherSteps { first: first.file.clone(), second: second.file.clone() }),
        None => Ok(()),
    }
}

fn imported(rank: u32, file: String, recording: &RankRecording, records: RankRecords) -> ImportedRank {
    let mut remarks: Remarks = recording.remarks.clone();
    remarks.append(records.remarks);
    ImportedRank {
        rank,
        file,
        steps: records.steps,
        kernels: recording.kernels(),
        collectives: records.collectives,
        remarks: remarks.sentences(),
    }
}
