//! Plain PyTorch jobs with one planted trouble each (`benches/gallery`), and what is right of the report on them. A job times its own
//! trouble: who has it, why, in which line, how often, and at what cost.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::programs::{program, report, said};
use crate::{frameworks, torch};

/// The largest error of a cost, as a share of what the job timed.
const COST_WITHIN: f64 = 0.2;

/// Returns the scripts whose names contain `filter`, in order of their names.
///
/// # Errors
/// Returns an error if the folder cannot be read.
pub fn scripts(filter: Option<&str>) -> anyhow::Result<Vec<PathBuf>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/gallery");
    let files = folder.read_dir()?.map(|file| Ok(file?.path())).collect::<anyhow::Result<Vec<_>>>()?;
    let is_wanted = |path: &PathBuf| {
        let is_script =
            path.extension().is_some_and(|extension| extension == "py") && name_of(path) != "plain";
        is_script && filter.is_none_or(|filter| name_of(path).contains(filter))
    };
    let mut scripts: Vec<PathBuf> = files.into_iter().filter(is_wanted).collect();
    scripts.sort();
    Ok(scripts)
}

#[must_use]
pub fn name_of(script: &Path) -> String {
    script.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Returns the command that runs a script under `paceline run`. Its name says what it needs: `_of_4` runs on four ranks and
/// `_alone` on one, `spawn` starts its ranks itself, and `trainer` and `lightning` need packages besides PyTorch.
fn command(script: &Path, name: &str, data: &Path) -> anyhow::Result<Command> {
    let is_framework = name.starts_with("trainer") || name.starts_with("lightning");
    let python = match is_framework {
        true => {
            ensure!(frameworks::TRAINERS.is_installed()?, "Lightning and transformers cannot be installed");
            frameworks::TRAINERS.program("python")
        }
        false => torch::program("python"),
    };
    let mut command = Command::new(program("paceline"));
    command.args(["run", "--data"]).arg(data).arg(python).env("OMP_NUM_THREADS", "1");
    if !name.starts_with("spawn_") {
        let ranks = match name {
            of_4 if of_4.ends_with("_of_4") => "4",
            alone if alone.ends_with("_alone") => "1",
            _ => "2",
        };
        command.args(["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks]);
        // Only a job that fails on purpose starts again. Over gloo, an attempt may fail to connect.
        command.args(["--max-restarts", if name.starts_with("restart") { "3" } else { "0" }]);
    }
    command.arg(script);
    Ok(command)
}

/// Runs a job and compares its verdicts with what the job says of itself. Returns one record: `checks` has what is right of the first
/// verdict, and `right` whether all of it is.
///
/// # Errors
/// Returns an error if the job does not end, or has no report.
pub fn judge(script: &Path) -> anyhow::Result<Value> {
    let data = tempfile::tempdir()?;
    let name = name_of(script);
    let (printed, complaints) = said(&command(script, &name, data.path())?.output()?);
    let truth = printed.lines().find_map(|line| line.split_once("TRUTH ")).map(|(_, truth)| truth);
    let truth = truth.with_context(|| format!("{name} did not end: {printed}{complaints}"))?;
    let truth: Value = serde_json::from_str(truth)?;
    let report = report(data.path(), "latest")?;
    let verdicts = report["verdicts"].as_array().cloned().unwrap_or_default();
    let first = verdicts.first().unwrap_or(&Value::Null);
    let mut checks = if truth["who"].is_null() {
        json!({})
    } else {
        checks(&truth, first, report["steps"].as_f64().unwrap_or(1.0))
    };
    checks["memory"] = memory(&truth, &report["memory"]).into();
    checks["no_other"] = blames_no_other(&truth, &verdicts).into();
    let right = checks.as_object().is_some_and(|checks| checks.values().all(|check| check != false));
    Ok(json!({
        "what": "job",
        "job": name,
        "right": right,
        "checks": checks,
        "truth": truth,
        "said": if first.is_null() { &report["spent"] } else { &first["sentence"] },
        "then": verdicts.iter().skip(1).map(|verdict| &verdict["sentence"]).collect::<Vec<_>>(),
        "steps": report["steps"],
    }))
}

/// Returns whether the report says of all ranks that memory grows, and how fast; `None` where the job states nothing.
fn memory(truth: &Value, said: &Value) -> Option<bool> {
    let planted = truth["memory_bytes_per_second"].as_f64()?;
    let rate = said[0]["bytes_per_second"].as_f64();
    Some(rate.is_some_and(|rate| (rate - planted).abs() <= COST_WITHIN * planted))
}

/// Returns whether no verdict names a rank that has no trouble.
fn blames_no_other(truth: &Value, verdicts: &[Value]) -> bool {
    verdicts.iter().all(|verdict| {
        let rank = &verdict["culprit"]["rank"];
        rank.is_null() || *rank == truth["who"]
    })
}

/// Returns what of the first verdict on `steps` steps is right; null where the job states nothing.
fn checks(truth: &Value, first: &Value, steps: f64) -> Value {
    let who = match truth["who"].as_u64() {
        Some(rank) => first["culprit"] == json!({ "rank": rank }),
        None => first["culprit"] == "all",
    };
    let cause = truth["causes"].as_array().is_some_and(|causes| causes.contains(&first["cause"]));
    let has_period = truth["every"].as_u64().map(|period| first["recurrence"]["every_steps"] == period);
    let sentence = first["sentence"].as_str().unwrap_or_default();
    let names = |key: &str| truth[key].as_str().map(|text| sentence.contains(text));
    let cost_each_time = first["recurrence"]["nanos"].as_f64();
    // What a job times in each step may come to others now and then, as the batches of several loader workers.
    let is_each = truth["every"].is_u64() || truth["causes"][0] == "hang" || truth["each"] == true;
    let per_step = || {
        let times = first["recurrence"]["times"].as_f64()?;
        Some(cost_each_time? * times / steps)
    };
    let cost = if is_each { cost_each_time } else { per_step().or(first["cost_nanos_per_step"].as_f64()) };
    let planted = truth["mean_s"].as_f64().or(truth["seconds"].as_f64());
    let is_cost_close =
        cost.zip(planted).map(|(cost, planted)| (cost / 1e9 - planted).abs() <= COST_WITHIN * planted);
    let grows = truth["grows_s_per_1000"].as_f64().map(|truth| {
        let said = first["growth"]["nanos_per_thousand_steps"].as_f64();
        said.is_some_and(|said| (said / 1e9 - truth).abs() <= COST_WITHIN * truth)
    });
    json!({
        "who": who,
        "cause": cause,
        "every": has_period,
        "line": names("line"),
        "function": names("function"),
        "cost": is_cost_close,
        "grows": grows,
    })
}
