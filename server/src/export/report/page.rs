//! Sections of the report as HTML, which the dashboard inserts.

use maud::{Markup, html};
use wire::batch::DropReason;
use wire::views::Report;

use super::{Body, Cell, Section, Table, figures, groups};

/// Returns what limits the accuracy of the figures, as HTML: lost records by reason, and missing figures.
#[must_use]
pub fn trust_part(report: &Report) -> String {
    html! { div.halves { (lost_by_reason(report)) (missing(report)) } }.into_string()
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

/// Returns the table of lost records. All reasons are listed, so that a lack of losses is visible as zeros.
fn lost_by_reason(report: &Report) -> Markup {
    let lost = |why: DropReason| -> u64 {
        let drops = report.drops.iter().flat_map(|rank| &rank.drops).filter(|drop| drop.reason == why);
        drops.map(|drop| drop.count).sum()
    };
    html! {
        section.panel {
            div.panel-head { h2 { "Records lost" small { " since each process began" } } }
            table.roomy {
                thead { tr { th scope="col" { "Reason" } th.number scope="col" { "Records" } } }
                tbody {
                    @for why in DropReason::ALL {
                        tr {
                            th scope="row" {
                                (why.name().replace('_', " "))
                                small.explained { (meaning(why)) }
                            }
                            td.number { (lost(why)) }
                        }
                    }
                }
            }
        }
    }
}

/// Returns the missing figures, each with its reason.
fn missing(report: &Report) -> Markup {
    let reasons = figures::reasons(report);
    html! {
        section.panel data-testid="missing" {
            div.panel-head { h2 { "Missing figures" small { " and the reasons" } } }
            @if reasons.is_empty() { p.quiet { "No figure is missing." } }
            dl.reasons { @for (name, why) in &reasons { dt { (name) } dd { (why) } } }
        }
    }
}

/// Returns the table of groups as HTML, or nothing if all collectives are among all ranks.
#[must_use]
pub fn groups_part(report: &Report) -> String {
    groups::groups(report).map_or_else(String::new, |section| panel(&section).into_string())
}

fn panel(section: &Section) -> Markup {
    html! {
        section.panel aria-label=(section.title) data-testid=(section.title.to_lowercase()) {
            div.panel-head { h2 { (section.title) small { " " (section.about.join(" ")) } } }
            @if let Body::Table(table) = &section.body { (self::table(table)) }
        }
    }
}

fn table(table: &Table) -> Markup {
    let is_number: Vec<bool> = (0..table.head.len()).map(|at| is_numeric(table, at)).collect();
    html! {
        div.rows {
            table {
                thead {
                    tr {
                        @for (name, &is_number) in table.head.iter().zip(&is_number) {
                            th class=[is_number.then_some("number")] scope="col" { (units::capitalized(name)) }
                        }
                    }
                }
                tbody {
                    @for row in &table.rows {
                        tr {
                            @for (at, text) in row.iter().enumerate().filter_map(texts) {
                                @if at == 0 {
                                    th scope="row" { (text) }
                                } @else {
                                    td class=[is_number[at].then_some("number")] { (text) }
                                }
                            }
                        }
                    }
                }
            }
        }
        @if table.left_out > 0 { p.quiet { (table.left_out) " more rows are not shown." } }
    }
}

fn texts((at, cell): (usize, &Cell)) -> Option<(usize, &str)> {
    match cell {
        Cell::Text(text) => Some((at, text)),
        Cell::Histogram(_) => None,
    }
}

/// Returns true if a column has only numbers, which are aligned to the right. The first column names the rows.
fn is_numeric(table: &Table, column: usize) -> bool {
    let is_number =
        |cell: &Cell| matches!(cell, Cell::Text(text) if text.starts_with(|c: char| c.is_ascii_digit()));
    column > 0 && table.rows.iter().all(|row| is_number(&row[column]))
}
