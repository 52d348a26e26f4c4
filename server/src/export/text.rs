//! Text of the command line: reports and the list of runs.

use std::fmt::Write as _;

use wire::views::{Report, RunSummary};

use super::report::{document, terminal};

/// Returns the report as text for a terminal: the verdicts, then the figures and tables behind them.
#[must_use]
pub fn report(report: &Report) -> String {
    terminal(&document(report))
}

/// Returns the list of runs as a table.
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
