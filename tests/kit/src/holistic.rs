//! Meta's HolisticTraceAnalysis from the Python package index, in a separate virtual environment under `target`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};

use crate::fetch;

/// The pinned packages, including those that the figures depend on. Another version could read traces differently.
const PACKAGES: [&str; 3] = ["HolisticTraceAnalysis==0.5.0", "pandas==2.3.3", "numpy==2.3.5"];
const RUN_SECONDS: &str = "180";

/// What [`overlaps`] runs, as an argument of Python's `-c`: it prints the overlap of each rank of a folder of traces.
pub const OVERLAPS: &str = "
import json, logging, sys
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_dir=sys.argv[1], include_last_profiler_step=True)
found = analysis.get_comm_comp_overlap(visualize=False)
print(json.dumps({str(rank): percent / 100 for rank, percent in zip(found['rank'], found['comp_comm_overlap_pctg'])}))
";

fn environment() -> PathBuf {
    fetch::folder("holistic")
}

/// Returns the Python in which HolisticTraceAnalysis is installed.
#[must_use]
pub fn python() -> PathBuf {
    environment().join("bin/python")
}

/// Creates the environment if it does not exist. Returns false and prints the reason on standard error if Python, venv
/// or the package index is not available.
///
/// # Errors
/// Returns an error if a file of the environment cannot be written.
pub fn is_installed() -> anyhow::Result<bool> {
    let folder = environment();
    fetch::once("HolisticTraceAnalysis", &folder, &PACKAGES.join("\n"), || {
        fetch::succeed(Path::new("python3"), &["-m", "venv", &folder.to_string_lossy()])?;
        let install =
            ["install", "--quiet", "--disable-pip-version-check", "--retries", "1", "--timeout", "20"];
        fetch::succeed(&folder.join("bin/pip"), &[&install[..], &PACKAGES].concat())
    })
}

/// Returns the overlap of communication and computation by rank that HolisticTraceAnalysis finds in a folder of traces.
///
/// # Errors
/// Returns an error if it fails or prints something unexpected.
pub fn overlaps(traces: &Path) -> anyhow::Result<BTreeMap<u32, f64>> {
    let output = fetch::bounded(RUN_SECONDS, &python(), &["-c", OVERLAPS, &traces.to_string_lossy()])?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let line = said.lines().last().context("HolisticTraceAnalysis printed nothing")?;
    let found: BTreeMap<String, f64> = serde_json::from_str(line)?;
    found.into_iter().map(|(rank, ratio)| Ok((rank.parse()?, ratio))).collect()
}
