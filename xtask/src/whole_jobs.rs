//! The tests of whole jobs, which share the machine's cores with the jobs that they start.
//!
//! Such a test can fail because the machine was busy with something else. A test that fails is therefore run once more,
//! alone. If it passes then, the run continues, and its last lines name the test: someone must look at it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, ensure};

use crate::system::{NATIVE, cargo};

/// The most tests that are run once more. More failures than this have a cause of their own.
const MOST_REPEATED: usize = 3;

/// Runs the tests of these programs one at a time, with these variables. Returns the names of those that passed only
/// when they were run once more.
pub fn run(programs: &[String], variables: &[(&str, &str)]) -> anyhow::Result<Vec<String>> {
    let mut repeated = Vec::new();
    for program in programs {
        eprintln!("\n== tests of whole jobs, {program}");
        let began = Instant::now();
        let tests = |names: &[String]| {
            let mut command = cargo();
            command.args(["test", "--release"]).args(NATIVE).args(["--test", program]);
            command.args(["--", "--test-threads=1"]).args(names).envs(variables.iter().copied());
            if !names.is_empty() {
                command.arg("--exact");
            }
            command
        };
        let (passed, failed) = watch(&mut tests(&[]))?;
        if !passed {
            ensure!(!failed.is_empty(), "{program}: the tests did not run");
            ensure!(failed.len() <= MOST_REPEATED, "{program}: {} tests failed", failed.len());
            eprintln!("   {program}: once more: {}", failed.join(", "));
            let (passed, again) = watch(&mut tests(&failed))?;
            ensure!(passed, "{program}: failed twice: {}", again.join(", "));
            repeated.extend(failed.into_iter().map(|name| format!("{program} {name}")));
        }
        eprintln!("   {program}: {:.0} s", began.elapsed().as_secs_f64());
    }
    Ok(repeated)
}

/// Runs a test program and passes its output on. Returns whether it succeeded, and the names of the tests that failed.
fn watch(command: &mut Command) -> anyhow::Result<(bool, Vec<String>)> {
    let mut child = command.stdout(Stdio::piped()).spawn().context("cannot run cargo")?;
    let mut failed = Failed::default();
    let mut out = std::io::stdout();
    for line in BufReader::new(child.stdout.take().context("cargo has no output")?).lines() {
        let line = line?;
        writeln!(out, "{line}")?;
        failed.read(&line);
    }
    Ok((child.wait()?.success(), failed.names))
}

/// The tests that failed, from the list at the end of the test harness's output.
#[derive(Default)]
struct Failed {
    is_list: bool,
    names: Vec<String>,
}

impl Failed {
    fn read(&mut self, line: &str) {
        if line == "failures:" {
            // The messages of the failures have the same heading, and come before the list.
            *self = Self { is_list: true, names: Vec::new() };
        } else if let Some(name) = line.strip_prefix("    ").filter(|_| self.is_list) {
            self.names.push(name.to_owned());
        } else {
            self.is_list = false;
        }
    }
}
