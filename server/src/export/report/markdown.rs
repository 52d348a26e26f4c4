//! The report as Markdown with tables, for a ticket or a chat.

use std::fmt::{self, Write as _};

use wire::views::LatencyHistogram;

use super::{Body, Cell, Document, Section, Statement, Table};
use units::nanos;

/// Renders a report as Markdown.
#[must_use]
pub fn markdown(document: &Document) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _infallible = write(&mut out, document);
    out
}

fn write(out: &mut String, document: &Document) -> fmt::Result {
    writeln!(out, "# {} ({})", plain(&document.name), plain(&document.run))?;
    document.headlines.iter().try_for_each(|line| writeln!(out, "\n**{}**", plain(line)))?;
    document.verdicts.iter().try_for_each(|verdict| statement(out, verdict))?;
    document.past_faults.iter().try_for_each(|fault| writeln!(out, "\nEarlier fault: {}", plain(fault)))?;
    for note in &document.notes {
        writeln!(out, "\nNote: {}\\\n{}\n", plain(&note.sentence), plain(&note.details))?;
        reasons(out, note)?;
    }
    let about: Vec<String> = document.about.iter().map(|line| plain(line)).collect();
    writeln!(out, "\n{}", about.join("; "))?;
    document.sections.iter().try_for_each(|it| section(out, it))
}

fn statement(out: &mut String, verdict: &Statement) -> fmt::Result {
    writeln!(out, "\n**{}**\\\n{}\n", plain(&verdict.sentence), plain(&verdict.details))?;
    reasons(out, verdict)
}

/// Writes the evidence and the advice of a verdict or a note.
fn reasons(out: &mut String, verdict: &Statement) -> fmt::Result {
    verdict.evidence.iter().try_for_each(|line| writeln!(out, "- for: {}", plain(line)))?;
    verdict.counter_evidence.iter().try_for_each(|line| writeln!(out, "- against: {}", plain(line)))?;
    if verdict.advice.is_empty() { Ok(()) } else { writeln!(out, "\nWhat to do: {}", plain(&verdict.advice)) }
}

fn section(out: &mut String, section: &Section) -> fmt::Result {
    writeln!(out, "\n## {}\n", section.title)?;
    if !section.about.is_empty() {
        writeln!(out, "{}\n", plain(&section.about.join(" ")))?;
    }
    match &section.body {
        Body::Figures(figures) => {
            writeln!(out, "| | |\n|---|---|")?;
            let mut row =
                |(name, value): &(String, String)| writeln!(out, "| {} | {} |", plain(name), plain(value));
            figures.iter().try_for_each(&mut row)
        }
        Body::Table(table) => self::table(out, table),
    }
}

fn table(out: &mut String, table: &Table) -> fmt::Result {
    let head: Vec<String> = table.head.iter().map(|name| plain(name)).collect();
    writeln!(out, "| {} |\n|---|{}", head.join(" | "), "---:|".repeat(head.len().saturating_sub(1)))?;
    for row in &table.rows {
        let cells: Vec<String> = row.iter().map(cell).collect();
        writeln!(out, "| {} |", cells.join(" | "))?;
    }
    if table.left_out > 0 {
        writeln!(out, "\n{} more rows are not shown.", table.left_out)?;
    }
    Ok(())
}

fn cell(cell: &Cell) -> String {
    match cell {
        Cell::Text(text) => plain(text),
        Cell::Histogram(histogram) => range(histogram).unwrap_or_default(),
    }
}

/// Returns the range of transfers as text, from the first to the last bin that is not empty. Returns `None` if all bins
/// are empty.
pub(super) fn range(histogram: &LatencyHistogram) -> Option<String> {
    let is_there = |count: &u32| *count > 0;
    let first = histogram.transfers.iter().position(is_there)? as u32;
    let last = histogram.transfers.iter().rposition(is_there)? as u32;
    let begin = |bin: u32| nanos(LatencyHistogram::begin(histogram.first + bin));
    Some(format!("transfers {} to {}", begin(first), begin(last + 1)))
}

/// Escapes text for Markdown. Names of runs and kernels come from the job and are not trusted.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' | '\r' => plain.push(' '),
            '\\' | '`' | '*' | '[' | ']' | '<' | '>' | '|' | '&' | '#' => {
                plain.push('\\');
                plain.push(character);
            }
            _ => plain.push(character),
        }
    }
    plain
}
