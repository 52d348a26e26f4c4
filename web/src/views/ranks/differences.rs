//! What differs between the compared ranks and the others: parts of the step, buckets, hosts, devices, labels, and
//! software versions.

use std::sync::Arc;

use leptos::prelude::*;
use model::attributes::attributes_that_differ;
use model::buckets::differ::buckets_that_differ;
use model::ranks::{Difference, devices_that_differ, hosts_that_differ, parts_that_differ};
use wire::live::Waterfall;
use wire::views::{RankDevice, Report};

use super::RanksSelection;
use crate::api;
use crate::polled::polled;
use crate::terms::Term;

/// The time after which the waterfall of the newest step is asked for again, in milliseconds.
const WATERFALL_MILLIS: f64 = 5_000.0;

/// The panel.
#[component]
pub fn Differences(selection: RanksSelection) -> impl IntoView {
    // Waterfalls are large: one is fetched only to compare a rank that the user has chosen.
    let waterfall = polled(
        Some(WATERFALL_MILLIS),
        Memo::new(move |_| selection.is_chosen().then(|| selection.cells.step.get())),
        |run, step| async move { api::waterfall(&run, step).await.ok().map(Arc::new) },
    );
    let content = move || {
        let compared = selection.compared();
        let report = selection.report.get()?;
        Some(if compared.is_empty() {
            view! { <p class="quiet">"Select or pin a rank, in the list or in the chart, to see what differs from the others."</p> }
                .into_any()
        } else {
            let waterfall = waterfall.get();
            tables(&report, waterfall.as_deref(), &selection.devices.get(), &compared)
        })
    };
    let who = move || {
        let mut ranks = selection.compared();
        ranks.sort_unstable();
        let names: Vec<String> = ranks.iter().map(u32::to_string).collect();
        match names.len() {
            0 => String::new(),
            1 => format!(" rank {} against the others", names[0]),
            _ => format!(" ranks {} against the others", names.join(", ")),
        }
    };
    view! {
        <section class="panel" aria-label="What differs" data-testid="differences">
            <div class="panel-head"><h2>"What differs"<small>{who}</small></h2></div>
            {content}
        </section>
    }
}

fn tables(
    report: &Report,
    waterfall: Option<&Waterfall>,
    devices: &[RankDevice],
    compared: &[u32],
) -> AnyView {
    let parts = parts_that_differ(report, compared);
    let buckets = waterfall.map(|step| buckets_that_differ(step, compared)).unwrap_or_default();
    let step = waterfall.map(|waterfall| waterfall.step).unwrap_or_default();
    let (hosts, devices) = (hosts_that_differ(report, compared), devices_that_differ(devices, compared));
    let attributes = attributes_that_differ(&report.attributes, compared);
    let is_same = attributes.is_empty() && !report.attributes.is_empty();
    if parts.is_empty() {
        return view! { <p class="quiet">"No other rank has observed steps to compare with."</p> }.into_any();
    }
    view! {
        <table class="ledger">
            <thead>
                <tr>
                    <th scope="col">"Mean per step"</th>
                    <th scope="col" class="number">"These ranks"</th>
                    <th scope="col" class="number">"The others"</th>
                    <th scope="col" class="number">"Difference"</th>
                </tr>
            </thead>
            <tbody>
                {parts.into_iter().map(part_row).collect_view()}
                {buckets.into_iter().map(|bucket| bucket_row(&bucket, step)).collect_view()}
                {hosts.into_iter().map(|host| share_row("host ", host)).collect_view()}
                {devices.into_iter().map(|device| share_row("", device)).collect_view()}
                {attributes.into_iter().map(|attribute| share_row("", attribute)).collect_view()}
            </tbody>
        </table>
        {is_same.then(|| view! { <p class="quiet">"All ranks run the same software and have the same labels."</p> })}
    }
    .into_any()
}

fn part_row(difference: Difference) -> impl IntoView {
    let more = difference.selected - difference.others;
    view! {
        <tr>
            <th scope="row"><Term name=difference.name /></th>
            <td class="number">{units::nanos(difference.selected)}</td>
            <td class="number">{units::nanos(difference.others)}</td>
            <td class="number" class:more={more > difference.others * 0.1}>{units::signed_nanos(more)}</td>
        </tr>
    }
}

fn bucket_row(difference: &Difference, step: u64) -> impl IntoView + use<> {
    let more = difference.selected - difference.others;
    view! {
        <tr>
            <th scope="row" class="given">{format!("time up to {}, step {}", difference.name, units::count(step))}</th>
            <td class="number">{units::nanos(difference.selected)}</td>
            <td class="number">{units::nanos(difference.others)}</td>
            <td class="number" class:more={more > 0.0}>{units::signed_nanos(more)}</td>
        </tr>
    }
}

fn share_row(kind: &'static str, difference: Difference) -> impl IntoView {
    view! {
        <tr>
            <th scope="row" class="given">{kind}{difference.name}</th>
            <td class="number">{units::percent(difference.selected)}</td>
            <td class="number">{units::percent(difference.others)}</td>
            <td></td>
        </tr>
    }
}
