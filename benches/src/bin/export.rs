//! Measures how long an export of a million slices takes: `cargo xtask bench export`.
//!
//! The records are those of a simulated job; the code is the real code. *encode* is the time from slices in memory to a
//! file. *whole* is the time of `paceline export` once it has found the run: read a sealed segment, analyze every step,
//! place its slices, and write them.
#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::time::Instant;

use paceline::export::chrome::Directory;
use paceline::export::{Format, Writer, model};
use paceline::state::restore;
use paceline::state::run::Run;
use paceline::state::steps::placed::Placed;
use paceline::store::directory::Layout;
use paceline::store::sealer;
use serde_json::json;
use testkit::results::Results;
use testkit::simulator::{Plan, Simulation};
use testkit::spread::median;
use testkit::stored;
use wire::ids::Step;
use wire::live::Waterfall;
use wire::views::RunSummary;

/// The size of the export, in slices of a trace.
const SLICES: usize = 1_000_000;
/// The number of repetitions. Each time is the median.
const ROUNDS: usize = 5;

fn main() -> anyhow::Result<()> {
    let mut results = Results::begin("export");
    let data = tempfile::tempdir()?;
    let plan = Plan { ranks: 8, ranks_per_host: 4, steps: 1_300, buckets: 40, ..Plan::small(1) };
    let simulation = Simulation::run(&plan);
    stored::store(data.path(), &simulation.batches)?;
    sealer::seal(&Layout::new(data.path()).folder(&simulation.batches[0].batch.run), 1)?;
    let run = simulation.received();
    let (steps, slices, rows) = million(&run);
    let now = simulation.end();
    let summary = run.summary(&run.report(usize::MAX, now), now);
    drop((run, simulation));
    println!("{slices} slices, {rows} bucket records, {} steps of {} ranks", steps.len(), plan.ranks);
    let last = steps.last().map_or(0, |step| step.step);
    for format in Format::ALL {
        let path = data.path().join(format.name());
        let encode = times(|| write(format, &path, &summary, &steps))?;
        let bytes = path.metadata()?.len();
        let whole = times(|| whole(format, &path, data.path(), &summary, last))?;
        println!(
            "{:9} encode {:6.3} s, whole {:6.3} s, {:6.1} MB, {:5.1} bytes per slice",
            format.name(),
            median(&encode),
            median(&whole),
            bytes as f64 / 1e6,
            bytes as f64 / slices as f64
        );
        results.add(json!({
            "what": "export", "format": format.name(), "slices": slices, "bucket_records": rows,
            "steps": steps.len(), "ranks": plan.ranks, "bytes": bytes, "encode_seconds": encode,
            "whole_seconds": whole,
        }));
    }
    let path = data.path().join("per-rank");
    let encode = times(|| write_directory(&path, &summary, &steps))?;
    println!("chrome, compressed, one file per rank: encode {:.3} s", median(&encode));
    results.add(json!({ "what": "export_directory", "slices": slices, "encode_seconds": encode }));
    println!("raw: {}", results.finish()?.display());
    Ok(())
}

/// Returns the first steps that together have a million slices, with the exact number of slices and of bucket records.
fn million(run: &Run) -> (Vec<Waterfall>, usize, usize) {
    let (mut slices, mut rows) = (0, 0);
    let placed = run.placed_steps(Step(0), Step(u64::MAX), usize::MAX, None).placed;
    let mut steps: Vec<_> = placed.iter().map(Placed::waterfall).collect();
    let enough = steps.iter().position(|step| {
        slices += model::ranks(step, None).iter().map(model::RankStep::slices).sum::<usize>();
        rows += step.bucket_row.len();
        slices >= SLICES
    });
    steps.truncate(enough.expect("the plan has enough steps") + 1);
    (steps, slices, rows)
}

fn create(path: &Path) -> std::io::Result<BufWriter<File>> {
    Ok(BufWriter::with_capacity(256 << 10, File::create(path)?))
}

fn write(format: Format, path: &Path, run: &RunSummary, steps: &[Waterfall]) -> anyhow::Result<()> {
    let mut writer = Writer::begin(format, create(path)?, run, None)?;
    steps.iter().try_for_each(|step| writer.step(step))?;
    Ok(writer.finish()?.flush()?)
}

fn whole(format: Format, path: &Path, data: &Path, run: &RunSummary, last: u64) -> anyhow::Result<()> {
    let mut writer = Writer::begin(format, create(path)?, run, None)?;
    let visit = |step: &Waterfall| Ok::<_, anyhow::Error>(writer.step(step)?);
    restore::waterfalls(&Layout::new(data), &run.run, (Step(0), Step(last)), visit)?;
    Ok(writer.finish()?.flush()?)
}

fn write_directory(path: &Path, run: &RunSummary, steps: &[Waterfall]) -> anyhow::Result<()> {
    let mut directory = Directory::begin(path, run)?;
    steps.iter().try_for_each(|step| directory.step(step))?;
    directory.finish()?;
    Ok(())
}

fn times(mut once: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<Vec<f64>> {
    (0..ROUNDS)
        .map(|_| {
            let began = Instant::now();
            once()?;
            Ok(began.elapsed().as_secs_f64())
        })
        .collect()
}
