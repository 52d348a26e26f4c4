//! What the command line prints: reports, the list of runs, durations.

use std::fmt::Write as _;

use wire::views::{Report, RunState, RunSummary};

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
        let step = run.step_time_nanos.map_or_else(|| "-".to_owned(), |time| nanos(time as f64));
        let verdict = run.verdict.as_deref().unwrap_or("-");
        let (id, state) = (run.run.as_str(), state_name(run.state));
        // Writing to a string cannot fail.
        let _infallible = writeln!(
            out,
            "{id:40} {state:10} {:>5} {:>8} {step:>10}  {verdict}",
            run.ranks_expected, run.steps
        );
    }
    out
}

/// A state as text, the same everywhere.
#[must_use]
pub fn state_name(state: RunState) -> &'static str {
    match state {
        RunState::Starting => "starting",
        RunState::Running => "running",
        RunState::Hung => "hung",
        RunState::Completed => "completed",
        RunState::Failed => "failed",
    }
}

/// A duration with three digits and its unit.
#[must_use]
pub fn nanos(nanos: f64) -> String {
    let (value, unit) = match nanos.abs() {
        n if n < 1e3 => (nanos, "ns"),
        n if n < 1e6 => (nanos / 1e3, "µs"),
        n if n < 1e9 => (nanos / 1e6, "ms"),
        _ => (nanos / 1e9, "s"),
    };
    let digits = match value.abs() {
        v if v == 0.0 || v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.digits$} {unit}")
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

#[cfg(test)]
mod tests {
    use super::nanos;

    #[test]
    fn durations_have_three_digits_and_a_unit() {
        assert_eq!(nanos(0.0), "0 ns");
        assert_eq!(nanos(999.0), "999 ns");
        assert_eq!(nanos(1_234.0), "1.23 µs");
        assert_eq!(nanos(31_400_000.0), "31.4 ms");
        assert_eq!(nanos(2.5e9), "2.50 s");
    }
}
