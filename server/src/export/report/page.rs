//! Sections of the report as HTML, which the dashboard inserts.

use std::fmt::{self, Write as _};

use wire::batch::DropReason;
use wire::views::Report;

use super::{Body, Cell, Section, Table, figures, groups};
use crate::export::escape::plain;

/// Returns what limits the accuracy of the figures, as HTML: lost records by reason, and missing figures.
#[must_use]
pub fn trust_part(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _infallible = lost_by_reason(&mut out, report).and_then(|()| missing(&mut out, report));
    format!("<div class=halves>{out}</div>")
}

fn meaning(why: DropReason) -> &'static str {
    match why {
        DropReason::RingFull => {
            "a thread's event ring was full: the drain thread got no processor for too long"
        }
        DropReason::SpoolFull => "the spool was full: the server could not be reached for too long",
        DropReason::Refused => "the server refused a batch for good: see the server's log",
        DropReason::Shutdown => "the process ended before the server acknowledged its last batches",
    }
}

/// Writes the table of lost records. All reasons are listed, so that a lack of losses is visible as zeros.
fn lost_by_reason(out: &mut String, report: &Report) -> fmt::Result {
    write!(
        out,
        "<section class=panel><div class=panel-head><h2>Records lost<small> since each process began</small></h2></div>\
         <table class=roomy><thead><tr><th scope=col>Reason</th><th scope=col class=number>Records</th></tr></thead><tbody>"
    )?;
    for why in DropReason::ALL {
        let drops = report.drops.iter().flat_map(|rank| &rank.drops).filter(|drop| drop.reason == why);
        write!(
            out,
            "<tr><th scope=row>{}<small class=explained>{}</small></th><td class=number>{}</td></tr>",
            why.name().replace('_', " "),
            meaning(why),
            drops.map(|drop| drop.count).sum::<u64>()
        )?;
    }
    write!(out, "</tbody></table></section>")
}

/// Writes the missing figures, each with its reason.
fn missing(out: &mut String, report: &Report) -> fmt::Result {
    write!(
        out,
        "<section class=panel data-testid=missing><div class=panel-head><h2>Missing figures<small> and the reasons</small></h2>\
         </div>"
    )?;
    let reasons = figures::reasons(report);
    if reasons.is_empty() {
        write!(out, "<p class=quiet>No figure is missing.</p>")?;
    }
    write!(out, "<dl class=reasons>")?;
    for (name, why) in &reasons {
        write!(out, "<dt>{}</dt><dd>{}</dd>", plain(name), plain(why))?;
    }
    write!(out, "</dl></section>")
}

/// Returns the table of groups as HTML, or nothing if all collectives are among all ranks.
#[must_use]
pub fn groups_part(report: &Report) -> String {
    let mut out = String::new();
    if let Some(section) = groups::groups(report) {
        // Writing to a string cannot fail.
        let _infallible = panel(&mut out, &section);
    }
    out
}

fn panel(out: &mut String, section: &Section) -> fmt::Result {
    let (title, about) = (section.title, plain(&section.about.join(" ")));
    write!(
        out,
        "<section class=panel aria-label=\"{title}\" data-testid={}><div class=panel-head><h2>{title}\
         <small> {about}</small></h2></div>",
        title.to_lowercase()
    )?;
    if let Body::Table(table) = &section.body {
        self::table(out, table)?;
    }
    write!(out, "</section>")
}

fn table(out: &mut String, table: &Table) -> fmt::Result {
    let classes: Vec<&str> = (0..table.head.len()).map(|at| class(table, at)).collect();
    write!(out, "<div class=rows><table><thead><tr>")?;
    for (name, class) in table.head.iter().zip(&classes) {
        write!(out, "<th scope=col{class}>{}</th>", capitalised(name))?;
    }
    write!(out, "</tr></thead><tbody>")?;
    for row in &table.rows {
        write!(out, "<tr>")?;
        for (at, cell) in row.iter().enumerate() {
            let Cell::Text(text) = cell else { continue };
            let (open, close) = if at == 0 { ("th scope=row", "th") } else { ("td", "td") };
            write!(out, "<{open}{}>{}</{close}>", classes[at], plain(text))?;
        }
        write!(out, "</tr>")?;
    }
    write!(out, "</tbody></table></div>")?;
    match table.left_out {
        0 => Ok(()),
        more => write!(out, "<p class=quiet>{more} more rows are not shown.</p>"),
    }
}

/// Returns the class attribute of a column's cells, which aligns numbers.
fn class(table: &Table, column: usize) -> &'static str {
    let is_number =
        |cell: &Cell| matches!(cell, Cell::Text(text) if text.starts_with(|c: char| c.is_ascii_digit()));
    if column > 0 && table.rows.iter().all(|row| is_number(&row[column])) { " class=number" } else { "" }
}

fn capitalised(name: &str) -> String {
    let mut characters = name.chars();
    characters.next().into_iter().flat_map(char::to_uppercase).chain(characters).collect()
}
