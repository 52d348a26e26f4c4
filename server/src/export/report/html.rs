//! The report as one HTML file without scripts or external resources. It is legible at a width of 400 pixels, and on
//! light and dark backgrounds.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use units::nanos;
use wire::live::Part;
use wire::views::LatencyHistogram;

use super::markdown::range;
use super::{Body, Cell, Document, Section, Statement, Table};

const STYLE: &str = include_str!("style.css");

/// Renders a report as an HTML file.
#[must_use]
pub fn html(document: &Document) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (document.name) ": " (document.run) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main {
                    (header(document))
                    @for section in &document.sections { (self::section(section)) }
                }
            }
        }
    };
    page.into_string()
}

fn header(document: &Document) -> Markup {
    html! {
        header {
            p.run { b { (document.name) } " " (document.run) }
            @for line in &document.headlines { h1 { (line) } }
            @for (at, verdict) in document.verdicts.iter().enumerate() {
                (statement(verdict, at == 0 && document.headlines.is_empty()))
            }
            @for fault in &document.past_faults { p.note { "Earlier fault: " (fault) } }
            @for note in &document.notes {
                section.verdict.note {
                    p { "Note: " (note.sentence) br; (note.details) }
                    (reasons(note))
                }
            }
            p.about {
                @for (at, line) in document.scope.iter().enumerate() {
                    @if at > 0 { br; }
                    (line)
                }
            }
        }
    }
}

fn statement(verdict: &Statement, is_title: bool) -> Markup {
    html! {
        section.verdict {
            @if is_title { h1 { (verdict.sentence) } } @else { h2 { (verdict.sentence) } }
            p { (verdict.details) }
            (reasons(verdict))
        }
    }
}

/// Returns the evidence and the advice of a verdict or a note.
fn reasons(verdict: &Statement) -> Markup {
    html! {
        ul {
            @for line in &verdict.evidence { li.for { (line) } }
            @for line in &verdict.counter_evidence { li.against { (line) } }
        }
        @if !verdict.advice.is_empty() { p { b { "What to do: " } (verdict.advice) } }
    }
}

fn section(section: &Section) -> Markup {
    html! {
        section {
            h2 { (section.title) }
            @if !section.introduction.is_empty() { p.about { (section.introduction.join(" ")) } }
            @match &section.body {
                Body::Figures(figures) => {
                    dl { @for (name, value) in figures { dt { (name) } dd { (value) } } }
                }
                Body::Table(table) => { (bars(table)) (self::table(table)) }
            }
        }
    }
}

/// Returns the class of a part's color.
fn color(part: Part) -> String {
    format!("part{}", part as usize)
}

/// Returns the legend of the colors.
fn legend<'a>(parts: impl IntoIterator<Item = (Part, &'a str)>) -> Markup {
    html! {
        p.legend { @for (part, name) in parts { span { i class=(color(part)) {} (name) } } }
    }
}

/// Returns a stacked bar per row, all with the same scale. Each bar is a separate SVG element, so text keeps its size on
/// any screen.
fn bars(table: &Table) -> Markup {
    let has_idle = table.bars.iter().any(|(_, parts)| parts[Part::Idle as usize] > 0.0);
    let longest = table.bars.iter().map(|(_, parts)| parts.iter().sum::<f64>()).fold(0.0, f64::max);
    if longest <= 0.0 {
        return html! {};
    }
    html! {
        (legend(Part::stacked(has_idle).map(|part| (part, part.name()))))
        div.bars {
            @for (name, parts) in &table.bars {
                span { (name) }
                svg role="img" aria-label={ (name) ": " (nanos(parts.iter().sum())) } height="18" width="100%" {
                    @for (part, begin, length) in stacked(parts) {
                        rect class=(color(part)) height="18" x=(percentage(begin / longest))
                            width=(percentage(length / longest)) { title { (part.name()) " " (nanos(length)) } }
                    }
                }
            }
        }
    }
}

/// Returns the begin and the length of each part that is not empty.
fn stacked(parts: &[f64; Part::COUNT]) -> impl Iterator<Item = (Part, f64, f64)> {
    let mut end = 0.0;
    let placed = Part::ALL.into_iter().zip(parts).map(move |(part, &length)| {
        end += length;
        (part, end - length, length)
    });
    placed.filter(|(.., length)| *length > 0.0)
}

fn percentage(share: f64) -> String {
    format!("{:.2}%", share * 100.0)
}

fn table(table: &Table) -> Markup {
    let has_histogram = table.rows.iter().flatten().any(|cell| matches!(cell, Cell::Histogram(_)));
    html! {
        @if has_histogram {
            (legend([(Part::ExposedWait, "waits"), (Part::ExposedTransfer, "transfers")]))
        }
        div.scroll {
            table {
                thead { tr { @for name in &table.head { th { (name) } } } }
                tbody {
                    @for row in &table.rows {
                        tr { @for (at, cell) in row.iter().enumerate() { (self::cell(cell, at == 0)) } }
                    }
                }
            }
        }
        @if table.left_out > 0 { p.about { (table.left_out) " more rows are not shown." } }
    }
}

fn cell(cell: &Cell, names_row: bool) -> Markup {
    html! {
        @match cell {
            Cell::Text(text) if names_row => { th { (text) } }
            Cell::Text(text) => { td { (text) } }
            Cell::Histogram(histogram) => { td { (self::histogram(histogram)) } }
        }
    }
}

/// Returns a histogram of waits and transfers, with one column per bin. The tallest column fills the height.
fn histogram(histogram: &LatencyHistogram) -> Markup {
    const WIDTH: f64 = 120.0;
    const HEIGHT: f64 = 24.0;
    let most = histogram.transfers.iter().chain(&histogram.waits).max();
    let (Some(&most), Some(range)) = (most.filter(|&&most| most > 0), range(histogram)) else {
        return html! {};
    };
    let step = WIDTH / histogram.transfers.len() as f64;
    let columns = |counts: &[u32], offset: f64| {
        let counted = counts.iter().enumerate().filter(|&(_, &count)| count > 0);
        let column = |(bin, &count): (usize, &u32)| {
            ((bin as f64 + offset) * step, (HEIGHT * f64::from(count) / f64::from(most)).max(1.0))
        };
        counted.map(column).collect::<Vec<_>>()
    };
    let series = [
        (Part::ExposedWait, columns(&histogram.waits, 0.0)),
        (Part::ExposedTransfer, columns(&histogram.transfers, 0.5)),
    ];
    html! {
        svg role="img" aria-label=(range) width=(WIDTH) height=(HEIGHT) {
            title { (range) }
            @for (part, columns) in series {
                @for (x, height) in columns {
                    rect class=(color(part)) x=(tenths(x)) y=(tenths(HEIGHT - height)) width=(tenths(step / 2.0))
                        height=(tenths(height)) {}
                }
            }
        }
    }
}

fn tenths(length: f64) -> String {
    format!("{length:.1}")
}
