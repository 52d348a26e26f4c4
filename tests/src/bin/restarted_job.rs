//! A training job whose times are planted: it sleeps in place of work. It prints when its steps begin and end, so that a
//! test can compare. One process per rank, with `RANK` and `WORLD_SIZE`.
//!
//! Before its agent starts, the job sleeps 1 s, and another 1.5 s before its first step. A step takes 30 ms. Every 20
//! steps, the job writes a checkpoint for 100 ms, and in step 50 it evaluates for 600 ms. Without a last step it stops at
//! step 100 until it is killed.
#![allow(clippy::print_stdout, reason = "the output of the program")]

use std::thread::sleep;
use std::time::Duration;

use agent::{Agent, Job, SpanKind, Step, clock};
use anyhow::Context as _;

const IMPORTS: Duration = Duration::from_millis(1_000);
const SETUP: Duration = Duration::from_millis(1_500);
const FORWARD: Duration = Duration::from_millis(20);
const BACKWARD: Duration = Duration::from_millis(10);
const CHECKPOINT: Duration = Duration::from_millis(100);
const EVALUATION: Duration = Duration::from_millis(600);
/// The step in which a job without a last step stops.
const STOP: u64 = 100;

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let first: u64 = words.first().context("usage: restarted_job FIRST [PAST]")?.parse()?;
    let past: Option<u64> = words.get(1).map(|word| word.parse()).transpose()?;
    sleep(IMPORTS);
    let agent = Agent::from_env(Job { name: "restarted".into(), sample_unit: "steps".into(), parameters: 0 });
    sleep(SETUP);
    println!("begin {}", clock::now().0);
    let mut marks = agent.step_marks();
    for step in first..past.unwrap_or(STOP) {
        marks.begin_step(Step(step));
        marks.enter(SpanKind::Forward);
        sleep(FORWARD);
        marks.enter(SpanKind::Backward);
        sleep(BACKWARD);
        if step > 0 && step % 20 == 0 {
            marks.enter(SpanKind::Checkpoint);
            sleep(CHECKPOINT);
        }
        if step == 50 {
            marks.enter(SpanKind::Evaluation);
            sleep(EVALUATION);
        }
        marks.end_step(1);
    }
    println!("end {}", clock::now().0);
    while past.is_none() {
        std::thread::park();
    }
    agent.finish(Ok(()));
    Ok(())
}
