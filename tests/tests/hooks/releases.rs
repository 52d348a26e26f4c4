//! Tests that each supported release of PyTorch is observed, and computes the same as without it, bit by bit.

use std::path::PathBuf;
use std::process::{Command, Output};

use anyhow::{Context as _, ensure};
use paceline::launch::python::Package;
use serde_json::Value;
use testkit::fetch::skip;
use testkit::programs::{Server, get_json, program, report, said, wait_until};
use testkit::torch::{RELEASES, Torch, is_for_all};

use super::pytorch::{attached, result_of, run, script, torchrun_of};

/// The number of steps: recognizing them takes some seconds.
const STEPS: &str = "400";

/// The phases in the report's ledger.
const PHASES: [&str; 4] = ["forward_nanos", "backward_nanos", "optimizer_nanos", "input_nanos"];
/// The release from which on process groups have hooks.
const HOOKS_SINCE: u32 = 14;

/// Returns what the package says on the error stream of a job, without repetitions.
fn words(output: &Output) -> Vec<String> {
    let (_, complaints) = said(output);
    let ours =
        complaints.lines().filter_map(|line| Some(line.get(line.find("paceline: not ")?..)?.to_owned()));
    let mut words: Vec<String> = ours.collect();
    words.sort();
    words.dedup();
    words
}

fn job(torch: &Torch, more: &[&str]) -> Vec<String> {
    torchrun_of(torch, &[&[&*script("exact.py"), STEPS], more].concat())
}

fn command(job: &[String]) -> Command {
    let mut command = Command::new(&job[0]);
    command.args(&job[1..]);
    command
}

/// Checks that the report has all phases and all gradients, and says how gloo was observed.
fn is_observed(report: &Value, release: &str) -> anyhow::Result<()> {
    ensure!(report["ranks"] == 2, "{report:#}");
    for phase in PHASES {
        ensure!(report["ledger"][0][phase].as_u64() > Some(0), "no {phase}: {:#}", report["ledger"]);
    }
    let minor: u32 = release.split('.').nth(1).context("a release without a minor number")?.parse()?;
    let by =
        if minor < HOOKS_SINCE { "record functions" } else { "process-group hooks and record functions" };
    let attributes = report["attributes"].as_array().into_iter().flatten();
    let observed_by = attributes.filter(|attribute| attribute["name"] == "gloo observed by");
    ensure!(observed_by.map(|attribute| &attribute["value"]).eq([by]), "{:#}", report["attributes"]);
    ensure!(report["buckets"].as_array().is_some_and(|buckets| !buckets.is_empty()), "{report:#}");
    Ok(())
}

/// Runs the job under `paceline attach`. Returns its result.
fn attach(torch: &Torch, release: &str) -> anyhow::Result<String> {
    let data = tempfile::tempdir()?;
    let output = run(|| attached(data.path(), &job(torch, &[])))?;
    ensure!(words(&output).is_empty(), "{:?}", words(&output));
    is_observed(&report(data.path(), "latest")?, release)?;
    result_of(&output)
}

/// Runs the job, which calls `paceline.watch`. Returns its result.
fn watch(torch: &Torch, release: &str) -> anyhow::Result<String> {
    let (package, data) = (Package::copy(&program("libpaceline_python.so"))?, tempfile::tempdir()?);
    let server = Server::start(data.path())?;
    let site = PathBuf::from(package.site());
    let folder = site.ancestors().nth(2).context("the package has no folder")?;
    let output = run(|| {
        let mut command = command(&job(torch, &[&server.address]));
        command.env("PYTHONPATH", folder).env("PACELINE_OVERHEAD_BUDGET", "100");
        command.env("PACELINE_AGENT_LIBRARY", program("libpaceline_attach.so"));
        command
    })?;
    ensure!(words(&output).is_empty(), "{:?}", words(&output));
    is_observed(&watched(&server.address)?, release)?;
    result_of(&output)
}

/// Returns the report of the server's only run, once it has steps.
fn watched(server: &str) -> anyhow::Result<Value> {
    let run = wait_until("the run", || {
        let runs = get_json(&format!("{server}/api/v1/runs")).ok()?;
        (runs[0]["steps"].as_u64()? > 20).then(|| runs[0]["run"].as_str().map(str::to_owned))?
    })?;
    get_json(&format!("{server}/api/v1/runs/{run}?window=all"))
}

fn works(torch: &Torch, release: &str) -> anyhow::Result<()> {
    let alone = result_of(&run(|| command(&job(torch, &[])))?)?;
    ensure!(alone == attach(torch, release)?, "`attach` changed the result");
    ensure!(alone == watch(torch, release)?, "`watch` changed the result");
    Ok(())
}

/// Before PyTorch 2.14, gloo does not say which collective reduces which bucket. Where not all of them reduce a dense
/// bucket, the others would have wrong times.
#[test]
fn buckets_that_an_old_release_does_not_tell_apart_are_left_out_and_said() -> anyhow::Result<()> {
    let Some(torch) = Torch::old_for("buckets that it does not tell apart") else { return Ok(()) };
    if !torch.is_installed()? {
        return Ok(());
    }
    for (kind, what) in [("sparse", "sparse gradients"), ("delayed", "delayed all-reduces")] {
        let data = tempfile::tempdir()?;
        let output =
            run(|| attached(data.path(), &torchrun_of(&torch, &[&script("sparse.py"), "150", kind])))?;
        let expected = format!(
            "paceline: not observing buckets of a module with {what}: this needs PyTorch 2.14 or later"
        );
        ensure!(words(&output) == [expected], "{kind}: {:?}", words(&output));
        let report = report(data.path(), "latest")?;
        ensure!(report["buckets"].as_array().is_none_or(Vec::is_empty), "{kind}: {}", report["buckets"]);
    }
    Ok(())
}

#[test]
fn supported_releases_are_observed_and_compute_the_same() -> anyhow::Result<()> {
    let first = if is_for_all() { 0 } else { RELEASES.len() - 1 };
    if first > 0 {
        skip("older releases of PyTorch", "only with `cargo xtask test --all-torch`");
    }
    let mut failed = Vec::new();
    for release in RELEASES.into_iter().skip(first) {
        let torch = Torch::of(release);
        if torch.is_installed()? {
            let works = works(&torch, release);
            failed.extend(works.err().map(|error| format!("PyTorch {release}: {error:#}")));
        }
    }
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}
