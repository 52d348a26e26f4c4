//! The comparison of two runs as text for a terminal.

use std::fmt::Write as _;

use wire::views::captures::TraceRow;
use wire::views::comparison::{Change, Compared, Comparison, Unit};

use units::{nanos, signed_nanos};

use super::kernel_name::shortened;

/// The number of operators, ranges and kernels that are listed.
const MOST_TRACED: usize = 20;

/// Returns the comparison as text: a sentence, then the figures.
#[must_use]
pub fn text(comparison: &Comparison) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _infallible = write(&mut out, comparison);
    out
}

fn write(out: &mut String, comparison: &Comparison) -> std::fmt::Result {
    writeln!(out, "{}", comparison.sentence)?;
    for caveat in &comparison.caveats {
        writeln!(out, "  ! {caveat}")?;
    }
    writeln!(out, "\n{:26}{:>14}{:>14}{:>14}{:>10}", "", "a", "b", "difference", "noise")?;
    for row in &comparison.figures {
        writeln!(out, "{}", line(row))?;
    }
    writeln!(out, "\nMean per step, over ranks:")?;
    for row in &comparison.ledger {
        writeln!(out, "{}", line(row))?;
    }
    write_traced(out, comparison)?;
    let lists = [
        ("Verdicts only in a", &comparison.verdicts_gone),
        ("New verdicts", &comparison.verdicts_new),
        ("Memory that grows only in a", &comparison.memory_gone),
        ("Memory that grows only in b", &comparison.memory_new),
    ];
    for (title, sentences) in lists.into_iter().filter(|(_, sentences)| !sentences.is_empty()) {
        writeln!(out, "\n{title}:")?;
        for sentence in sentences {
            writeln!(out, "  {sentence}")?;
        }
    }
    writeln!(out, "\na: {}\nb: {}", comparison.a, comparison.b)
}

/// Writes what differs between the traces of the runs.
fn write_traced(out: &mut String, comparison: &Comparison) -> std::fmt::Result {
    if comparison.traced.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nOperators, ranges and kernels that differ most, mean self time per step and rank:")?;
    let mut rows: Vec<&TraceRow> = comparison.traced.iter().collect();
    rows.sort_by(|a, b| b.difference().abs().total_cmp(&a.difference().abs()));
    let left_out = comparison.traced_left_out + rows.len().saturating_sub(MOST_TRACED) as u64;
    rows.truncate(MOST_TRACED);
    rows.sort_by(|a, b| b.difference().total_cmp(&a.difference()));
    for row in rows {
        let only = match (row.is_new(), row.is_gone()) {
            (true, _) => "only in b",
            (_, true) => "only in a",
            _ => "",
        };
        let (a, b) = (nanos(row.other_nanos), nanos(row.own_nanos));
        let (difference, name) = (signed_nanos(row.difference()), shortened(&row.name));
        writeln!(out, "  {:24}{a:>14}{b:>14}{difference:>14}{only:>10}  {name}", row.kind.name())?;
    }
    match left_out {
        0 => Ok(()),
        more => writeln!(out, "  {more} more differ less"),
    }
}

/// Returns one row of the table.
fn line(row: &Compared) -> String {
    let difference = row.difference.map_or_else(|| "-".into(), |difference| signed(difference, row.unit));
    let noise = row.noise.map_or_else(String::new, |noise| format!("{:.1} %", noise * 100.0));
    let judged = match row.change {
        Change::Better => "  better",
        Change::Worse => "  worse",
        Change::Same | Change::Unknown => "",
    };
    let (a, b) = (value(row.a, row.unit), value(row.b, row.unit));
    format!("  {:24}{a:>14}{b:>14}{difference:>14}{noise:>10}{judged}", row.name)
}

/// Returns a figure with its unit, or `-` if it is not known.
pub(crate) fn value(value: Option<f64>, unit: Unit) -> String {
    let Some(value) = value else { return "-".into() };
    match unit {
        Unit::Nanos => nanos(value),
        Unit::Ratio => format!("{:.1} %", value * 100.0),
        Unit::PerSecond => format!("{value:.0} /s"),
    }
}

/// Returns a difference as text: points for a ratio, otherwise a percentage of the first value, or a multiple of it if
/// the value has grown tenfold or more.
pub(crate) fn signed(difference: f64, unit: Unit) -> String {
    match unit {
        Unit::Ratio => format!("{} points", units::signed(difference * 100.0, 1)),
        _ if difference >= 9.0 => format!("× {:.0}", difference + 1.0),
        _ => format!("{} %", units::signed(difference * 100.0, 1)),
    }
}
