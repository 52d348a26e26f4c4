//! The export dialog: steps for other tools, and the report.

use leptos::prelude::*;

use super::run::RunId;
use crate::api;
use crate::cells::{Var, text};
use crate::html::Html;
use crate::keys;
use crate::live::Live;
use crate::range::Range;
use crate::widgets::dialog;

/// The largest number of exported steps. The server uses the same number if a request names no steps, because a trace
/// of more steps is hard to read. The command line has no such limit.
const MAX_STEPS: u64 = 50;

/// Formats of steps: name, name in the URL, use.
const STEPS: [(&str, &str, &str); 4] = [
    ("Perfetto trace", "perfetto", "one process per rank, arrows along collectives; for ui.perfetto.dev"),
    ("Chrome trace", "chrome", "PyTorch's trace format; for HolisticTraceAnalysis, chrome://tracing"),
    ("Parquet", "parquet", "one row per bucket, step and rank; for DuckDB, Polars, Spark"),
    ("CSV", "csv", "the same rows as text"),
];
const REPORTS: [(&str, &str, &str); 2] = [
    ("HTML", "html", "one file without scripts, to attach to a ticket"),
    ("Markdown", "markdown", "to paste into a ticket or a chat"),
];

/// Creates the dialog, which is shown while `open` is true.
pub fn export(open: Var<bool>) -> AnyView {
    let (live, range, run) = (expect_context::<Live>(), expect_context::<Range>(), expect_context::<RunId>());
    keys::global(move |key| {
        let asked = matches!(key, "e" | "E");
        if asked {
            open.set(true);
        }
        asked
    });
    let content = text(move || {
        if !open.get() {
            // A hidden dialog must not be updated, because steps arrive twenty times per second.
            return String::new();
        }
        live.drawn.track();
        let (run, steps) = (run.get(), newest_in_view(live, range));
        let which = steps.map_or_else(
            || "The newest steps.".into(),
            |(first, last)| format!("Steps {first} to {last}: the newest in view, at most {MAX_STEPS}."),
        );
        let html = Html::default().raw("<section><h3>Steps for other tools</h3>").el("p class=below", &which);
        let html = links(html, STEPS, |format| api::export_url(&run, format, steps));
        let html = html.raw("<section><h3>Report</h3>");
        let html = html.el("p class=below", "The verdicts and figures of this run, as text and tables.");
        links(html, REPORTS, |form| api::report_url(&run, form, range.at.get())).done()
    });
    dialog("export-dialog", "Export", open, content)
}

fn newest_in_view(live: Live, range: Range) -> Option<(u64, u64)> {
    let view = range.view();
    live.steps.with(|steps| {
        let shown = &steps.step[steps.rows_in(view)];
        let last = *shown.last()?;
        Some((shown.first()?.max(&(last + 1).saturating_sub(MAX_STEPS)).to_owned(), last))
    })
}

fn links<const N: usize>(html: Html, of: [(&str, &str, &str); N], url: impl Fn(&str) -> String) -> Html {
    html.raw("<dl>")
        .each(of, |html, (what, name, good_for)| {
            html.raw("<dt><a download data-testid=export-")
                .raw(name)
                .raw(" href=\"")
                .text(&url(name))
                .raw("\">")
                .text(what)
                .raw("</a></dt>")
                .el("dd", good_for)
        })
        .raw("</dl></section>")
}
