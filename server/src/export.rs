//! Exports: the steps of a run in four formats for other tools, how its devices and hosts were used, and its report as text,
//! Markdown and HTML.
//!
//! All formats are written from the same [`model`], step by step, so a file may be larger than memory. Ranks whose
//! clock is not aligned cannot be placed in time and are left out of every format.

pub mod chrome;
pub mod comparison;
pub mod csv;
pub(crate) mod kernel_name;
pub mod model;
pub mod parquet;
pub mod perfetto;
pub mod report;
pub mod stacks;
pub mod text;
pub mod usage;

use std::io::{self, Write};
use std::str::FromStr;

use wire::ids::Step;
use wire::live::Waterfall;
use wire::usage::Usage;
use wire::views::RunSummary;

use crate::state::run::usage::MeasureHistory;

/// The number of steps that are exported by default.
pub const USUALLY_EXPORTED: u64 = 50;

/// The format of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Trace for <https://ui.perfetto.dev>, with arrows between the slices of a collective, and how devices and hosts were used
    Perfetto,
    /// Trace in the format of PyTorch's profiler, for HolisticTraceAnalysis and chrome://tracing
    Chrome,
    /// One row per bucket, step and rank, for `DuckDB`, Polars or Spark
    Parquet,
    /// The same rows as text
    Csv,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 4] = [Self::Perfetto, Self::Chrome, Self::Parquet, Self::Csv];

    /// Returns the name of the format in arguments and queries.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Perfetto => "perfetto",
            Self::Chrome => "chrome",
            Self::Parquet => "parquet",
            Self::Csv => "csv",
        }
    }

    /// Returns whether files of the format have measures of devices and hosts beside the steps.
    #[must_use]
    pub fn has_measures(self) -> bool {
        self == Self::Perfetto
    }

    /// Returns the file extension, without a dot.
    #[must_use]
    pub fn extension(self) -> &'static str {
        match self {
            Self::Perfetto => "pftrace",
            Self::Chrome => "json",
            Self::Parquet => "parquet",
            Self::Csv => "csv",
        }
    }

    /// Returns the media type.
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

/// The reason why nothing can be exported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The format does not exist.
    #[error("unknown format {0:?}: use perfetto, chrome, parquet or csv")]
    Format(String),
    /// The text is not a range of steps.
    #[error("invalid steps {0:?}: write A..B, for instance 100..120, both ends included")]
    Steps(String),
    /// The run has no step yet.
    #[error("run {0} has no steps yet")]
    NoSteps(String),
    /// The run has no step of the range, or no such step with an aligned clock.
    #[error("run {run} has no steps from {first} to {last} with an aligned clock; its newest is {newest}")]
    NothingThere {
        /// The run.
        run: String,
        /// The first step of the range.
        first: Step,
        /// The last step of the range.
        last: Step,
        /// The newest step of the run.
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

/// Parses the range of steps to export: `A..B`, both ends included. Without `text`, returns the newest
/// [`USUALLY_EXPORTED`] steps of the run.
///
/// # Errors
/// Returns an error if the text is not two numbers in ascending order, or if the run has no steps.
pub fn range(text: Option<&str>, summary: &RunSummary) -> Result<(Step, Step), Refusal> {
    let newest = summary.last_step.ok_or_else(|| Refusal::NoSteps(summary.run.to_string()))?;
    let Some(text) = text else {
        return Ok((Step(newest.saturating_sub(USUALLY_EXPORTED - 1)), Step(newest)));
    };
    parse_range(text)
}

/// Parses a range of steps, `A..B`, both ends included.
///
/// # Errors
/// Returns an error if the text is not two numbers in ascending order.
pub fn parse_range(text: &str) -> Result<(Step, Step), Refusal> {
    let range = text.split_once("..").and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    let range = range.filter(|(from, to)| from <= to);
    range.map(|(from, to)| (Step(from), Step(to))).ok_or_else(|| Refusal::Steps(text.to_owned()))
}

/// A writer of steps in one of the formats.
#[allow(clippy::large_enum_variant, reason = "there is one writer per file, and it is not moved")]
pub enum Writer<W: Write + Send> {
    /// A trace for Perfetto.
    Perfetto(perfetto::Writer<W>),
    /// A Chrome trace, all ranks in one file.
    Chrome(chrome::Writer<W>),
    /// Rows in Parquet.
    Parquet(parquet::Writer<W>),
    /// Rows as text.
    Csv(csv::Writer<W>),
}

impl<W: Write + Send> Writer<W> {
    /// Begins a file. If `rank` is given, only that rank is written.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn begin(format: Format, out: W, run: &RunSummary, rank: Option<u32>) -> io::Result<Self> {
        Ok(match format {
            Format::Perfetto => Self::Perfetto(perfetto::Writer::begin(out, run, rank)?),
            Format::Chrome => Self::Chrome(chrome::Writer::begin(out, run, rank)?),
            Format::Parquet => Self::Parquet(parquet::Writer::begin(out, run, rank)?),
            Format::Csv => Self::Csv(csv::Writer::begin(out, rank)?),
        })
    }

    /// Adds a step. Steps must be added in ascending order.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn step(&mut self, step: &Waterfall) -> io::Result<()> {
        match self {
            Self::Perfetto(writer) => writer.step(step),
            Self::Chrome(writer) => writer.step(step),
            Self::Parquet(writer) => writer.step(step),
            Self::Csv(writer) => writer.step(step),
        }
    }

    /// Adds a measure of devices or hosts, by rank, during the steps that were added. Only traces for Perfetto have room for it.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn measure(&mut self, usage: Usage, ranks: &[MeasureHistory]) -> io::Result<()> {
        match self {
            Self::Perfetto(writer) => {
                writer.measure(usage, ranks.iter().map(|history| history.values().samples().collect()))
            }
            Self::Chrome(_) | Self::Parquet(_) | Self::Csv(_) => Ok(()),
        }
    }

    /// Ends the file and returns the underlying writer.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
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
