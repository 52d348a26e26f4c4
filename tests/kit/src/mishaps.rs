//! Runs of small PyTorch jobs in which things go wrong, each with Paceline and without it.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use paceline::launch::python::Package;
use serde_json::Value;

use crate::programs::program;
use crate::small_disk::SmallDisk;
use crate::torch;

#[derive(Debug)]
pub struct Found {
    /// The runs that ended differently with Paceline.
    pub different: Vec<Value>,
    /// Counts over all runs.
    pub total: Value,
}

/// Makes `count` runs, with the seeds from `first` on. Passes each run that ends differently to `record` at once, and the counts
/// so far from time to time. Returns `None` and prints the reason on standard error if PyTorch is not available.
///
/// # Errors
/// Returns an error if the runs cannot be made.
pub fn run(first: usize, count: usize, mut record: impl FnMut(&Value)) -> anyhow::Result<Option<Found>> {
    if !torch::is_installed()? {
        return Ok(None);
    }
    let package = Package::copy(&program("libpaceline_python.so"))?;
    let site = PathBuf::from(package.site());
    let folder = tempfile::tempdir()?;
    let disk = tempfile::tempdir()?;
    let small = SmallDisk::start(disk.path())?;
    let mut command = Command::new(torch::program("python"));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/hooks/pytorch/mishaps/run.py");
    command.arg(script).args([first.to_string(), count.to_string()]);
    command.env("MISHAPS_PACKAGE", site.ancestors().nth(2).context("the package has no folder")?);
    command.env("MISHAPS_LIBRARY", program("libpaceline_attach.so"));
    command.env("MISHAPS_PROGRAM", program("paceline")).env("MISHAPS_FOLDER", folder.path());
    // What jobs cannot send is kept here, and not where the user's jobs keep it.
    command.env("PACELINE_SPOOL_DIR", folder.path().join("spool"));
    if let Some(small) = &small {
        command.env("MISHAPS_FULL_DISK", &small.server.address);
    }
    let mut runs = command.stdout(Stdio::piped()).spawn()?;
    let lines = BufReader::new(runs.stdout.take().context("stdout is not piped")?).lines();
    let (mut different, mut total) = (Vec::new(), None);
    for line in lines {
        let line: Value = serde_json::from_str(&line?)?;
        record(&line);
        match line["what"].as_str() {
            Some("different") => different.push(line),
            _ => total = Some(line),
        }
    }
    ensure!(runs.wait()?.success(), "the runs failed");
    Ok(Some(Found { different, total: total.context("no runs")? }))
}
