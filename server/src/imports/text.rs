//! The summary of an import, as text.

use wire::views::imports::{ImportedFile, ImportedRun, SkippedFile};

/// Returns what an import found, skipped and left out, line by line.
#[must_use]
pub fn summary(run: &ImportedRun) -> String {
    let mut text = String::new();
    for SkippedFile { file, reason } in &run.skipped {
        text += &format!("Skipped {file}: {reason}\n");
    }
    let plural = if run.world_size == 1 { "" } else { "s" };
    text += &format!("Imported {} of {} rank{plural}{}\n", run.ranks.len(), run.world_size, others(run));
    for file in &run.ranks {
        let ImportedFile { rank, file, steps, kernels, collectives } = file;
        let steps = extent(steps);
        let kernels = if *kernels > 0 { format!(", {kernels} kernels and copies") } else { String::new() };
        let plural = if *collectives == 1 { "" } else { "s" };
        text += &format!("  rank {:<5} {steps}{kernels}, {collectives} collective{plural}  {file}\n", rank.0);
    }
    for remark in &run.remarks {
        text += &format!("  {remark}\n");
    }
    text
}

fn others(run: &ImportedRun) -> &'static str {
    if run.ranks.len() < run.world_size as usize { ": the others have no file" } else { "" }
}

fn extent(steps: &[u64]) -> String {
    match steps {
        [] => "no step".into(),
        [step] => format!("step {step}"),
        [first, .., last] => format!("steps {first} to {last}"),
    }
}
