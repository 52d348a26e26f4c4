//! The report as one HTML file without scripts or external resources. It is legible at a width of 400 pixels, and on
//! light and dark backgrounds.

use std::fmt::{self, Write as _};

use units::nanos;
use wire::live::Part;
use wire::views::LatencyHistogram;

use super::markdown::range;
use super::{Body, Cell, Document, Section, Statement, Table};
use crate::export::escape::plain;

const STYLE: &str = include_str!("style.css");

/// Renders a report as an HTML file.
#[must_use]
pub fn html(document: &Document) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _infallible = write(&mut out, document);
    out
}

fn write(out: &mut String, document: &Document) -> fmt::Result {
    let name = plain(&document.name);
    writeln!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{name}: {}</title>\n<style>\n{STYLE}</style>\n\
         </head>\n<body>\n<main>",
        plain(&document.run)
    )?;
    writeln!(out, "<header>\n<p class=\"run\"><b>{name}</b> {}</p>", plain(&document.run))?;
    document.headlines.iter().try_for_each(|line| writeln!(out, "<h1>{}</h1>", plain(line)))?;
    let first_is_title = document.headlines.is_empty();
    for (at, verdict) in document.verdicts.iter().enumerate() {
        statement(out, verdict, if at == 0 && first_is_title { "h1" } else { "h2" })?;
    }
    for note in &document.notes {
        writeln!(out, "<p class=\"note\">Note: {}<br>{}</p>", plain(&note.sentence), plain(&note.details))?;
    }
    let about: Vec<String> = document.about.iter().map(|line| plain(line)).collect();
    writeln!(out, "<p class=\"about\">{}</p>\n</header>", about.join("<br>"))?;
    document.sections.iter().try_for_each(|it| section(out, it))?;
    writeln!(out, "</main>\n</body>\n</html>")
}

fn statement(out: &mut String, verdict: &Statement, heading: &str) -> fmt::Result {
    writeln!(
        out,
        "<section class=\"verdict\">\n<{heading}>{}</{heading}>\n<p>{}</p>\n<ul>",
        plain(&verdict.sentence),
        plain(&verdict.details)
    )?;
    let item = |line: &String, class: &str| format!("<li class=\"{class}\">{}</li>\n", plain(line));
    verdict.evidence.iter().for_each(|line| out.push_str(&item(line, "for")));
    verdict.counter_evidence.iter().for_each(|line| out.push_str(&item(line, "against")));
    writeln!(out, "</ul>\n</section>")
}

fn section(out: &mut String, section: &Section) -> fmt::Result {
    writeln!(out, "<section>\n<h2>{}</h2>", section.title)?;
    if !section.about.is_empty() {
        writeln!(out, "<p class=\"about\">{}</p>", plain(&section.about.join(" ")))?;
    }
    match &section.body {
        Body::Figures(figures) => {
            writeln!(out, "<dl>")?;
            for (name, value) in figures {
                writeln!(out, "<dt>{}</dt><dd>{}</dd>", plain(name), plain(value))?;
            }
            writeln!(out, "</dl>")?;
        }
        Body::Table(table) => {
            bars(out, table)?;
            self::table(out, table)?;
        }
    }
    writeln!(out, "</section>")
}

/// Writes the legend of the colors.
fn legend<const N: usize>(out: &mut String, of: [(Part, &str); N]) -> fmt::Result {
    writeln!(out, "<p class=\"legend\">")?;
    for (part, name) in of {
        writeln!(out, "<span><i class=\"part{}\"></i>{name}</span>", part as usize)?;
    }
    writeln!(out, "</p>")
}

/// Writes a stacked bar per row, all with the same scale. Each bar is a separate SVG element, so text keeps its size on
/// any screen.
fn bars(out: &mut String, table: &Table) -> fmt::Result {
    let longest = table.bars.iter().map(|(_, parts)| parts.iter().sum::<f64>()).fold(0.0, f64::max);
    if longest <= 0.0 {
        return Ok(());
    }
    legend(out, Part::ALL.map(|part| (part, part.name())))?;
    writeln!(out, "<div class=\"bars\">")?;
    for (name, parts) in &table.bars {
        let whole = nanos(parts.iter().sum());
        write!(
            out,
            "<span>{0}</span><svg role=\"img\" aria-label=\"{0}: {whole}\" height=\"18\" width=\"100%\">",
            plain(name)
        )?;
        let mut at = 0.0;
        for (part, &length) in Part::ALL.iter().zip(parts) {
            let (x, width) = (at / longest * 100.0, length / longest * 100.0);
            at += length;
            if length > 0.0 {
                write!(
                    out,
                    "<rect class=\"part{}\" x=\"{x:.2}%\" width=\"{width:.2}%\" height=\"18\"><title>{} {}</title></rect>",
                    *part as usize,
                    part.name(),
                    nanos(length)
                )?;
            }
        }
        writeln!(out, "</svg>")?;
    }
    writeln!(out, "</div>")
}

fn table(out: &mut String, table: &Table) -> fmt::Result {
    if table.rows.iter().flatten().any(|cell| matches!(cell, Cell::Histogram(_))) {
        legend(out, [(Part::ExposedWait, "waits"), (Part::ExposedTransfer, "transfers")])?;
    }
    writeln!(out, "<div class=\"scroll\"><table>\n<thead><tr>")?;
    table.head.iter().try_for_each(|name| write!(out, "<th>{}</th>", plain(name)))?;
    writeln!(out, "</tr></thead>\n<tbody>")?;
    for row in &table.rows {
        write!(out, "<tr>")?;
        for (at, cell) in row.iter().enumerate() {
            match cell {
                Cell::Text(text) if at == 0 => write!(out, "<th>{}</th>", plain(text))?,
                Cell::Text(text) => write!(out, "<td>{}</td>", plain(text))?,
                Cell::Histogram(histogram) => self::histogram(out, histogram)?,
            }
        }
        writeln!(out, "</tr>")?;
    }
    writeln!(out, "</tbody>\n</table></div>")?;
    if table.left_out > 0 {
        writeln!(out, "<p class=\"about\">{} more rows are not shown.</p>", table.left_out)?;
    }
    Ok(())
}

/// Writes a histogram of waits and transfers, with one column per bin. The tallest column fills the height.
fn histogram(out: &mut String, histogram: &LatencyHistogram) -> fmt::Result {
    let (bins, most) = (histogram.transfers.len(), histogram.transfers.iter().chain(&histogram.waits).max());
    let (Some(&most), Some(range)) = (most.filter(|&&most| most > 0), range(histogram)) else {
        return write!(out, "<td></td>");
    };
    const WIDTH: f64 = 120.0;
    const HEIGHT: f64 = 24.0;
    let step = WIDTH / bins as f64;
    write!(
        out,
        "<td><svg role=\"img\" aria-label=\"{range}\" width=\"{WIDTH}\" height=\"{HEIGHT}\"><title>{range}</title>"
    )?;
    for (counts, class, offset) in
        [(&histogram.waits, Part::ExposedWait, 0.0), (&histogram.transfers, Part::ExposedTransfer, 0.5)]
    {
        for (bin, &count) in counts.iter().enumerate().filter(|&(_, &count)| count > 0) {
            let height = (HEIGHT * f64::from(count) / f64::from(most)).max(1.0);
            let (x, y) = ((bin as f64 + offset) * step, HEIGHT - height);
            write!(
                out,
                "<rect class=\"part{}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{height:.1}\"/>",
                class as usize,
                step / 2.0
            )?;
        }
    }
    write!(out, "</svg></td>")
}
