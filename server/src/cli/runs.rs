//! `paceline runs`, and the search for a run by name.

use std::sync::Arc;

use analysis::step::StepAnalysis;
use anyhow::{Context as _, bail};
use wire::ids::RunId;
use wire::views::{GapKind, Report, RunSummary};

use super::leftovers::{self, Known};
use super::{DataArgument, RunsArguments, complain, print};
use crate::clock::ServerClock;
use crate::export::text;
use crate::state::restore::{self, AllRuns};
use crate::state::run::Run;
use crate::store::directory::Layout;

pub(super) fn runs(arguments: &RunsArguments, notable_share: f64) -> anyhow::Result<()> {
    let layout = Layout::new(arguments.data.path());
    leftovers::send(Known::from_environment(&layout).as_ref());
    let now = ServerClock::start().now();
    let mut damaged = String::new();
    let mut summary = |run: Run| {
        let run = run.judged_from(notable_share);
        let report = run.report(usize::MAX, now);
        for gap in report.gaps.iter().filter(|gap| gap.kind == GapKind::StoredBatches) {
            damaged.push_str(&format!("{}: {}\n", run.id(), gap.sentence));
        }
        run.summary(&report, now)
    };
    let AllRuns { runs, aside } = restore::all(&layout)?;
    let mut runs: Vec<RunSummary> = runs.into_values().map(&mut summary).collect();
    runs.sort_by_key(|run| std::cmp::Reverse(run.started_unix_millis));
    let unreadable: String =
        aside.iter().map(|(run, reason)| format!("{run} cannot be read: {reason}\n")).collect();
    if arguments.json {
        damaged.lines().chain(unreadable.lines()).for_each(complain);
        return print(&format!("{}\n", serde_json::to_string_pretty(&runs)?));
    }
    if runs.is_empty() && aside.is_empty() {
        return print(&format!(
            "No runs in {}. Start one with: paceline run -n 4 -- CMD\n",
            layout.root().display()
        ));
    }
    print(&format!("{}{damaged}{unreadable}", text::runs(&runs)))
}

/// Reads a run from disk like [`find`], and returns its report over all steps, with the steps.
pub(super) fn with_steps(
    data: &DataArgument,
    name: &str,
) -> anyhow::Result<(Report, Vec<Arc<StepAnalysis>>)> {
    let run = find(&Layout::new(data.path()), name)?;
    Ok((run.report(usize::MAX, ServerClock::start().now()), run.steps().newest(usize::MAX)))
}

/// Reads a run from disk by its id, or the newest run for `latest`.
pub(super) fn find(layout: &Layout, name: &str) -> anyhow::Result<Run> {
    let run = if name == "latest" {
        let AllRuns { runs, aside } = restore::all(layout)?;
        for (run, reason) in aside {
            complain(&format!("{run} is left out because it cannot be read: {reason}"));
        }
        runs.into_values().max_by_key(Run::first_seen)
    } else {
        let id = RunId::new(name).context("this is not a run id")?;
        if !layout.run(&id).is_dir() {
            let known = layout.runs()?;
            let names: Vec<&str> = known.iter().map(RunId::as_str).take(10).collect();
            bail!("there is no run {name:?} in {}; it has {}", layout.root().display(), names.join(", "));
        }
        restore::run(layout, &id)?
    };
    run.with_context(|| format!("no runs in {}: start one with `paceline run`", layout.root().display()))
}
