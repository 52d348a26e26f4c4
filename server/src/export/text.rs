//! The report for a terminal.

use std::fmt::Write as _;

use wire::live::Part;
use wire::views::{Confidence, Report, RunState, RunSummary};

/// Widest name of a ledger's part, for aligning.
const PART_WIDTH: usize = 16;

/// The report as a person reads it: verdicts first, then what they rest on.
#[must_use]
pub fn report(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _infallible = write_report(&mut out, report);
    out
}

fn write_report(out: &mut String, report: &Report) -> std::fmt::Result {
    let state = state_name(report.state);
    writeln!(out, "{} ({}), {} ranks, {state}", report.name, report.run, report.ranks)?;
    if let Some((first, last)) = report.step_range {
        writeln!(out, "{} observed steps, {first} to {last}", report.steps)?;
    }
    writeln!(out)?;
    write_verdicts(out, report)?;
    write_figures(out, report)?;
    write_ledger(out, report)?;
    if !report.missing.is_empty() {
        writeln!(out, "\nNot known:")?;
        for (name, reason) in &report.missing {
            writeln!(out, "  {name}: {reason}")?;
        }
    }
    Ok(())
}

fn write_verdicts(out: &mut String, report: &Report) -> std::fmt::Result {
    if let Some(hang) = &report.hang {
        writeln!(out, "{}", hang.sentence)?;
    }
    if report.verdicts.is_empty() && report.hang.is_none() {
        let none = "No rank, phase or bucket stands out.";
        writeln!(out, "{}", report.missing.get("verdicts").map_or(none, String::as_str))?;
    }
    for verdict in &report.verdicts {
        let sure = match verdict.confidence {
            Confidence::High => "high confidence",
            Confidence::Medium => "medium confidence",
            Confidence::InsufficientEvidence => "insufficient evidence",
        };
        writeln!(out, "{}", verdict.sentence)?;
        writeln!(
            out,
            "  cause {}, {sure}; on GPUs {:.1} GPU-hours a day",
            verdict.cause.name(),
            verdict.gpu_hours_per_day
        )?;
        for line in &verdict.evidence {
            writeln!(out, "  + {line}")?;
        }
        for line in &verdict.counter_evidence {
            writeln!(out, "  - {line}")?;
        }
    }
    Ok(())
}

fn write_figures(out: &mut String, report: &Report) -> std::fmt::Result {
    writeln!(out)?;
    if let Some(time) = report.step_time_ns {
        let (median, p90, p99) = (nanos(time.median), nanos(time.p90), nanos(time.p99));
        writeln!(out, "  step time        {median} (90 %: {p90}, 99 %: {p99})")?;
    }
    if let Some(throughput) = report.throughput {
        writeln!(out, "  throughput       {throughput:.0} {}/s", report.sample_unit)?;
    }
    let percent = |name: &str, value: Option<f64>, out: &mut String| match value {
        Some(value) => writeln!(out, "  {name:<16} {:.1} %", value * 100.0),
        None => Ok(()),
    };
    percent("overlap", report.overlap_ratio, out)?;
    percent("efficiency", report.scaling_efficiency.implied, out)?;
    if report.scaling_efficiency.implied.is_some() {
        out.pop();
        writeln!(out, " (implied: compute / step, no baseline run)")?;
    }
    percent("measured eff.", report.scaling_efficiency.measured, out)?;
    if let Some(own) = report.own_overhead {
        let (ratio, low, high) = (own.ratio * 100.0, own.low * 100.0, own.high * 100.0);
        writeln!(out, "  own overhead     {ratio:.2} % (95 %: {low:.2} to {high:.2}, {} pairs)", own.pairs)?;
    }
    if let Some(model) = &report.comm_model {
        let latency = nanos(model.alpha_seconds * 1e9);
        // Buckets of like size on a busy machine show a latency and no slope.
        let bandwidth = match 1e-9 / model.beta_seconds_per_byte {
            bandwidth if bandwidth.is_finite() => format!(" + bytes / {bandwidth:.2} GB/s"),
            _ => ", whatever the size".into(),
        };
        writeln!(out, "  all-reduce       {latency}{bandwidth} (fitted)")?;
    }
    let lost: u64 = report.drops.iter().flat_map(|rank| &rank.drops).map(|drop| drop.count).sum();
    if lost > 0 {
        writeln!(out, "  records lost     {lost}")?;
    }
    Ok(())
}

fn write_ledger(out: &mut String, report: &Report) -> std::fmt::Result {
    if report.ledger.is_empty() || report.steps == 0 {
        return Ok(());
    }
    const MOST_COLUMNS: usize = 8;
    writeln!(out, "\nStep ledger, mean per step:")?;
    let shown = &report.ledger[..report.ledger.len().min(MOST_COLUMNS)];
    write!(out, "  {:PART_WIDTH$}", "")?;
    for ledger in shown {
        write!(out, " {:>10}", format!("rank {}", ledger.rank))?;
    }
    writeln!(out)?;
    let mean = |sum: u64| nanos(sum as f64 / report.steps as f64);
    for part in Part::ALL {
        write!(out, "  {:PART_WIDTH$}", part.name())?;
        for ledger in shown {
            write!(out, " {:>10}", mean(ledger.parts()[part as usize]))?;
        }
        writeln!(out)?;
    }
    write!(out, "  {:PART_WIDTH$}", "step")?;
    for ledger in shown {
        write!(out, " {:>10}", mean(ledger.step_ns))?;
    }
    writeln!(out)?;
    match report.ledger.len().saturating_sub(MOST_COLUMNS) {
        0 => Ok(()),
        more => writeln!(out, "  ({more} more ranks: see --json)"),
    }
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
        n if n < 1e6 => (nanos / 1e3, "us"),
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

#[cfg(test)]
mod tests {
    use super::nanos;

    #[test]
    fn durations_have_three_digits_and_a_unit() {
        assert_eq!(nanos(0.0), "0 ns");
        assert_eq!(nanos(999.0), "999 ns");
        assert_eq!(nanos(1_234.0), "1.23 us");
        assert_eq!(nanos(31_400_000.0), "31.4 ms");
        assert_eq!(nanos(2.5e9), "2.50 s");
    }
}
