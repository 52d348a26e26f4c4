//! The summary of an import, as text.

use wire::views::imports::{ImportedRun, SkippedFile};

/// Returns what an import found, skipped and left out, line by line.
#[must_use]
pub fn summary(run: &ImportedRun) -> String {
    let mut text = skipped(&run.skipped);
    text += &format!("{}\n", run.found());
    for file in &run.ranks {
        text += &format!("  rank {:<5} {}  {}\n", file.rank.0, file.extent(), file.file);
    }
    for remark in &run.remarks {
        text += &format!("  {remark}\n");
    }
    text
}

/// Returns a line for each skipped file.
#[must_use]
pub fn skipped(files: &[SkippedFile]) -> String {
    files.iter().map(|SkippedFile { file, reason }| format!("Skipped {file}: {reason}\n")).collect()
}
