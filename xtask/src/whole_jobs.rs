//! The tests of whole jobs, which share the machine's cores with the jobs that they start.
//!
//! Most of them judge what a job does, and mostly wait: for a port, a page, a step. Several run at a time. Most of those with planted
//! trouble run in pairs, and those that judge how long something takes run alone ([`FEWER`]), because that depends on how busy
//! the machine is.
//!
//! Such a test can fail because the machine was busy with something else. A test that fails is therefore run once more,
//! alone. If it passes then, the run continues, and its last lines name the test: someone must look at it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, ensure};

use crate::system::cargo;

/// The most tests of a program that are run once more. More failures than this have a cause of their own.
const MOST_REPEATED: usize = 3;

/// How many tests run at a time, of those that judge no time. On two cores, a fourth one would only make the others wait.
const TOGETHER: &str = "3";
const IN_PAIRS: &str = "2";
const ALONE: &str = "1";

/// The tests of each program that run beside fewer others, by the beginnings of their names. An empty one stands for all.
const FEWER: [(&str, &str, &[&str]); 8] = [
    ("figures", ALONE, &["mfu::a_real_job", "verdicts::"]),
    ("frameworks", IN_PAIRS, &[""]),
    ("gpu", ALONE, &["bursts::"]),
    ("hooks", IN_PAIRS, &["captures::", "lines::", "memory::", "nccl_calls::", "pauses::", "restarts::"]),
    // The cost in a verdict must be within a fifth of what the job times itself.
    ("hooks", ALONE, &["gallery::"]),
    ("page", IN_PAIRS, &["live_job::", "scaling::"]),
    ("server", IN_PAIRS, &["limits::", "utilization::the_use_of_hosts"]),
    // `malformed_batches` measures the memory of the test program, in which its server runs.
    ("server", ALONE, &["alerts::", "goodput::", "guard::malformed_batches"]),
];

/// Runs the tests of these programs with these variables. Returns the names of those that passed only when they were run once
/// more.
pub fn run(programs: &[String], variables: &[(&str, &str)]) -> anyhow::Result<Vec<String>> {
    let mut repeated = Vec::new();
    for program in programs {
        let began = Instant::now();
        let lane = |threads: &str, tests: &[&str]| {
            eprintln!("\n== tests of whole jobs, {program}, {threads} at a time");
            let mut command = command(program, variables);
            let (passed, failed) = watch(command.args(["--test-threads", threads]).args(tests))?;
            ensure!(passed || !failed.is_empty(), "{program}: the tests did not run");
            eprintln!("   {program}, until now: {:.0} s", began.elapsed().as_secs_f64());
            Ok(failed)
        };
        let mut failed = Vec::new();
        let fewer: Vec<_> = FEWER.iter().filter(|(name, ..)| name == program).collect();
        let named: Vec<&str> = fewer.iter().flat_map(|(.., tests)| tests.iter().copied()).collect();
        if !named.contains(&"") {
            let others: Vec<_> = named.iter().flat_map(|tests| ["--skip", tests]).collect();
            failed.extend(lane(TOGETHER, &others)?);
        }
        for (_, threads, tests) in fewer {
            failed.extend(lane(threads, tests)?);
        }
        if !failed.is_empty() {
            let names = failed.join(", ");
            ensure!(failed.len() <= MOST_REPEATED, "{program}: {} tests failed: {names}", failed.len());
            let exactly: Vec<_> =
                std::iter::once("--exact").chain(failed.iter().map(String::as_str)).collect();
            let again = lane(ALONE, &exactly)?;
            ensure!(again.is_empty(), "{program}: failed twice: {}", again.join(", "));
            repeated.extend(failed.into_iter().map(|name| format!("{program} {name}")));
        }
    }
    Ok(repeated)
}

/// Returns the command that runs the tests of a program, as yet without arguments for them.
fn command(program: &str, variables: &[(&str, &str)]) -> Command {
    let mut command = cargo();
    command.args(["test", "--test", program, "--"]).envs(variables.iter().copied());
    command
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
