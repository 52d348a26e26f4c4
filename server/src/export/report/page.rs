//! Sections of the report as parts of the page, which only shows them.

use std::fmt::{self, Write as _};

use wire::batch::DropReason;
use wire::views::Report;

use super::{Body, Cell, Section, Table, groups};
use crate::export::text::plain;

/// How far the figures can be trusted: records that were lost, by reason, and figures that are not there.
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
            "the thread's ring was full: the agent's thread got no processor for too long"
        }
        DropReason::SpoolFull => "the server was away for so long that the rank's spool filled up",
        DropReason::Refused => "the server refused the batch for good: see its log",
        DropReason::Shutdown => "the process ended before the server had acknowledged",
    }
}

/// A gap that looks like quiet would be a lie.
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

/// Each with its reason.
fn missing(out: &mut String, report: &Report) -> fmt::Result {
    write!(
        out,
        "<section class=panel data-testid=missing><div class=panel-head><h2>Missing figures<small> and why</small></h2>\
         </div>"
    )?;
    if report.missing.is_empty() {
        write!(out, "<p class=quiet>Every figure is there.</p>")?;
    }
    write!(out, "<dl class=reasons>")?;
    for (name, why) in &report.missing {
        write!(out, "<dt>{}</dt><dd>{}</dd>", plain(&name.replace('_', " ")), plain(why))?;
    }
    write!(out, "</dl></section>")
}

/// The table of groups; nothing where all collectives are among all ranks.
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
        more => write!(out, "<p class=quiet>{more} more are not shown.</p>"),
    }
}

/// The attribute of a column's cells: numbers stand under each other.
fn class(table: &Table, column: usize) -> &'static str {
    let is_number =
        |cell: &Cell| matches!(cell, Cell::Text(text) if text.starts_with(|c: char| c.is_ascii_digit()));
    if column > 0 && table.rows.iter().all(|row| is_number(&row[column])) { " class=number" } else { "" }
}

fn capitalised(name: &str) -> String {
    let mut characters = name.chars();
    characters.next().into_iter().flat_map(char::to_uppercase).chain(characters).collect()
}
