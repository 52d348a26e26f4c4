//! The what-if as a table: the replay of the observed steps with one thing fixed.

use leptos::prelude::*;
use viz::order::order;
use wire::views::what_if::{Fix, Saving, WhatIf};
use wire::views::{Figure, Report};

use super::run::RunId;
use crate::cells::text;
use crate::html::{Html, shown};
use crate::live::Live;
use crate::route::Tab;

/// The largest number of lines shown per group.
const MAX_SHOWN: usize = 5;
/// The smallest saving that is shown, as a share of the step.
const MIN_SHARE: f64 = 0.001;

/// Creates the panel.
pub fn what_ifs() -> AnyView {
    let (live, run) = (expect_context::<Live>(), expect_context::<RunId>());
    let content = text(move || {
        let html = Html::default().raw("<div class=panel-head><h2>What would help");
        let Some(run_view) = live.run.get() else { return html.raw("</h2></div>").done() };
        let report = &run_view.report;
        let below = report.what_if.known().map(replayed).unwrap_or_default();
        answers(html.el("small", &below).raw("</h2></div>"), report, &run.get()).done()
    });
    view! { <section class="panel" aria-label="What would help" data-testid="what-if">{shown("", content)}</section> }
        .into_any()
}

fn replayed(what_if: &WhatIf) -> String {
    let withheld = match what_if.withheld_steps {
        0 => String::new(),
        steps => format!(", {} left out", units::count(steps)),
    };
    let off = units::percent(what_if.simulation_error);
    format!(" {} steps replayed{withheld}; median error {off}", units::count(what_if.steps))
}

fn answers(html: Html, report: &Report, run: &str) -> Html {
    let what_if = match &report.what_if {
        Figure::Known(what_if) => what_if,
        Figure::Missing { missing: reason } => return html.el("p class=quiet", &reason.to_string()),
    };
    let groups = [
        ("Make one rank like the others", &what_if.ranks),
        ("Even out a phase over ranks", &what_if.phases),
        ("Hide the transfer of a bucket", &what_if.buckets),
    ];
    html.el("p class=lead", &headline(what_if))
        .raw("<table class=savings><caption class=unseen>Saving of each fix</caption><thead><tr>")
        .raw("<th scope=col>Fix</th><th scope=col class=number>Saves</th>")
        .raw("<th scope=col class=number>Share</th><td></td></tr></thead><tbody>")
        .each(groups, |html, (title, savings)| group(html, title, savings, run))
        .raw("</tbody></table>")
}

fn headline(what_if: &WhatIf) -> String {
    format!(
        "A step takes {} times as long as with equal ranks: {} of it is wasted.",
        units::significant(what_if.slowdown),
        units::percent(what_if.wasted_share)
    )
}

fn group(html: Html, title: &str, savings: &[Saving], run: &str) -> Html {
    let worth: Vec<&Saving> = savings.iter().filter(|saving| saving.share >= MIN_SHARE).collect();
    let order = order(worth.len(), &|a, b| worth[b].share.total_cmp(&worth[a].share));
    html.raw("<tr class=group>")
        .el("th scope=rowgroup", title)
        .el("td colspan=3", if worth.is_empty() { "no saving" } else { "" })
        .raw("</tr>")
        .each(order.into_iter().take(MAX_SHOWN), |html, at| line(html, worth[at as usize], run))
}

fn line(html: Html, saving: &Saving, run: &str) -> Html {
    let html = html.raw("<tr><th scope=row>");
    match saving.fix {
        Fix::Rank(rank) => {
            html.link(&format!("{}?rank={rank}", Tab::Ranks.path(run)), &format!("rank {rank}"))
        }
        Fix::Phase(phase) => html.text(phase.name()),
        Fix::Bucket(bucket) => {
            html.link(&format!("{}?bucket={bucket}", Tab::Buckets.path(run)), &format!("bucket {bucket}"))
        }
    }
    .raw("</th>")
    .number(&units::nanos(saving.nanos_per_step))
    .number(&units::percent(saving.share))
    .raw("<td class=bar-cell>")
    .bar(0.0, saving.share, None)
    .raw("</td></tr>")
}
