//! What is left after a run: its steps in four formats for other tools, and its report for people.
//!
//! Every format is written from the one model of [`model`], step by step, so that a file may be larger than
//! memory. Ranks whose clock is not aligned cannot be placed and are left out of all of them.

pub mod chrome;
pub mod comparison;
pub mod csv;
pub mod model;
pub mod parquet;
pub mod perfetto;
pub mod report;
pub mod text;

use std::io::{self, Write};
use std::str::FromStr;

use wire::ids::Step;
use wire::live::Waterfall;
use wire::views::RunSummary;

/// Steps an export holds when none are named.
pub const USUALLY_EXPORTED: u64 = 50;

/// What a file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// A trace for <https://ui.perfetto.dev>: a process per rank, arrows join a collective over the ranks
    Perfetto,
    /// A trace in the shape of PyTorch's profiler, for HolisticTraceAnalysis and chrome://tracing
    Chrome,
    /// One row a bucket, step and rank, for `DuckDB`, Polars or Spark
    Parquet,
    /// The same rows as text
    Csv,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 4] = [Self::Perfetto, Self::Chrome, Self::Parquet, Self::Csv];

    /// The name as it is asked for.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Perfetto => "perfetto",
            Self::Chrome => "chrome",
            Self::Parquet => "parquet",
            Self::Csv => "csv",
        }
    }

    /// How files of it end.
    #[must_use]
    pub fn extension(self) -> &'static str {
        match self {
            Self::Perfetto => "pftrace",
            Self::Chrome => "json",
            Self::Parquet => "parquet",
            Self::Csv => "csv",
        }
    }

    /// Its media type.
    #[must_use]
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Perfetto => "application/octet-stream",
            Self::Chrome => "application/json",
            Self::Parquet => "application/vnd.apache.parquet",
            Self::Csv => "text/csv; charset=utf-8",
        }
    }
}

/// Why there is nothing to export.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No such format.
    #[error("format {0:?}: there are perfetto, chrome, parquet and csv")]
    Format(String),
    /// Not a range.
    #[error("steps {0:?}: write A..B, for instance 100..120, both ends included")]
    Steps(String),
    /// The run has no step yet.
    #[error("run {0} has no steps yet")]
    NoSteps(String),
    /// None of the steps is there.
    #[error("run {run} has no steps {first} to {last} that can be placed in time; its newest is {newest}")]
    NothingThere {
        /// The run.
        run: String,
        /// The first step that was asked for.
        first: Step,
        /// The last.
        last: Step,
        /// The newest step there is.
        newest: u64,
    },
}

impl FromStr for Format {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let found = Self::ALL.into_iter().find(|format| format.name() == text);
        found.ok_or_else(|| Refusal::Format(text.to_owned()))
    }
}

/// The steps to export of a run: `A..B`, both ends included, or its newest few.
///
/// # Errors
/// When the text is not two numbers, the first not above the second; when the run has no steps.
pub fn range(text: Option<&str>, summary: &RunSummary) -> Result<(Step, Step), Refusal> {
    let newest = summary.last_step.ok_or_else(|| Refusal::NoSteps(summary.run.to_string()))?;
    let Some(text) = text else {
        return Ok((Step(newest.saturating_sub(USUALLY_EXPORTED - 1)), Step(newest)));
    };
    let range = text.split_once("..").and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    let range = range.filter(|(from, to)| from <= to);
    range.map(|(from, to)| (Step(from), Step(to))).ok_or_else(|| Refusal::Steps(text.to_owned()))
}

/// Writes steps in one format, as they come.
#[allow(clippy::large_enum_variant, reason = "there is one for each file, and it stays where it is")]
pub enum Writer<W: Write + Send> {
    /// For Perfetto.
    Perfetto(perfetto::Writer<W>),
    /// All ranks in one file.
    Chrome(chrome::Writer<W>),
    /// Rows.
    Parquet(parquet::Writer<W>),
    /// Rows as text.
    Csv(csv::Writer<W>),
}

impl<W: Write + Send> Writer<W> {
    /// Begins a file. `rank` keeps only that rank.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn begin(format: Format, out: W, run: &RunSummary, rank: Option<u32>) -> io::Result<Self> {
        Ok(match format {
            Format::Perfetto => Self::Perfetto(perfetto::Writer::begin(out, run, rank)?),
            Format::Chrome => Self::Chrome(chrome::Writer::begin(out, run, rank)?),
            Format::Parquet => Self::Parquet(parquet::Writer::begin(out, run, rank)?),
            Format::Csv => Self::Csv(csv::Writer::begin(out, rank)?),
        })
    }

    /// Adds a step; steps come in order.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn step(&mut self, step: &Waterfall) -> io::Result<()> {
        match self {
            Self::Perfetto(writer) => writer.step(step),
            Self::Chrome(writer) => writer.step(step),
            Self::Parquet(writer) => writer.step(step),
            Self::Csv(writer) => writer.step(step),
        }
    }

    /// Ends the file and gives back what it was written to.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(self) -> io::Result<W> {
        match self {
            Self::Perfetto(writer) => writer.finish(),
            Self::Chrome(writer) => writer.finish(),
            Self::Parquet(writer) => writer.finish(),
            Self::Csv(writer) => Ok(writer.finish()),
        }
    }
}

#[cfg(test)]
mod tests;
