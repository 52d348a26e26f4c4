//! Pauses of a real PyTorch job: how long they take, and the lines of code that lead to them.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, ensure};
use paceline::state::restore;
use paceline::store::directory::Layout;
use serde_json::Value;
use testkit::programs::report;
use testkit::torch;
use wire::event::SpanKind;
use wire::ids::RunId;
use wire::stacks::{LongStep, SpanLine, ThreadRole};

use super::pytorch::{attached, run, script, torchrun};

const SCRIPT: &str = "pauses.py";

#[test]
fn pauses_are_told_apart_from_the_rest_of_a_step_and_have_their_lines() -> anyhow::Result<()> {
    if !torch::is_installed()? {
        return Ok(());
    }
    let (data, job) = (tempfile::tempdir()?, torchrun(&[&script(SCRIPT), "160"]));
    run(|| attached(data.path(), &job))?;
    let report = report(data.path(), "latest")?;
    for rank in report["ledger"].as_array().into_iter().flatten() {
        let nanos = |part: &Value| part.as_u64().unwrap_or_default();
        let pauses: Vec<u64> = rank["pauses_nanos"].as_array().into_iter().flatten().map(nanos).collect();
        let [checkpoint, evaluation, collection, compilation] = pauses[..] else {
            anyhow::bail!("{rank:#}");
        };
        ensure!(pauses.iter().sum::<u64>() == nanos(&rank["pause_nanos"]), "{rank:#}");
        // At least 20 of each were observed. A collection visits 400,000 lists, a checkpoint copies 12 MB, and an
        // evaluation has eight batches.
        ensure!(checkpoint > 20_000_000 && evaluation > 20_000_000 && collection > 20_000_000, "{rank:#}");
        ensure!(compilation > 1_000_000, "{rank:#}");
        let kinds = ["forward_nanos", "backward_nanos", "optimizer_nanos"];
        ensure!(kinds.iter().all(|kind| nanos(&rank[*kind]) > 0), "{rank:#}");
    }
    ensure!(report["ledger"].as_array().is_some_and(|ledger| ledger.len() == 2), "{report:#}");
    let id = RunId::new(report["run"].as_str().context("no run")?)?;
    let run = restore::run(&Layout::new(data.path().to_owned()), &id)?.context("nothing is stored")?;
    for lines in run.span_lines(2) {
        has_lines(&lines)?;
    }
    let long_steps = run.long_steps(2);
    ensure!(long_steps.iter().all(|steps| !steps.is_empty()), "a rank that waits samples itself too");
    let [sleeps] = lines_of("once")?.into_iter().collect::<Vec<_>>()[..] else { anyhow::bail!("one line") };
    let slept = |rank: usize| long_steps[rank].iter().filter(|long| samples_at(long, sleeps) >= 5).count();
    ensure!((slept(0), slept(1)) == (1, 0), "{} and {}: {long_steps:#?}", slept(0), slept(1));
    Ok(())
}

/// Returns the lines of the script that a comment marks.
fn lines_of(what: &str) -> anyhow::Result<BTreeSet<u32>> {
    let text = std::fs::read_to_string(script(SCRIPT))?;
    let comment = format!("  # {what}");
    Ok((1..).zip(text.lines()).filter(|(_, line)| line.ends_with(&comment)).map(|(at, _)| at).collect())
}

/// Checks that a rank has reported the lines of all its pauses that hooks notice.
fn has_lines(lines: &[SpanLine]) -> anyhow::Result<()> {
    for (kind, what) in [
        (SpanKind::Checkpoint, "checkpoint"),
        (SpanKind::Evaluation, "evaluation"),
        (SpanKind::Compilation, "compilation"),
    ] {
        let is_of_script = |line: &&SpanLine| Path::new(&line.frame.file).ends_with(SCRIPT);
        let matching = lines.iter().filter(|line| line.kind == kind).filter(is_of_script);
        let found: BTreeSet<u32> = matching.map(|line| line.frame.line).collect();
        ensure!(found == lines_of(what)?, "{what}: {lines:#?}");
    }
    Ok(())
}

/// Returns the number of samples of the main thread at a line of the script.
fn samples_at(long: &LongStep, line: u32) -> u64 {
    let main = long.profile.threads.iter().filter(|thread| thread.role == ThreadRole::Main);
    let is_there = |at: &u32| {
        let frame = &long.profile.frames[*at as usize];
        frame.line == line && Path::new(&frame.file).ends_with(SCRIPT)
    };
    let stacks = main.flat_map(|thread| &thread.stacks);
    stacks.filter(|stack| stack.frames.iter().any(is_there)).map(|stack| stack.count).sum()
}
