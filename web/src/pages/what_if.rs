//! What the step would take if something were fixed: the replay of the observed steps, as a table.

use leptos::prelude::*;
use viz::units;
use wire::views::Report;
use wire::views::what_if::{Fix, Saving, WhatIf};

use super::run::RunId;
use crate::cells::{part, text};
use crate::live::Live;
use crate::route::Tab;
use crate::widgets::{Bar, reason};

/// Lines of each group that are shown.
const MOST: usize = 5;
/// A saving below this share of the step is not worth a line.
const LEAST: f64 = 0.001;

/// The panel.
#[component]
pub fn WhatIfs() -> impl IntoView {
    let live = expect_context::<Live>();
    let run = expect_context::<RunId>();
    let below = text(move || {
        let Some(shown) = live.run.get() else { return String::new() };
        let Some(what_if) = &shown.report.what_if else { return String::new() };
        let steps = units::count(what_if.steps);
        let off = units::percent(what_if.simulation_error);
        let withheld = match what_if.withheld_steps {
            0 => String::new(),
            steps => format!(", {} left out", units::count(steps)),
        };
        format!(" replay of {steps} steps{withheld}, off by {off} (median)")
    });
    let body = part(move || match live.run.get() {
        Some(shown) => answers(&shown.report, &run.get()),
        None => ().into_any(),
    });
    view! {
        <section class="panel" aria-label="What if" data-testid="what-if">
            <div class="panel-head"><h2>"What would help"<small>{below}</small></h2></div>
            {body}
        </section>
    }
    .into_any()
}

fn answers(report: &Report, run: &str) -> AnyView {
    let Some(what_if) = &report.what_if else {
        return view! { <p class="quiet">{reason(report, "what_if")}</p> }.into_any();
    };
    if let Some(withheld) = &what_if.withheld {
        return view! { <p class="quiet">{withheld.clone()}</p> }.into_any();
    }
    let groups = [
        ("Make one rank like the others", &what_if.ranks),
        ("Even out a phase over ranks", &what_if.phases),
        ("Hide a bucket's transfer", &what_if.buckets),
    ];
    let rows = groups.into_iter().flat_map(|(title, savings)| group(title, savings, run)).collect::<Vec<_>>();
    view! {
        <p class="lead">{headline(what_if)}</p>
        <table class="savings">
            <caption class="unseen">"What each fix would save"</caption>
            <thead>
                <tr>
                    <th scope="col">"Fix"</th>
                    <th scope="col" class="number">"Saves a step"</th>
                    <th scope="col" class="number">"Share"</th>
                    <th scope="col" aria-label="Share as a bar"></th>
                </tr>
            </thead>
            <tbody>{rows}</tbody>
        </table>
    }
    .into_any()
}

fn headline(what_if: &WhatIf) -> String {
    let Some(slowdown) = what_if.slowdown else { return String::new() };
    let wasted = what_if
        .wasted_share
        .map_or_else(String::new, |share| format!(" {} of it is lost", units::percent(share)));
    let hours = what_if
        .gpu_hours_per_day
        .map_or_else(String::new, |hours| format!(", {} GPU-hours per day", units::significant(hours)));
    format!("A step takes {} × its even, ideal self:{wasted}{hours}.", units::significant(slowdown))
}

fn group(title: &'static str, savings: &[Saving], run: &str) -> Vec<AnyView> {
    let mut worth: Vec<&Saving> = savings.iter().filter(|saving| saving.share >= LEAST).collect();
    worth.sort_by(|a, b| b.share.total_cmp(&a.share));
    let head = if worth.is_empty() { "nothing to gain" } else { "" };
    let head = view! {
        <tr class="group"><th scope="rowgroup">{title}</th><td class="quiet" colspan="3">{head}</td></tr>
    };
    let lines = worth.into_iter().take(MOST).map(|saving| line(saving, run));
    std::iter::once(head.into_any()).chain(lines).collect()
}

fn line(saving: &Saving, run: &str) -> AnyView {
    let (name, href) = match saving.fix {
        Fix::Rank(rank) => (format!("rank {rank}"), Some(format!("{}?rank={rank}", Tab::Ranks.path(run)))),
        Fix::Phase(phase) => (phase.name().to_owned(), None),
        Fix::Bucket(bucket) => {
            (format!("bucket {bucket}"), Some(format!("{}?bucket={bucket}", Tab::Buckets.path(run))))
        }
    };
    let name = match href {
        Some(href) => view! { <a href=href>{name}</a> }.into_any(),
        None => name.into_any(),
    };
    view! {
        <tr>
            <th scope="row">{name}</th>
            <td class="number">{units::nanos(saving.nanos_per_step)}</td>
            <td class="number">{units::percent(saving.share)}</td>
            <td class="bar-cell"><Bar from=0.0 to=saving.share /></td>
        </tr>
    }
    .into_any()
}
