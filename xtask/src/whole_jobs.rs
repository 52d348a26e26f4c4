//! The tests of whole jobs, which share the machine's cores with the jobs that they start.
//!
//! Tests that judge what a job does, and not how long it takes, mostly wait: for a port, a page, a step. Two of them run
//! at a time ([`SHARING`]). All others run alone, because what they measure depends on how busy the machine is.
//!
//! Such a test can fail because the machine was busy with something else. A test that fails is therefore run once more,
//! alone. If it passes then, the run continues, and its last lines name the test: someone must look at it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, ensure};

use crate::system::cargo;

/// The most tests that are run once more. More failures than this have a cause of their own.
const MOST_REPEATED: usize = 3;

/// The tests of each program that judge no time, neither that of a job nor their own, by the beginnings of their names.
const SHARING: [(&str, &[&str]); 3] = [
    (
        "page",
        &[
            "access::",
            "buckets::",
            "code::",
            "devices::",
            "everywhere::",
            "imports::",
            "links::",
            "questions::",
            "runs::",
            "traces::",
            "views::",
        ],
    ),
    (
        "server",
        &[
            "access::",
            "answers::",
            "commands::",
            "damage::",
            "doctor::",
            "documents::",
            "export::",
            "guard::",
            "imports::",
            "labels::",
            "leftovers::",
            "losses::",
            "ranges::",
            "stacks::",
            "survival::",
            "uploads::",
        ],
    ),
    (
        "hooks",
        &[
            "cuda_hook::",
            "cuda_sources::",
            "layouts::",
            // All but the one of garbage collections, which use a core.
            "lines::a_",
            "lines::ranks_",
            "mishaps::",
            "nccl_calls::",
            "nccl_plugin::",
            "nvtx_ranges::",
            "pytorch::",
            "restarts::",
            "wheel::",
            "workload::",
        ],
    ),
];

/// Which tests of a program run, and how many at a time.
enum Lane<'a> {
    /// Those that share the machine, two at a time.
    Sharing(&'a [&'a str]),
    /// All but those, one at a time.
    Alone(&'a [&'a str]),
    /// Only these, one at a time.
    Named(&'a [String]),
}

impl Lane<'_> {
    /// Returns the command that runs the tests.
    fn command(&self, program: &str, variables: &[(&str, &str)]) -> Command {
        let mut command = cargo();
        command.args(["test", "--release", "--test", program, "--"]);
        command.envs(variables.iter().copied());
        match self {
            Self::Sharing(tests) => command.arg("--test-threads=2").args(*tests),
            Self::Alone(sharing) => {
                command.arg("--test-threads=1").args(sharing.iter().flat_map(|tests| ["--skip", tests]))
            }
            Self::Named(names) => command.args(["--test-threads=1", "--exact"]).args(*names),
        };
        command
    }
}

/// Runs the tests of these programs with these variables. Returns the names of those that passed only when they were run once
/// more.
pub fn run(programs: &[String], variables: &[(&str, &str)]) -> anyhow::Result<Vec<String>> {
    let mut repeated = Vec::new();
    for program in programs {
        eprintln!("\n== tests of whole jobs, {program}");
        let began = Instant::now();
        let row = SHARING.iter().find(|(name, _)| name == program);
        let sharing = row.map_or(&[][..], |(_, tests)| *tests);
        let mut failed = Vec::new();
        if !sharing.is_empty() {
            failed.extend(failures(program, &Lane::Sharing(sharing), variables)?);
        }
        failed.extend(failures(program, &Lane::Alone(sharing), variables)?);
        if !failed.is_empty() {
            ensure!(
                failed.len() <= MOST_REPEATED,
                "{program}: {} tests failed: {}",
                failed.len(),
                failed.join(", ")
            );
            eprintln!("   {program}: once more: {}", failed.join(", "));
            let again = failures(program, &Lane::Named(&failed), variables)?;
            ensure!(again.is_empty(), "{program}: failed twice: {}", again.join(", "));
            repeated.extend(failed.into_iter().map(|name| format!("{program} {name}")));
        }
        eprintln!("   {program}: {:.0} s", began.elapsed().as_secs_f64());
    }
    Ok(repeated)
}

/// Runs tests of a program, and returns the names of those that failed.
fn failures(program: &str, lane: &Lane<'_>, variables: &[(&str, &str)]) -> anyhow::Result<Vec<String>> {
    let (passed, failed) = watch(&mut lane.command(program, variables))?;
    ensure!(passed || !failed.is_empty(), "{program}: the tests did not run");
    Ok(failed)
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
