//! Meta's HolisticTraceAnalysis, from the Python package index, in a virtual environment of its own under `target`.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context as _, ensure};

/// Pinned, with what its figures depend on: another version is another reader.
const PACKAGES: [&str; 3] = ["HolisticTraceAnalysis==0.5.0", "pandas==2.3.3", "numpy==2.3.5"];
/// Downloading takes a minute; without a network pip gives up by itself.
const INSTALL_SECONDS: &str = "420";
const RUN_SECONDS: &str = "180";

const OVERLAPS: &str = "
import json, logging, sys
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_dir=sys.argv[1], include_last_profiler_step=True)
found = analysis.get_comm_comp_overlap(visualize=False)
print(json.dumps({str(rank): percent / 100 for rank, percent in zip(found['rank'], found['comp_comm_overlap_pctg'])}))
";

/// `target/holistic`, beside the programs that are tested.
fn environment() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a file");
    let release = test.ancestors().find(|folder| folder.ends_with("release"));
    release.and_then(Path::parent).expect("tests are built with --release").join("holistic")
}

fn bounded(seconds: &str, program: &Path, arguments: &[&str]) -> std::io::Result<Output> {
    Command::new("timeout").args(["-k", "5", seconds]).arg(program).args(arguments).output()
}

/// Makes the environment where it is not there yet. False, with the reason on standard error, where there is no
/// Python, no venv or no way to the package index.
///
/// # Errors
/// When a file of the environment cannot be written.
pub fn is_installed() -> anyhow::Result<bool> {
    let folder = environment();
    let wanted = PACKAGES.join("\n");
    // Written last: an environment that was interrupted has none.
    let complete = folder.join("installed.txt");
    if fs::read_to_string(&complete).is_ok_and(|installed| installed == wanted) {
        return Ok(true);
    }
    let path = folder.to_string_lossy();
    let made = bounded(RUN_SECONDS, Path::new("python3"), &["-m", "venv", "--clear", &path]);
    if let Some(reason) = failure(made) {
        return Ok(skip("python3 -m venv", &reason));
    }
    let install = ["install", "--quiet", "--disable-pip-version-check", "--retries", "1", "--timeout", "20"];
    let pip = bounded(INSTALL_SECONDS, &folder.join("bin/pip"), &[&install[..], &PACKAGES].concat());
    if let Some(reason) = failure(pip) {
        return Ok(skip("pip install", &reason));
    }
    fs::write(complete, wanted)?;
    Ok(true)
}

fn failure(outcome: std::io::Result<Output>) -> Option<String> {
    match outcome {
        Ok(output) if output.status.success() => None,
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            Some(said.lines().last().map_or_else(|| output.status.to_string(), str::to_owned))
        }
        Err(error) => Some(error.to_string()),
    }
}

/// Past the harness, which shows what a test prints only when it fails.
fn skip(what: &str, reason: &str) -> bool {
    let _unheard = writeln!(std::io::stderr(), "SKIP HolisticTraceAnalysis: {what}: {reason}");
    false
}

/// The overlap of communication with computation, by rank, that it finds in a folder of traces.
///
/// # Errors
/// When it fails, or prints something else.
pub fn overlaps(traces: &Path) -> anyhow::Result<BTreeMap<u32, f64>> {
    let python = environment().join("bin/python");
    let output = bounded(RUN_SECONDS, &python, &["-c", OVERLAPS, &traces.to_string_lossy()])?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let line = said.lines().last().context("it printed nothing")?;
    let found: BTreeMap<String, f64> = serde_json::from_str(line)?;
    found.into_iter().map(|(rank, ratio)| Ok((rank.parse()?, ratio))).collect()
}
