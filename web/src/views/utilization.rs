//! The Utilization view: how the devices and the hosts of the ranks are used over the steps, the newest sample of each device, and
//! bursts, which record every kernel for a short time.

mod bursts;
mod lines;
mod samples;
mod strips;

use leptos::prelude::*;
use model::utilization::{answer, processor_shares, sentence};
use model::verdict::first_culprit;
use wire::views::{RankBurst, RankDevice, RecentUsage};

use self::bursts::Bursts;
use self::lines::RankLines;
use self::samples::Samples;
use self::strips::Strips;
use crate::api;
use crate::heatmap::selected_rank;
use crate::live::Live;
use crate::polled::polled;
use crate::route::Address;

/// The time between two samples of a device or host, in milliseconds.
const SAMPLE_MILLIS: f64 = 1_000.0;

/// How a run is used.
#[derive(Clone, Default, PartialEq)]
struct Fetched {
    usage: Vec<RecentUsage>,
    samples: Vec<RankDevice>,
    bursts: Vec<RankBurst>,
}

async fn fetch(run: String, (): ()) -> Option<Fetched> {
    let (usage, samples) = (api::usage(&run).await.ok()?, api::devices(&run).await.ok()?);
    Some(Fetched { usage, samples, bursts: api::bursts(&run).await.ok()? })
}

#[component]
pub fn Utilization() -> impl IntoView {
    let live = expect_context::<Live>();
    let known = polled(Some(SAMPLE_MILLIS), Some(()), fetch);
    let culprit = Memo::new(move |_| live.run.with(|run| first_culprit(&run.as_ref()?.report)));
    let rank = selected_rank(expect_context::<Address>(), culprit);
    let usage = Memo::new(move |_| known.get().unwrap_or_default().usage);
    let samples = Signal::derive(move || known.get().unwrap_or_default().samples);
    let bursts = Signal::derive(move || known.get().unwrap_or_default().bursts);
    let has_usage =
        Memo::new(move |_| known.with(|known| known.as_ref().map(|known| !known.usage.is_empty())));
    let has_device = Memo::new(move |_| !samples.get().is_empty() || !bursts.get().is_empty());
    let answer = move || {
        live.run.with(|run| usage.with(|usage| run.as_ref().and_then(|run| answer(usage, &run.report))))
    };
    let processor_shares = move || live.run.with(|run| processor_shares(&run.as_ref()?.report.ledger));
    let device_sentence = move || {
        let ranks = live.run.with(|run| run.as_ref().map_or(0, |run| run.report.ranks));
        samples.with(|samples| (!samples.is_empty()).then(|| sentence(samples, ranks)))
    };
    move || match has_usage.get() {
        None => ().into_any(),
        Some(false) => view! { <NoSamples /> }.into_any(),
        Some(true) => view! {
            <p class="lead" data-testid="usage-answer">{answer}</p>
            <p data-testid="on-processors">{processor_shares}</p>
            <p class:hidden=move || !has_device.get() data-testid="device-sentence">{device_sentence}</p>
            <Strips usage=usage culprit=culprit />
            <RankLines rank=rank usage=usage />
            <Show when=move || has_device.get() fallback=NoDevices>
                <Samples samples=samples />
                <Bursts bursts=bursts />
            </Show>
        }
        .into_any(),
    }
}

#[component]
fn NoSamples() -> impl IntoView {
    view! {
        <section class="empty" data-testid="no-usage">
            <h1>"No rank has reported how its device or host is used"</h1>
            <p>
                "Ranks on Linux report their host once per second. Ranks on NVIDIA GPUs report their device as well if NVML can be opened. "
                <code>"paceline doctor"</code>" says whether it can."
            </p>
        </section>
    }
}

#[component]
fn NoDevices() -> impl IntoView {
    view! {
        <section class="panel" data-testid="no-devices">
            <div class="panel-head"><h2>"No rank has reported a device"</h2></div>
            <p>
                "Ranks on NVIDIA GPUs report their device once per second if NVML can be opened. "
                <code>"paceline doctor"</code>" says whether it can."
            </p>
        </section>
    }
}
