//! The export dialog: steps for other tools, and the report.

use leptos::prelude::*;

use crate::api;
use crate::keys;
use crate::live::Live;
use crate::range::Range;
use crate::route::RunId;
use crate::widgets::Dialog;

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

/// The dialog, which is shown while `open` is true.
#[component]
pub fn Export(open: RwSignal<bool>) -> impl IntoView {
    let (live, range, run) = (expect_context::<Live>(), expect_context::<Range>(), expect_context::<RunId>());
    keys::global(move |key| {
        let asked = matches!(key, "e" | "E");
        if asked {
            open.set(true);
        }
        asked
    });
    // A hidden dialog is empty, because steps arrive twenty times per second.
    let content = move || {
        open.get().then(|| {
            live.drawn.track();
            let (run, steps) = (run.get(), newest_in_view(live, range));
            let which = which(steps);
            let step_files =
                STEPS.map(|(what, name, use_)| (what, name, api::export_url(&run, name, steps), use_));
            let report_files = REPORTS.map(|(what, name, use_)| {
                (what, name, api::report_url(&run, name, range.selected_ends()), use_)
            });
            view! {
                <section>
                    <h3>"Steps for other tools"</h3>
                    <p class="below">{which}</p>
                    <Links links=step_files.into() />
                </section>
                <section>
                    <h3>"Report"</h3>
                    <p class="below">"The verdicts and figures of this run, as text and tables."</p>
                    <Links links=report_files.into() />
                </section>
            }
        })
    };
    view! { <Dialog testid="export-dialog" name="Export" open=open>{content}</Dialog> }
}

/// Says what the files contain.
fn which(steps: Option<(u64, u64)>) -> String {
    let Some((first, last)) = steps else {
        return "The files contain the newest steps of all ranks.".into();
    };
    format!(
        "The files contain steps {} to {} of all ranks: the newest in view, at most {MAX_STEPS}.",
        units::count(first),
        units::count(last)
    )
}

fn newest_in_view(live: Live, range: Range) -> Option<(u64, u64)> {
    let visible = range.visible();
    live.steps.with_value(|steps| {
        let shown = &steps.step[steps.rows_in(visible)];
        let last = *shown.last()?;
        Some((shown.first()?.max(&(last + 1).saturating_sub(MAX_STEPS)).to_owned(), last))
    })
}

/// Links that download files: what, name, URL, use.
#[component]
fn Links(links: Vec<(&'static str, &'static str, String, &'static str)>) -> impl IntoView {
    let line = |(what, name, url, good_for)| {
        view! {
            <dt><a download="" data-testid=format!("export-{name}") href=url>{what}</a></dt>
            <dd>{good_for}</dd>
        }
    };
    view! { <dl>{links.into_iter().map(line).collect_view()}</dl> }
}
