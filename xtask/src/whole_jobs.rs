//! The tests of whole jobs, which share the machine's cores with the jobs that they start.
//!
//! Most of them judge what a job does, and mostly wait: for a port, a page, a step. Several run at a time. Those that judge how long
//! something takes run alone ([`ALONE`]), because that depends on how busy the machine is.

use std::process::Command;
use std::time::Instant;

use anyhow::ensure;

use crate::system::{cargo, step};

/// How many tests run at a time, of those that judge no time. On two cores, a fourth one would only make the others wait.
const TOGETHER: &str = "3";

/// The tests of each program that run alone, by the beginnings of their names. An empty one stands for all.
const ALONE: [(&str, &[&str]); 6] = [
    ("figures", &["mfu::a_real_job", "verdicts::"]),
    ("frameworks", &[""]),
    ("gpu", &["bursts::"]),
    ("hooks", &["captures::", "gallery::", "lines::", "memory::", "nccl_calls::", "pauses::", "restarts::"]),
    ("page", &["live_job::", "scaling::"]),
    ("server", &["alerts::", "goodput::", "limits::", "pace::", "utilization::the_use_of_hosts"]),
];

/// Runs the tests of these programs with these variables, to the end, whichever of them fail.
pub fn run(programs: &[String], variables: &[(&str, &str)]) -> anyhow::Result<()> {
    let mut failed = Vec::new();
    for program in programs {
        let began = Instant::now();
        let row = ALONE.iter().find(|(name, _)| name == program);
        let alone = row.map_or(&[][..], |(_, tests)| *tests);
        let mut lane = |what: &str, threads: &str, tests: &[&str]| {
            let what = format!("tests of whole jobs, {program}, {what}");
            let mut command = command(program, variables);
            if let Err(error) = step(&what, command.args(["--test-threads", threads]).args(tests)) {
                eprintln!("   {error:#}");
                failed.push(what);
            }
        };
        if !alone.contains(&"") {
            let others: Vec<_> = alone.iter().flat_map(|tests| ["--skip", tests]).collect();
            lane("together", TOGETHER, &others);
        }
        if !alone.is_empty() {
            lane("alone", "1", alone);
        }
        eprintln!("   {program}: {:.0} s", began.elapsed().as_secs_f64());
    }
    ensure!(failed.is_empty(), "failed: {}; the output of each says which tests", failed.join("; "));
    Ok(())
}

/// Returns the command that runs the tests of a program, as yet without arguments for them.
fn command(program: &str, variables: &[(&str, &str)]) -> Command {
    let mut command = cargo();
    command.args(["test", "--test", program, "--"]).envs(variables.iter().copied());
    command
}
