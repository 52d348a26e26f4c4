//! `paceline export`, which writes steps of a run to a file or a directory.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use anyhow::{Context as _, bail};
use flate2::Compression;
use flate2::write::GzEncoder;
use wire::live::Waterfall;
use wire::usage::Usage;
use wire::views::RunSummary;

use super::{ExportArguments, print, progress, runs};
use crate::clock::ServerClock;
use crate::export::chrome::Directory;
use crate::export::{self, Format, Refusal, Writer};
use crate::state::restore;
use crate::state::run::Run;
use crate::state::run::usage::MeasureHistory;
use crate::store::directory::Layout;

pub(super) fn export(arguments: &ExportArguments) -> anyhow::Result<()> {
    let layout = Layout::new(arguments.data.path());
    let run = runs::find(&layout, &arguments.run)?;
    let now = ServerClock::start().now();
    let summary = run.summary(&run.report(usize::MAX, now), now);
    if let Some(rank) = arguments.rank.filter(|&rank| rank >= summary.most_ranks) {
        bail!("run {} has no rank {rank}: its ranks are 0 to {}", summary.run, summary.most_ranks - 1);
    }
    if arguments.utilization {
        return utilization(arguments, &run, &summary);
    }
    let measures: Measures = match arguments.format.has_measures() {
        true => Usage::ALL.into_iter().map(|usage| (usage, run.usage(usage))).collect(),
        false => Vec::new(),
    };
    // The records of a large run take room that reading its steps needs. The measures are compressed.
    drop(run);
    let (first, last) = export::range(arguments.steps.as_deref(), &summary)?;
    let mut sink: Option<Sink> = None;
    let (mut steps, mut unplaced) = (0_u64, 0_u64);
    let bar = progress::bar("export", last.0 - first.0 + 1);
    restore::waterfalls(&layout, &summary.run, (first, last), |waterfall| {
        bar.inc(1);
        if waterfall.rank.is_empty() {
            unplaced += 1;
            return Ok(());
        }
        // Opened only when there is a step to write: an error leaves no empty file.
        let sink = match &mut sink {
            Some(sink) => sink,
            none => none.insert(Sink::open(arguments, &summary)?),
        };
        steps += 1;
        sink.step(waterfall).with_context(|| format!("cannot write {}", arguments.output.display()))
    })?;
    bar.finish_and_clear();
    let Some(mut sink) = sink else {
        let newest = summary.last_step.unwrap_or(0);
        return Err(Refusal::NothingThere { run: summary.run.to_string(), first, last, newest }.into());
    };
    sink.measures(&measures).with_context(|| format!("cannot write {}", arguments.output.display()))?;
    let what = sink.finish().with_context(|| format!("cannot write {}", arguments.output.display()))?;
    let left_out = match unplaced {
        0 => String::new(),
        some => format!(" ({some} steps are left out because no clock is aligned)"),
    };
    print(&format!(
        "{steps} steps of {} written to {}{left_out}: {what}\n",
        summary.run,
        arguments.output.display()
    ))
}

/// Exports how devices and hosts were used over time.
fn utilization(arguments: &ExportArguments, run: &Run, summary: &RunSummary) -> anyhow::Result<()> {
    let path = &arguments.output;
    let is_wanted = |rank: u32| arguments.rank.is_none_or(|only| only == rank);
    let has_samples = run.usage_bytes_by_rank().any(|(rank, bytes)| is_wanted(rank) && bytes > 0);
    if !has_samples {
        bail!("run {} has no samples of devices or hosts", summary.run);
    }
    let written = match arguments.format {
        Format::Csv => Out::create(path).and_then(|mut out| {
            let written = export::usage::csv(&mut out, run, arguments.rank)?;
            out.finish().map(|()| written)
        }),
        Format::Parquet => Out::create(path).and_then(|mut out| {
            let written = export::usage::parquet(&mut out, run, summary, arguments.rank)?;
            out.finish().map(|()| written)
        }),
        Format::Perfetto | Format::Chrome => {
            bail!("--utilization writes tables: give --format csv or --format parquet")
        }
    };
    let written = written.with_context(|| format!("cannot write {}", path.display()))?;
    print(&format!(
        "{written} rows of {} written to {}: one per sample, rank and measure\n",
        summary.run,
        path.display()
    ))
}

/// How devices and hosts were used: each measure, by rank.
type Measures = Vec<(Usage, Vec<MeasureHistory>)>;

/// The output of an export.
enum Sink {
    One(Box<Writer<Out>>, Format),
    PerRank(Directory),
}

impl Sink {
    /// Opens the output. A Chrome trace of all ranks is a directory with one file per rank, as HolisticTraceAnalysis
    /// expects, unless the name is that of a file.
    fn open(arguments: &ExportArguments, run: &RunSummary) -> anyhow::Result<Self> {
        let path = &arguments.output;
        let context = || format!("cannot write {}", path.display());
        let is_file = path.to_string_lossy().ends_with(".json") || is_gzip(path);
        if arguments.format == Format::Chrome && arguments.rank.is_none() && !is_file {
            return Ok(Self::PerRank(Directory::begin(path, run).with_context(context)?));
        }
        let out = Out::create(path).with_context(context)?;
        let writer = Writer::begin(arguments.format, out, run, arguments.rank).with_context(context)?;
        Ok(Self::One(Box::new(writer), arguments.format))
    }

    fn step(&mut self, step: &Waterfall) -> io::Result<()> {
        match self {
            Self::One(writer, _) => writer.step(step),
            Self::PerRank(directory) => directory.step(step),
        }
    }

    /// Adds how devices and hosts were used.
    fn measures(&mut self, measures: &Measures) -> io::Result<()> {
        match self {
            Self::One(writer, _) => {
                measures.iter().try_for_each(|(usage, ranks)| writer.measure(*usage, ranks))
            }
            Self::PerRank(_) => Ok(()),
        }
    }

    /// Ends the output, and returns what it can be used for.
    fn finish(self) -> io::Result<String> {
        match self {
            Self::PerRank(directory) => {
                let files = directory.finish()?;
                Ok(format!("{files} files, one per rank; open the directory in HolisticTraceAnalysis"))
            }
            Self::One(writer, format) => {
                writer.finish()?.finish()?;
                Ok(match format {
                    Format::Perfetto => "open it at https://ui.perfetto.dev",
                    Format::Chrome => "open it at chrome://tracing or https://ui.perfetto.dev",
                    Format::Parquet | Format::Csv => "one row per bucket, step and rank",
                }
                .into())
            }
        }
    }
}

/// A file, compressed if its name ends in `.gz`.
enum Out {
    Plain(BufWriter<File>),
    Gzip(Box<GzEncoder<BufWriter<File>>>),
}

fn is_gzip(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "gz")
}

impl Out {
    fn create(path: &Path) -> io::Result<Self> {
        let file = BufWriter::with_capacity(256 << 10, File::create(path)?);
        let gzip = |file| Self::Gzip(Box::new(GzEncoder::new(file, Compression::fast())));
        Ok(if is_gzip(path) { gzip(file) } else { Self::Plain(file) })
    }

    fn finish(self) -> io::Result<()> {
        match self {
            Self::Plain(mut file) => file.flush(),
            Self::Gzip(encoder) => encoder.finish()?.flush(),
        }
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(file) => file.write(bytes),
            Self::Gzip(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(file) => file.flush(),
            Self::Gzip(encoder) => encoder.flush(),
        }
    }
}
