//! The report for a terminal with about 80 columns: the verdicts, then the brief sections.

use std::fmt::{self, Write as _};

use super::{Body, Cell, Document, Section, Statement, Table};

/// The smallest width of the names of figures, in characters.
const NAME_WIDTH: usize = 16;
/// The smallest width of the names of rows, in characters.
const ROW_WIDTH: usize = 34;
/// The largest number of columns of a sideways table.
const MAX_COLUMNS: usize = 8;

/// Renders a report for a terminal.
#[must_use]
pub fn terminal(document: &Document) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _infallible = write(&mut out, document);
    out
}

fn write(out: &mut String, document: &Document) -> fmt::Result {
    write!(out, "{} ({}), ", document.name, document.run)?;
    document.scope.iter().try_for_each(|line| writeln!(out, "{line}"))?;
    writeln!(out)?;
    document.headlines.iter().try_for_each(|line| writeln!(out, "{line}"))?;
    document.verdicts.iter().try_for_each(|verdict| statement(out, verdict))?;
    document.past_faults.iter().try_for_each(|fault| writeln!(out, "Earlier fault: {fault}"))?;
    for note in &document.notes {
        write!(out, "Note: ")?;
        statement(out, note)?;
    }
    document.sections.iter().filter(|section| section.brief).try_for_each(|listed| section(out, listed))
}

fn statement(out: &mut String, verdict: &Statement) -> fmt::Result {
    writeln!(out, "{}\n  {}", verdict.sentence, verdict.details)?;
    verdict.evidence.iter().try_for_each(|line| writeln!(out, "  + {line}"))?;
    verdict.counter_evidence.iter().try_for_each(|line| writeln!(out, "  - {line}"))?;
    if verdict.advice.is_empty() { Ok(()) } else { writeln!(out, "  What to do: {}", verdict.advice) }
}

fn section(out: &mut String, section: &Section) -> fmt::Result {
    writeln!(out, "\n{}:", section.title)?;
    section.introduction.iter().try_for_each(|line| writeln!(out, "  {line}"))?;
    match &section.body {
        Body::Figures(figures) => {
            let width = figures.iter().map(|(name, _)| name.len()).max().unwrap_or(0).max(NAME_WIDTH);
            figures.iter().try_for_each(|(name, value)| writeln!(out, "  {name:<width$}  {value}"))
        }
        Body::Table(table) if table.sideways => sideways(out, table),
        Body::Table(table) => upright(out, table),
    }
}

fn upright(out: &mut String, table: &Table) -> fmt::Result {
    let (first, others) = table.head.split_first().map_or(("", &[][..]), |(first, rest)| (first, rest));
    let names = table.rows.iter().filter_map(|row| row.first()).map(|name| text(name).chars().count());
    let width = names.max().unwrap_or(0).max(ROW_WIDTH);
    write!(out, "  {first:<width$}")?;
    others.iter().try_for_each(|name| write!(out, " {name:>12}"))?;
    writeln!(out)?;
    for row in &table.rows {
        let (name, values) = row.split_first().map_or(("", &[][..]), |(name, rest)| (text(name), rest));
        write!(out, "  {name:<width$}")?;
        values.iter().try_for_each(|cell| write!(out, " {:>12}", text(cell)))?;
        writeln!(out)?;
    }
    Ok(())
}

fn sideways(out: &mut String, table: &Table) -> fmt::Result {
    let shown = &table.rows[..table.rows.len().min(MAX_COLUMNS)];
    for (at, name) in table.head.iter().enumerate() {
        // The first cell of each row is a column name here.
        write!(out, "  {:NAME_WIDTH$}", if at == 0 { "" } else { name })?;
        shown.iter().try_for_each(|row| write!(out, " {:>10}", row.get(at).map_or("", text)))?;
        writeln!(out)?;
    }
    match table.rows.len() - shown.len() + table.left_out {
        0 => Ok(()),
        more => writeln!(out, "  ({more} more ranks: see --format json)"),
    }
}

/// Returns the text of a cell. A terminal shows no histograms.
fn text(cell: &Cell) -> &str {
    match cell {
        Cell::Text(text) => text,
        Cell::Histogram(_) => "",
    }
}
