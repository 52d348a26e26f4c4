//! Runs plain PyTorch jobs with one planted trouble each (`benches/gallery`), and judges the first sentence of each report by what
//! the job timed itself: who, why, in which line, how often, and at what cost.
#![allow(clippy::print_stdout, reason = "the output of the program")]

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use clap::Parser;
use serde_json::{Value, json};
use testkit::programs::{program, report, said};
use testkit::results::Results;
use testkit::torch;

/// The largest error of a cost, as a share of what the job timed.
const COST_WITHIN: f64 = 0.2;

/// Judges the first sentence on plain PyTorch jobs with a planted trouble
#[derive(Parser)]
struct Options {
    /// The number of times each job runs
    #[arg(long, default_value_t = 1)]
    rounds: u32,
    /// The number of ranks
    #[arg(long, default_value_t = 2)]
    ranks: u32,
    /// Jobs whose names contain this text; all if not given
    filter: Option<String>,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    ensure!(torch::is_installed()?, "PyTorch cannot be installed: the Python package index is out of reach");
    let mut results = Results::begin("gallery");
    let (mut right, mut all) = (0, 0);
    for _ in 0..options.rounds {
        for script in scripts(options.filter.as_deref())? {
            let judged = judge(&script, options.ranks)?;
            println!("{judged}");
            all += 1;
            right += u32::from(judged["right"] == true);
            results.add(judged);
        }
    }
    let total = json!({ "what": "total", "right": right, "jobs": all });
    println!("{total}");
    results.add(total);
    println!("raw: {}", results.finish()?.display());
    Ok(())
}

/// Returns the scripts, in order of their names.
fn scripts(filter: Option<&str>) -> anyhow::Result<Vec<PathBuf>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("gallery");
    let files = folder.read_dir()?.map(|file| Ok(file?.path())).collect::<anyhow::Result<Vec<_>>>()?;
    let name =
        |path: &Path| path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let is_wanted = |path: &PathBuf| {
        let is_script = path.extension().is_some_and(|extension| extension == "py") && name(path) != "plain";
        is_script && filter.is_none_or(|filter| name(path).contains(filter))
    };
    let mut scripts: Vec<PathBuf> = files.into_iter().filter(is_wanted).collect();
    scripts.sort();
    Ok(scripts)
}

/// Runs a job and compares the first verdict with what the job says of itself.
fn judge(script: &Path, ranks: u32) -> anyhow::Result<Value> {
    let data = tempfile::tempdir()?;
    let name = script.file_stem().context("the script has no name")?.to_string_lossy().into_owned();
    let mut command = Command::new(program("paceline"));
    command.args(["run", "--data"]).arg(data.path()).arg(torch::program("torchrun"));
    command.args(["--standalone", "--max-restarts=3", "--nproc-per-node", &ranks.to_string()]).arg(script);
    let output = command.env("OMP_NUM_THREADS", "1").output()?;
    let (printed, complaints) = said(&output);
    let truth = printed.lines().find_map(|line| line.split_once("TRUTH ")).map(|(_, truth)| truth);
    let truth = truth.with_context(|| format!("{name} did not end: {printed}{complaints}"))?;
    let truth: Value = serde_json::from_str(truth)?;
    let report = report(data.path(), "latest")?;
    let first = &report["verdicts"][0];
    let checks = match truth["who"].is_null() {
        true => json!({
            "blames_no_rank": first["culprit"].is_null() || first["culprit"] == "all",
            "memory": memory(&truth, &report["memory"]),
        }),
        false => checks(&truth, first),
    };
    let right = checks.as_object().is_some_and(|checks| checks.values().all(|check| check != false));
    Ok(json!({
        "what": "job",
        "job": name,
        "ranks": ranks,
        "right": right,
        "checks": checks,
        "truth": truth,
        "said": if first.is_null() { &report["spent"] } else { &first["sentence"] },
        "steps": report["steps"],
    }))
}

/// Returns whether the report says of all ranks that memory grows, and how fast; null where the job states nothing.
fn memory(truth: &Value, said: &Value) -> Option<bool> {
    let planted = truth["memory_bytes_per_second"].as_f64()?;
    let rate = said[0]["bytes_per_second"].as_f64();
    Some(rate.is_some_and(|rate| (rate - planted).abs() <= COST_WITHIN * planted))
}

/// Returns what of the first verdict is right; null where the job states nothing.
fn checks(truth: &Value, first: &Value) -> Value {
    let who = match truth["who"].as_u64() {
        Some(rank) => first["culprit"] == json!({ "rank": rank }),
        None => first["culprit"] == "all",
    };
    let cause = truth["causes"].as_array().is_some_and(|causes| causes.contains(&first["cause"]));
    let every = truth["every"].as_u64().map(|every| first["recurrence"]["every_steps"] == every);
    let sentence = first["sentence"].as_str().unwrap_or_default();
    let names = |key: &str| truth[key].as_str().map(|text| sentence.contains(text));
    let cost = first["recurrence"]["nanos"].as_f64().or(first["cost_nanos_per_step"].as_f64());
    let planted = truth["mean_s"].as_f64().or(truth["seconds"].as_f64());
    let within =
        cost.zip(planted).map(|(cost, planted)| (cost / 1e9 - planted).abs() <= COST_WITHIN * planted);
    let grows = truth["grows_s_per_1000"].as_f64().map(|truth| {
        let said = first["growth"]["nanos_per_thousand_steps"].as_f64();
        said.is_some_and(|said| (said / 1e9 - truth).abs() <= COST_WITHIN * truth)
    });
    json!({
        "who": who,
        "cause": cause,
        "every": every,
        "line": names("line"),
        "function": names("function"),
        "cost": within,
        "grows": grows,
    })
}
