//! What the step would take if something were fixed: the replay of the observed steps, as a table.

use leptos::prelude::*;
use viz::order::order;
use wire::views::Report;
use wire::views::what_if::{Fix, Saving, WhatIf};

use super::run::RunId;
use crate::cells::text;
use crate::html::{Html, shown};
use crate::live::Live;
use crate::route::Tab;
use crate::widgets::reason;

/// Lines of each group that are shown.
const MOST: usize = 5;
/// A saving below this share of the step is not worth a line.
const LEAST: f64 = 0.001;

/// The panel.
pub fn what_ifs() -> AnyView {
    let (live, run) = (expect_context::<Live>(), expect_context::<RunId>());
    let content = text(move || {
        let html = Html::default().raw("<div class=panel-head><h2>What would help");
        let Some(run_view) = live.run.get() else { return html.raw("</h2></div>").done() };
        let report = &run_view.report;
        let below = report.what_if.as_ref().map(replayed).unwrap_or_default();
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
    format!(" replay of {} steps{withheld}, off by {off} (median)", units::count(what_if.steps))
}

fn answers(html: Html, report: &Report, run: &str) -> Html {
    let Some(what_if) = &report.what_if else { return html.el("p class=quiet", &reason(report, "what_if")) };
    if let Some(withheld) = &what_if.withheld {
        return html.el("p class=quiet", withheld);
    }
    let groups = [
        ("Make one rank like the others", &what_if.ranks),
        ("Even out a phase over ranks", &what_if.phases),
        ("Hide a bucket's transfer", &what_if.buckets),
    ];
    html.el("p class=lead", &headline(what_if))
        .raw("<table class=savings><caption class=unseen>What each fix would save</caption><thead><tr>")
        .raw("<th scope=col>Fix</th><th scope=col class=number>Saves a step</th>")
        .raw("<th scope=col class=number>Share</th><td></td></tr></thead><tbody>")
        .each(groups, |html, (title, savings)| group(html, title, savings, run))
        .raw("</tbody></table>")
}

fn headline(what_if: &WhatIf) -> String {
    let Some(slowdown) = what_if.slowdown else { return String::new() };
    let wasted = what_if.wasted_share.map_or_else(String::new, |share| {
        format!(" {} of the time is lost, over all causes", units::percent(share))
    });
    format!("A step takes {} × its even, ideal self:{wasted}.", units::significant(slowdown))
}

fn group(html: Html, title: &str, savings: &[Saving], run: &str) -> Html {
    let worth: Vec<&Saving> = savings.iter().filter(|saving| saving.share >= LEAST).collect();
    let order = order(worth.len(), &|a, b| worth[b].share.total_cmp(&worth[a].share));
    html.raw("<tr class=group>")
        .el("th scope=rowgroup", title)
        .el("td colspan=3", if worth.is_empty() { "nothing to gain" } else { "" })
        .raw("</tr>")
        .each(order.into_iter().take(MOST), |html, at| line(html, worth[at as usize], run))
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
