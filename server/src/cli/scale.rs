//! `paceline scale`, which runs a job on several world sizes.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;

use analysis::study::{self, Efficiency, Trial as Studied};
use anyhow::Context as _;
use clap::Args;
use wire::live::Part;
use wire::views::{Missing, Report, ScalingRule, Spread};

use super::progress::Parts;
use super::trials::{self, Trial};
use super::{DataArgument, print, runtime, start_logging};
use crate::serve::Presentation;

/// The arguments of `paceline scale`.
#[derive(Debug, Args)]
#[command(
    after_help = "In CMD, {ranks} is replaced by the number of ranks. Whether the scaling is weak (the same batch per rank) or \
    strong (the same total batch) follows from the batches that the job states.\n\n\
    The efficiency on N ranks is the throughput per rank over that on the fewest ranks, as a mean over the repeats. The \
    world sizes alternate, so that a disturbance of a whole repeat cancels out. All figures are over the observed steps \
    of each run; the CSV file has a line per run.\n\n\
    Examples:\n  \
    paceline scale -n 1,2,4 --repeats 5 -- char_lm --steps 300\n  \
    paceline scale -n 1,2,4 --repeats 5 -- char_lm --steps 300 --strong --batch 32"
)]
pub(super) struct ScaleArguments {
    /// World sizes to run on, on this machine
    #[arg(short = 'n', long = "nproc", value_delimiter = ',', required = true, value_name = "N,...",
        value_parser = clap::value_parser!(u32).range(1..=4096))]
    nproc: Vec<u32>,
    /// Number of runs per world size; with two or more, the efficiency has an interval
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeats: u32,
    /// CSV file to write
    #[arg(short, long, value_name = "FILE", default_value = "scale.csv")]
    output: PathBuf,
    /// Address of the server to start; port 0 selects a free port
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    listen: SocketAddr,
    #[command(flatten)]
    data: DataArgument,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<std::ffi::OsString>,
}

pub(super) fn scale(arguments: &ScaleArguments, presentation: Presentation) -> anyhow::Result<()> {
    start_logging("warn");
    runtime::run(run_all(arguments, presentation))
}

async fn run_all(arguments: &ScaleArguments, presentation: Presentation) -> anyhow::Result<()> {
    let mut worlds = arguments.nproc.clone();
    worlds.sort_unstable();
    worlds.dedup();
    anyhow::ensure!(worlds.len() > 1, "-n needs two or more world sizes, such as -n 1,2,4");
    let server = trials::serve(arguments.listen, &arguments.data, presentation).await?;
    let mut rows = Vec::new();
    let mut runs = Parts::new(arguments.repeats as usize * worlds.len());
    for repeat in 0..arguments.repeats {
        for &ranks in &worlds {
            let on = units::ranks(ranks);
            print(&format!("\n{on} (run {}):\n", runs.next()))?;
            let trial = Trial {
                command: &arguments.command,
                by: "scale",
                ranks,
                placeholder: ("{ranks}", ranks.to_string()),
                environment: Vec::new(),
                what: on.clone(),
            };
            let report = trial.run(&server, usize::MAX).await?;
            rows.push(Row::new(repeat, &report).with_context(|| {
                format!("the run on {on} has no observed steps: run the job for more steps")
            })?);
        }
    }
    server.stop().await;
    let studied: Vec<Studied> = rows.iter().filter_map(Row::studied).collect();
    let found = match studied.len() == rows.len() {
        true => study::efficiencies(&studied),
        false => Err(Missing::NoSamples),
    };
    std::fs::write(&arguments.output, csv(&rows, &studied, found.as_ref().ok().map(|(rule, _)| *rule)))
        .with_context(|| format!("cannot write {}", arguments.output.display()))?;
    print(&format!("\n{}\nWritten to {}\n", table(&worlds, &rows, &found), arguments.output.display()))
}

/// One run.
struct Row {
    repeat: u32,
    report: Report,
    step: Spread,
    period_nanos: f64,
}

impl Row {
    fn new(repeat: u32, report: &Report) -> Option<Self> {
        let (step, period_nanos) = (*report.step_time_nanos.known()?, report.period_nanos.value()?);
        Some(Self { repeat, report: report.clone(), step, period_nanos })
    }

    /// Returns the run as a trial of the study; `None` if the job does not count its samples.
    fn studied(&self) -> Option<Studied> {
        Some(Studied {
            run: self.report.run.clone(),
            ranks: self.report.ranks,
            repeat: self.repeat,
            throughput: self.report.throughput.value()?,
            batch: self.report.batch.value()?,
        })
    }

    /// Returns some parts of the ledger as a share of the step.
    fn share(&self, parts: &[Part]) -> Option<f64> {
        let whole = self.report.mean_nanos(&Part::ALL).filter(|&whole| whole > 0.0)?;
        Some(self.report.mean_nanos(parts)? / whole)
    }
}

