//! Measures an import against HolisticTraceAnalysis and Python's `json.load`, on the same traces of a simulated job.
//!
//! Each program runs in a process whose only child it is, so that its processor time and its memory are its own.
#![allow(clippy::print_stdout, reason = "the output of the program")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, ensure};
use clap::Parser;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use serde_json::{Value, json};
use testkit::holistic;
use testkit::kineto::Traced;
use testkit::programs::program;
use testkit::results::Results;

/// Reads a file as the standard library of Python does.
const JSON_LOAD: &str = "import json, sys; [json.load(open(path)) for path in sys.argv[1:]]";

/// The number of kernels before each of the four all-reduces of a simulated step.
const KERNELS: u64 = 1_000;

#[derive(Debug, Parser)]
struct Arguments {
    /// Folder with traces, one uncompressed file per rank [default: those of a simulated job]
    #[arg(long)]
    traces: Option<PathBuf>,
    /// Ranks of the simulated job
    #[arg(long, default_value_t = 4)]
    ranks: usize,
    /// Steps of the simulated job
    #[arg(long, default_value_t = 100)]
    steps: u64,
    /// Number of times that each program runs
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Leave HolisticTraceAnalysis out, which takes minutes for a rank of 400 steps
    #[arg(long)]
    without_hta: bool,
    /// Run this program, and print what it took
    #[arg(long, hide = true, num_args = 1.., allow_hyphen_values = true)]
    child: Option<Vec<String>>,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    if let Some(child) = &arguments.child {
        println!("{}", took(child)?);
        return Ok(());
    }
    let made = tempfile::tempdir()?;
    let traces = match &arguments.traces {
        Some(folder) => folder.clone(),
        None => simulated(&arguments, made.path())?,
    };
    let mut results = Results::begin("import");
    let size: u64 = files(&traces)?.iter().filter_map(|file| Some(file.metadata().ok()?.len())).sum();
    println!("{} files, {:.0} MB", files(&traces)?.len(), size as f64 / 1e6);
    for round in 0..arguments.rounds {
        for (name, command) in programs(&traces, arguments.without_hta)? {
            let taken = measure(&command).with_context(|| format!("{name} failed"))?;
            println!("{name}: {taken}");
            let more = json!({ "what": "import", "program": name, "round": round, "bytes": size });
            results.add(joined(more, taken));
        }
    }
    println!("raw: {}", results.finish()?.display());
    Ok(())
}

/// Writes the traces of a simulated job.
fn simulated(arguments: &Arguments, folder: &Path) -> anyhow::Result<PathBuf> {
    let job = Traced { ranks: arguments.ranks, steps: arguments.steps, kernels: KERNELS, sleeps: None };
    for (rank, trace) in job.traces().into_iter().enumerate() {
        std::fs::write(folder.join(format!("rank-{rank}.json")), trace)?;
    }
    Ok(folder.to_owned())
}

fn files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    Ok(std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?)
}

/// Returns the programs that are compared.
fn programs(traces: &Path, without_hta: bool) -> anyhow::Result<Vec<(&'static str, Vec<String>)>> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let folder = text(traces);
    let import =
        vec![text(&program("paceline")), "import".into(), folder.clone(), "--data".into(), "DATA".into()];
    let one_core = [vec!["taskset".into(), "-c".into(), "0".into()], import.clone()].concat();
    let mut load = vec!["python3".into(), "-c".into(), JSON_LOAD.into()];
    load.extend(files(traces)?.iter().map(|file| text(file)));
    let mut found =
        vec![("paceline import", import), ("paceline import, one core", one_core), ("json.load", load)];
    if !without_hta && holistic::is_installed()? {
        found.push((
            "HolisticTraceAnalysis",
            vec![text(&holistic::python()), "-c".into(), holistic::OVERLAPS.into(), folder],
        ));
    }
    Ok(found)
}

/// Runs a program in a process of its own. `DATA` among its arguments is an empty folder.
fn measure(command: &[String]) -> anyhow::Result<Value> {
    let data = tempfile::tempdir()?;
    let data_folder = data.path().to_string_lossy();
    let command =
        command.iter().map(|argument| if argument == "DATA" { &*data_folder } else { argument.as_str() });
    let output = Command::new(std::env::current_exe()?).arg("--child").args(command).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Runs a program, and returns what it took: seconds, processor seconds, and the largest memory of any of its processes.
fn took(command: &[String]) -> anyhow::Result<Value> {
    let (program, arguments) = command.split_first().context("no program")?;
    let began = Instant::now();
    let output =
        Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::piped()).output()?;
    let seconds = began.elapsed().as_secs_f64();
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let cpu = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(
        json!({ "seconds": seconds, "cpu_seconds": cpu as f64 / 1e6, "max_rss_bytes": usage.max_rss() * 1_024 }),
    )
}

fn joined(mut object: Value, more: Value) -> Value {
    if let (Some(object), Value::Object(more)) = (object.as_object_mut(), more) {
        object.extend(more);
    }
    object
}
