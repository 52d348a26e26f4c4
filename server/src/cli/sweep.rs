//! `paceline sweep`, which runs a job with several bucket caps.

mod accuracy;

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use wire::live::Part;
use wire::views::Report;

use super::progress::Parts;
use super::trials::{self, Trial};
use super::{DataArgument, print, runtime, start_logging};
use crate::serve::Presentation;

/// The number of steps at the end of each run that are measured.
const MEASURED_STEPS: usize = 20;
/// The variable that gives a job its bucket cap, in MiB.
const CAP: &str = "PACELINE_BUCKET_CAP_MIB";

/// The arguments of `paceline sweep`.
#[derive(Debug, Args)]
#[command(
    after_help = "Each run gets its cap in PACELINE_BUCKET_CAP_MIB, and {cap} in CMD is replaced by it.\n\
    All figures are measured over the last 20 observed steps of each run. The accuracy is the job's label \"accuracy\", \
    if it states one.\n\n\
    Example: paceline sweep --bucket-cap 0.5,1,2,4,8 -n 4 -- char_lm --steps 120"
)]
pub(super) struct SweepArguments {
    /// Bucket caps to try, in MiB
    #[arg(long, value_delimiter = ',', required = true, value_name = "MIB,...", value_parser = cap)]
    bucket_cap: Vec<f64>,
    /// Number of ranks to start on this machine
    #[arg(short = 'n', long = "nproc", value_name = "N", default_value_t = 2,
        value_parser = clap::value_parser!(u32).range(2..=4096))]
    nproc: u32,
    /// Number of runs per cap; the caps alternate, and the median run of each counts
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeats: u32,
    /// CSV file to write
    #[arg(short, long, value_name = "FILE", default_value = "sweep.csv")]
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

fn cap(text: &str) -> Result<f64, String> {
    let cap = text.parse().ok().filter(|cap: &f64| *cap > 0.0 && *cap < 1e6);
    cap.ok_or_else(|| "must be a number of MiB above 0, such as 0.5".into())
}

pub(super) fn sweep(arguments: &SweepArguments, presentation: Presentation) -> anyhow::Result<()> {
    start_logging("warn");
    runtime::run(run_all(arguments, presentation))
}

async fn run_all(arguments: &SweepArguments, presentation: Presentation) -> anyhow::Result<()> {
    let server = trials::serve(arguments.listen, &arguments.data, presentation).await?;
    let mut rows = Vec::new();
    let mut runs = Parts::new(arguments.repeats as usize * arguments.bucket_cap.len());
    for _ in 0..arguments.repeats {
        for &cap in &arguments.bucket_cap {
            print(&format!("\nBucket cap {cap} MiB (run {}):\n", runs.next()))?;
            let trial = Trial {
                command: &arguments.command,
                by: "sweep",
                ranks: arguments.nproc,
                placeholder: ("{cap}", cap.to_string()),
                environment: vec![(CAP.into(), cap.to_string().into())],
                what: format!("a bucket cap of {cap} MiB"),
            };
            let report = trial.run(&server, MEASURED_STEPS).await?;
            rows.push(Row::new(cap, &report).with_context(|| {
                format!("the run with a cap of {cap} MiB has no observed steps: run the job for more steps")
            })?);
        }
    }
    server.stop().await;
    std::fs::write(&arguments.output, csv(&rows))
        .with_context(|| format!("cannot write {}", arguments.output.display()))?;
    let unknown = unknown_accuracies(&rows);
    print(&format!("\n{}{unknown}\nWritten to {}\n", table(&rows), arguments.output.display()))
}

/// One run of a sweep.
struct Row {
    cap_mib: f64,
    run: String,
    buckets: usize,
    seconds_per_step: f64,
    /// The 95th percentile of the steps.
    seconds_p95: f64,
    samples_per_second: Option<f64>,
    /// The scatter by chance (95 %) of a mean over this number of steps, in seconds.
    noise: f64,
    communication_fraction: f64,
    overlap: f64,
    exposed_millis: f64,
    /// The accuracy that the job states; `None` if it states none, or the reason why it is unknown.
    accuracy: Result<Option<f64>, String>,
}

impl Row {
    fn new(cap_mib: f64, report: &Report) -> Option<Self> {
        Some(Self {
            cap_mib,
            run: report.run.to_string(),
            buckets: report.buckets.len(),
            // Step times over all ranks overlap if ranks begin their steps at different times. Local step times add up
            // to the duration of the run.
            seconds_per_step: report.local_step_time_nanos.known()?.mean / 1e9,
            seconds_p95: report.local_step_time_nanos.known()?.p95 / 1e9,
            samples_per_second: report.throughput.value(),
            noise: noise(report)?,
            communication_fraction: report.communication_fraction.value()?,
            overlap: report.overlap_ratio.value()?,
            exposed_millis: report.mean_nanos(&[Part::ExposedWait, Part::ExposedTransfer])? / 1e6,
            accuracy: accuracy::stated(&report.attributes),
        })
    }

