//! `paceline export`

use anyhow::{Context as _, bail};
use wire::ids::Step;

use super::{ExportArguments, ExportFormat, print, runs};
use crate::clock::ServerClock;
use crate::export::perfetto;
use crate::store::directory::Layout;

const USUALLY_EXPORTED: u64 = 50;

pub(super) fn export(arguments: &ExportArguments) -> anyhow::Result<()> {
    let run = runs::find(&Layout::new(arguments.data.path()), &arguments.run)?;
    let now = ServerClock::start().now();
    let summary = run.summary(&run.report(usize::MAX, now), now);
    let newest = summary.last_step.with_context(|| format!("run {} has no steps yet", summary.run))?;
    let (first, last) = match &arguments.steps {
        Some(text) => perfetto::parse_steps(text)?,
        None => (newest.saturating_sub(USUALLY_EXPORTED - 1), newest),
    };
    let waterfalls = run.waterfalls(Step(first), Step(last));
    if waterfalls.is_empty() {
        bail!("run {} has no steps {first} to {last}; its newest is {newest}", summary.run);
    }
    let bytes = match arguments.format {
        ExportFormat::Perfetto => perfetto::trace(&summary, &waterfalls),
    };
    std::fs::write(&arguments.output, bytes)
        .with_context(|| format!("cannot write {}", arguments.output.display()))?;
    print(&format!(
        "{} steps of {} written to {}: open it at https://ui.perfetto.dev\n",
        waterfalls.len(),
        summary.run,
        arguments.output.display()
    ))
}