const EXPOSED: [Part; 2] = [Part::ExposedWait, Part::ExposedTransfer];

fn csv(rows: &[Row], studied: &[Studied], rule: Option<ScalingRule>) -> String {
    let mut out = String::from(
        "ranks,repeat,run,scaling,batch_per_rank,step_seconds,step_seconds_p50,step_seconds_p95,step_seconds_p99,\
         samples_per_second,efficiency,communication_fraction,exposed_wait_share,exposed_transfer_share,input_share\n",
    );
    let base = rows.iter().map(|row| row.report.ranks).min().unwrap_or(0);
    let text = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.6}"));
    for row in rows {
        let trial = studied.iter().find(|trial| trial.run == row.report.run);
        let efficiency = trial.filter(|_| rule.is_some());
        let efficiency = efficiency.and_then(|trial| study::efficiency(studied, trial, base));
        let fields = [
            row.report.ranks.to_string(),
            row.repeat.to_string(),
            row.report.run.to_string(),
            rule.map_or("", ScalingRule::name).trim_end_matches(" scaling").to_owned(),
            text(row.report.batch.value()),
            text(Some(row.period_nanos / 1e9)),
            text(Some(row.step.median / 1e9)),
            text(Some(row.step.p95 / 1e9)),
            text(Some(row.step.p99 / 1e9)),
            text(row.report.throughput.value()),
            text(efficiency),
            text(row.report.communication_fraction.value()),
            text(row.share(&[Part::ExposedWait])),
            text(row.share(&[Part::ExposedTransfer])),
            text(row.share(&[Part::Input, Part::H2d])),
        ];
        // Writing to a string cannot fail.
        let _infallible = writeln!(out, "{}", fields.join(","));
    }
    out
}

/// Returns the table of the median run of each world size with the efficiencies, and what they mean.
fn table(worlds: &[u32], rows: &[Row], found: &Result<(ScalingRule, Vec<Efficiency>), Missing>) -> String {
    let mut out = format!(
        "{:>6}{:>12}{:>12}{:>12}{:>16}{:>10}{:>28}{:>10}{:>10}\n",
        "ranks", "step", "p95", "p99", "throughput", "exposed", "efficiency", "input", "serial"
    );
    for &ranks in worlds {
        let mut runs: Vec<&Row> = rows.iter().filter(|row| row.report.ranks == ranks).collect();
        runs.sort_by(|a, b| a.period_nanos.total_cmp(&b.period_nanos));
        let Some(row) = runs.get(runs.len() / 2) else { continue };
        let efficiency =
            found.as_ref().ok().and_then(|(_, all)| all.iter().find(|efficiency| efficiency.ranks == ranks));
        let unknown = || "-".to_owned();
        let throughput = row.report.throughput.value();
        let unit = format!("{}/s", row.report.sample_unit);
        out += &format!(
            "{ranks:>6}{:>12}{:>12}{:>12}{:>16}{:>10}{:>28}{:>10}{:>10}\n",
            units::nanos(row.period_nanos),
            units::nanos(row.step.p95),
            units::nanos(row.step.p99),
            throughput.map_or_else(unknown, |throughput| units::rate(throughput, &unit)),
            row.share(&EXPOSED).map_or_else(unknown, units::percent),
            efficiency.map_or_else(unknown, written),
            row.share(&[Part::Input, Part::H2d]).map_or_else(unknown, units::percent),
            efficiency.and_then(|efficiency| efficiency.serial_fraction).map_or_else(unknown, units::percent),
        );
    }
    out + "\n" + &meaning(worlds, found)
}

/// Formats an efficiency with its interval.
fn written(efficiency: &Efficiency) -> String {
    let mean = units::percent(efficiency.mean);
    match efficiency.interval {
        Some((low, high)) => format!("{mean} ({} to {})", units::percent(low), units::percent(high)),
        None => mean,
    }
}

/// Says what the efficiencies are, or why there are none.
fn meaning(worlds: &[u32], found: &Result<(ScalingRule, Vec<Efficiency>), Missing>) -> String {
    let base = units::ranks(worlds.first().copied().unwrap_or(1));
    match found {
        Err(missing) => format!("There is no efficiency: {missing}.\n"),
        Ok((rule, all)) => {
            let serial = match rule {
                ScalingRule::Weak => "Gustafson, 1988",
                ScalingRule::Strong => "Karp and Flatt, 1990",
            };
            let mut out = format!(
                "{}: the {} is the same. Efficiency is the throughput per rank over that on {base}{}.\n",
                units::capitalized(rule.name()),
                rule.shared(),
                if all.iter().any(|efficiency| efficiency.interval.is_some()) {
                    ", with its 95 % interval"
                } else {
                    ""
                }
            );
            if all.iter().any(|efficiency| efficiency.serial_fraction.is_some()) {
                out += &format!("Serial: the share of the work that does not scale ({serial}).\n");
            }
            out
        }
    }
}