    /// Returns the accuracy, if it is known.
    fn known_accuracy(&self) -> Option<f64> {
        self.accuracy.as_ref().ok().copied().flatten()
    }
}

/// Returns two standard errors of the mean step, from the scatter of the steps.
fn noise(report: &Report) -> Option<f64> {
    let spread = report.local_step_time_nanos.known()?;
    Some(2.0 * spread.deviation() / (report.steps.max(1) as f64).sqrt() / 1e9)
}

fn csv(rows: &[Row]) -> String {
    let mut out = String::from(
        "bucket_cap_mib,run,buckets,seconds_per_step,seconds_per_step_p95,samples_per_second,communication_fraction,overlap,exposed_ms_per_step,accuracy\n",
    );
    for row in rows {
        // Writing to a string cannot fail.
        let _infallible = writeln!(
            out,
            "{},{},{},{:.6},{:.6},{},{:.4},{:.4},{:.3},{}",
            row.cap_mib,
            row.run,
            row.buckets,
            row.seconds_per_step,
            row.seconds_p95,
            row.samples_per_second.map_or_else(String::new, |rate| format!("{rate:.3}")),
            row.communication_fraction,
            row.overlap,
            row.exposed_millis,
            row.known_accuracy().map_or_else(String::new, |accuracy| accuracy.to_string())
        );
    }
    out
}

/// Returns a line for each run whose accuracy is unknown although its job states one.
fn unknown_accuracies(rows: &[Row]) -> String {
    let unknown = rows.iter().filter_map(|row| Some((row.cap_mib, &row.run, row.accuracy.as_ref().err()?)));
    unknown.map(|(cap, run, reason)| format!("No accuracy of {run} ({cap} MiB): {reason}.\n")).collect()
}

/// Returns the table of the median run of each cap, and the sentence that names the best cap.
fn table(rows: &[Row]) -> String {
    let mut caps: Vec<f64> = rows.iter().map(|row| row.cap_mib).collect();
    caps.sort_by(f64::total_cmp);
    caps.dedup();
    let median = |cap: f64| {
        let mut runs: Vec<&Row> = rows.iter().filter(|row| row.cap_mib == cap).collect();
        runs.sort_by(|a, b| a.seconds_per_step.total_cmp(&b.seconds_per_step));
        runs[runs.len() / 2]
    };
    let medians: Vec<&Row> = caps.into_iter().map(median).collect();
    let mut out = format!(
        "{:>10}{:>10}{:>12}{:>12}{:>14}{:>16}{:>10}{:>12}",
        "cap", "buckets", "s/step", "p95", "samples/s", "communication", "overlap", "exposed"
    );
    let has_accuracy = rows.iter().any(|row| row.known_accuracy().is_some());
    out += if has_accuracy { "    accuracy\n" } else { "\n" };
    for row in &medians {
        out += &format!(
            "{:>6} MiB{:>10}{:>12.4}{:>12.4}{:>14}{:>14.1} %{:>8.1} %{:>9.2} ms",
            row.cap_mib,
            row.buckets,
            row.seconds_per_step,
            row.seconds_p95,
            row.samples_per_second.map_or_else(|| "-".to_owned(), units::significant),
            row.communication_fraction * 100.0,
            row.overlap * 100.0,
            row.exposed_millis
        );
        out += &match (has_accuracy, row.known_accuracy()) {
            (false, _) => "\n".to_owned(),
            (true, None) => format!("{:>12}\n", "-"),
            (true, Some(accuracy)) => format!("{accuracy:>12.4}\n"),
        };
    }
    let by_time = |a: &&&Row, b: &&&Row| a.seconds_per_step.total_cmp(&b.seconds_per_step);
    if let (Some(best), Some(worst)) = (medians.iter().min_by(by_time), medians.iter().max_by(by_time)) {
        out += &format!(
            "\nA cap of {} MiB is best: {:.4} s per step, {:.1} % less than {} MiB, the slowest.\n",
            best.cap_mib,
            best.seconds_per_step,
            100.0 * (1.0 - best.seconds_per_step / worst.seconds_per_step),
            worst.cap_mib
        );
        let close = |row: &&&Row| {
            row.cap_mib != best.cap_mib
                && row.seconds_per_step - best.seconds_per_step
                    < (row.noise.powi(2) + best.noise.powi(2)).sqrt()
        };
        let close: Vec<String> =
            medians.iter().filter(close).map(|row| format!("{} MiB", row.cap_mib)).collect();
        if !close.is_empty() {
            out += &format!("Equally good within the scatter of the steps: {}.\n", close.join(", "));
        }
    }
    out
}
