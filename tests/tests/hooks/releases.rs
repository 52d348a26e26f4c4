//! Tests that each supported release of PyTorch is observed, and computes the same as without it, bit by bit.

use std::path::PathBuf;
use std::process::{Command, Output};

use anyhow::{Context as _, ensure};
use paceline::launch::python::Package;
use serde_json::Value;
use testkit::programs::{Server, get_json, program, report, said, wait_until};
use testkit::torch::{RELEASES, Torch};

use super::pytorch::{attached, result_of, run, script, torchrun_of};

/// If this variable is set, all releases are tested (`cargo xtask test --all-torch`).
const ALL: &str = "PACELINE_ALL_TORCH";
/// An old release, for each run of the tests.
const OLD: &str = "2.6.0";
/// The number of steps: recognizing them takes some seconds.
const STEPS: &str = "400";

/// What a release lets Paceline observe in a job over gloo.
struct Expected {
    /// The first minor release 2.N.
    since: u32,
    /// The phases in the report's ledger. Without collectives, no steps are found, and the ledger is empty.
    phases: &'static [&'static str],
    /// What the package says.
    words: &'static [&'static str],
}

/// In order. The last entry that is not newer than a release holds for it.
const EXPECTED: [Expected; 2] = [
    Expected {
        since: 4,
        phases: &[],
        words: &["paceline: not observing collectives of gloo: this needs PyTorch 2.14 or later"],
    },
    Expected {
        since: 14,
        phases: &["forward_nanos", "backward_nanos", "optimizer_nanos", "input_nanos"],
        words: &[],
    },
];

fn expected(release: &str) -> anyhow::Result<&'static Expected> {
    let minor: u32 = release.split('.').nth(1).context("a release without a minor number")?.parse()?;
    EXPECTED.iter().rfind(|expected| expected.since <= minor).context("this release is not supported")
}

/// Returns whether all releases are tested.
pub(super) fn is_for_all() -> bool {
    std::env::var_os(ALL).is_some()
}

/// Returns whether a release lets Paceline observe gloo's collectives, and so the ranks.
pub(super) fn observes_collectives(release: &str) -> anyhow::Result<bool> {
    Ok(!expected(release)?.phases.is_empty())
}

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

fn has_phases(report: &Value, expected: &Expected) -> anyhow::Result<()> {
    ensure!(report["ranks"] == 2 || expected.phases.is_empty(), "{report:#}");
    for phase in expected.phases {
        ensure!(report["ledger"][0][*phase].as_u64() > Some(0), "no {phase}: {:#}", report["ledger"]);
    }
    Ok(())
}

/// Runs the job under `paceline attach`. Returns its result.
fn attach(torch: &Torch, expected: &Expected) -> anyhow::Result<String> {
    let data = tempfile::tempdir()?;
    let output = run(|| attached(data.path(), &job(torch, &[])))?;
    ensure!(words(&output) == expected.words, "{:?}", words(&output));
    if !expected.phases.is_empty() {
        has_phases(&report(data.path(), "latest")?, expected)?;
    }
    result_of(&output)
}

/// Runs the job, which calls `paceline.watch`. Returns its result.
fn watch(torch: &Torch, expected: &Expected) -> anyhow::Result<String> {
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
    ensure!(words(&output) == expected.words, "{:?}", words(&output));
    if !expected.phases.is_empty() {
        has_phases(&watched(&server.address)?, expected)?;
    }
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
    let expected = expected(release)?;
    let alone = result_of(&run(|| command(&job(torch, &[])))?)?;
    ensure!(alone == attach(torch, expected)?, "`attach` changed the result");
    ensure!(alone == watch(torch, expected)?, "`watch` changed the result");
    Ok(())
}

#[test]
fn supported_releases_are_observed_and_compute_the_same() -> anyhow::Result<()> {
    let newest = *RELEASES.last().context("no releases")?;
    let mut failed = Vec::new();
    for release in RELEASES.into_iter().filter(|release| is_for_all() || [OLD, newest].contains(release)) {
        let torch = Torch::of(release);
        if torch.is_installed()? {
            let works = works(&torch, release);
            failed.extend(works.err().map(|error| format!("PyTorch {release}: {error:#}")));
        }
    }
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}
