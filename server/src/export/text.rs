//! The text that the command line prints: reports and the list of runs.

use std::fmt::Write as _;

use wire::views::{Report, RunSummary};

use super::report::{document, terminal};

/// The report as a person reads it: verdicts first, then what they rest on.
#[must_use]
pub fn report(report: &Report) -> String {
    terminal(&document(report))
}

/// The list of runs as a table.
#[must_use]
pub fn runs(runs: &[RunSummary]) -> String {
    let mut out =
        format!("{:40} {:10} {:>5} {:>8} {:>10}  VERDICT\n", "RUN", "STATE", "RANKS", "STEPS", "STEP");
    for run in runs {
        let step = run.step_time_nanos.map_or_else(|| "-".to_owned(), |time| units::nanos(time as f64));
        let verdict = run.verdict.as_deref().unwrap_or("-");
        let (id, state) = (run.run.as_str(), run.state.name());
        // Writing to a string cannot fail.
        let _infallible = writeln!(
            out,
            "{id:40} {state:10} {:>5} {:>8} {step:>10}  {verdict}",
            run.ranks_expected, run.steps
        );
    }
    out
}

/// Text as markup that means only itself: names come from whoever started the job.
#[must_use]
pub fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => plain.push_str("&amp;"),
            '<' => plain.push_str("&lt;"),
            '>' => plain.push_str("&gt;"),
            '"' => plain.push_str("&quot;"),
            '\'' => plain.push_str("&#39;"),
            _ => plain.push(character),
        }
    }
    plain
}
