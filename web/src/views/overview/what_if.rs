//! All what-ifs as a table: the replay of the observed steps with one thing fixed.

use analysis::wording::what_if::slowdowns;
use leptos::prelude::*;
use model::route::Tab;
use wire::views::Figure;
use wire::views::what_if::{Fix, Saving, WhatIf};

use crate::live::Live;
use crate::route::{Address, RunId};
use crate::widgets::Bar;

/// The largest number of lines shown per group.
const MAX_SHOWN: usize = 5;
/// The smallest saving that is shown, as a share of the step.
const MIN_SHARE: f64 = 0.001;

/// The panel.
#[component]
pub fn WhatIfs() -> impl IntoView {
    let live = expect_context::<Live>();
    let what_if = move || live.run.get().map(|run| run.report.what_if.clone());
    let summary = move || what_if()?.known().map(replayed);
    let content = move || match what_if()? {
        Figure::Known(what_if) => Some(view! { <Savings what_if=what_if /> }.into_any()),
        Figure::Missing { missing } => Some(view! { <p class="quiet">{missing.to_string()}</p> }.into_any()),
    };
    view! {
        <details class="others" data-testid="what-if">
            <summary>"What each fix would save"<small>{summary}</small></summary>
            {content}
        </details>
    }
}

fn replayed(what_if: &WhatIf) -> String {
    let withheld = match what_if.withheld_steps {
        0 => String::new(),
        steps => format!(", {} left out", units::count(steps)),
    };
    let error = units::percent(what_if.simulation_error);
    format!(": {} steps replayed{withheld}, median error {error}", units::count(what_if.steps))
}

#[component]
fn Savings(what_if: WhatIf) -> impl IntoView {
    let [alike, even] = slowdowns(&what_if);
    view! {
        <p class="lead">{alike}</p>
        <p class="quiet">{even}</p>
        <table class="savings">
            <caption class="unseen">"Saving of each fix"</caption>
            <thead>
                <tr>
                    <th scope="col">"Fix"</th>
                    <th scope="col" class="number">"Saves"</th>
                    <th scope="col" class="number">"Share"</th>
                    <td></td>
                </tr>
            </thead>
            <tbody>
                <Group title="Make one rank like the others" savings=what_if.ranks />
                <Group title="Even out a phase over ranks" savings=what_if.phases />
                <Group title="Hide the transfer of a bucket" savings=what_if.buckets />
            </tbody>
        </table>
    }
}

/// The fixes of one kind, the best first.
#[component]
fn Group(title: &'static str, savings: Vec<Saving>) -> impl IntoView {
    let mut worth: Vec<Saving> = savings.into_iter().filter(|saving| saving.share >= MIN_SHARE).collect();
    worth.sort_by(|a, b| b.share.total_cmp(&a.share));
    let nothing = worth.is_empty().then_some("no saving");
    let lines =
        worth.into_iter().take(MAX_SHOWN).map(|saving| view! { <Line saving=saving /> }).collect_view();
    view! {
        <tr class="group">
            <th scope="rowgroup">{title}</th>
            <td colspan="3">{nothing}</td>
        </tr>
        {lines}
    }
}

#[component]
fn Line(saving: Saving) -> impl IntoView {
    let (run, address) = (expect_context::<RunId>().get(), expect_context::<Address>());
    let link = |tab: Tab, key: &str, number: u32| {
        let url = format!("{}?{key}={number}", tab.path(&run));
        let href = move || address.keeping(&url);
        view! { <a href=href>{format!("{key} {number}")}</a> }.into_any()
    };
    let fix = match saving.fix {
        Fix::Rank(rank) => link(Tab::Ranks, "rank", rank.0),
        Fix::Phase(phase) => phase.name().into_any(),
        Fix::Bucket(bucket) => link(Tab::Buckets, "bucket", bucket.0),
    };
    view! {
        <tr>
            <th scope="row">{fix}</th>
            <td class="number">{units::nanos(saving.nanos_per_step)}</td>
            <td class="number">{units::percent(saving.share)}</td>
            <td class="bar-cell"><Bar from=0.0 to=saving.share /></td>
        </tr>
    }
}
