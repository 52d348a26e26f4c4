//! Loads the report that a command names.

use std::path::Path;

use analysis::baseline::{self, Baseline};
use anyhow::Context as _;
use wire::clock::ServerNanos;
use wire::ids::RunId;
use wire::views::{Report, RunSummary};

use super::runs;
use crate::clock::ServerClock;
use crate::state::restore;
use crate::state::run::Run;
use crate::store::batches;
use crate::store::directory::Layout;

/// Returns the report of a run in the data directory (an id, or `latest`), or a report that `paceline report --format
/// json` wrote to a file whose name ends in `.json`. In the report of a run, effects are verdicts from `notable_share` on.
pub(super) fn report(layout: &Layout, name: &str, notable_share: f64) -> anyhow::Result<Report> {
    let path = Path::new(name);
    if path.extension().is_some_and(|extension| extension == "json") {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read the report {name}"))?;
        return serde_json::from_str(&text).with_context(|| {
            format!(
                "{name} is not a report of this version: write it with `paceline report RUN --format json -o {name}`"
            )
        });
    }
    Ok(measured(layout, runs::find(layout, name)?, notable_share))
}

/// Returns the report over all steps of a run, measured against the other runs in its data directory.
fn measured(layout: &Layout, run: Run, notable_share: f64) -> Report {
    let now = ServerClock::start().now();
    let mut report = run.judged_from(notable_share).report_work(usize::MAX, now).report_with_past_faults();
    let smaller = smaller_runs(layout, &report, now, notable_share);
    let summaries = smaller.iter().map(|(summary, _)| summary);
    baseline::measure(&mut report, summaries, |id| {
        smaller.iter().find(|(summary, _)| summary.run == *id).and_then(|(_, baseline)| baseline.clone())
    });
    report
}

/// Returns the runs that may be the baseline of `own`. Only runs of the same name on fewer ranks are restored. A run
/// that cannot be read is skipped, and `paceline runs` reports why.
fn smaller_runs(
    layout: &Layout,
    own: &Report,
    now: ServerNanos,
    notable_share: f64,
) -> Vec<(RunSummary, Option<Baseline>)> {
    let is_smaller = |id: &RunId| {
        let introduction = batches::introduction(layout, id).ok().flatten();
        introduction.is_some_and(|run| run.name == own.name && run.world_size < own.ranks)
    };
    let ids = layout.runs().unwrap_or_default().into_iter().filter(|id| *id != own.run).filter(is_smaller);
    let runs = ids.filter_map(|id| restore::run(layout, &id).ok().flatten());
    runs.map(|run| {
        let run = run.judged_from(notable_share);
        let report = run.report(usize::MAX, now);
        (run.summary(&report, now), Baseline::from_report(&report))
    })
    .collect()
}
