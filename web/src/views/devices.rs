//! The Devices view: samples of the ranks' devices, and bursts, which record every kernel for a short time.

mod bursts;
mod samples;

use leptos::prelude::*;
use model::devices::sentence;
use wire::views::{RankBurst, RankDevice};

use self::bursts::Bursts;
use self::samples::Samples;
use crate::api;
use crate::live::Live;
use crate::route::RunId;

/// The devices of a run.
#[derive(Clone, Default, PartialEq)]
struct Devices {
    samples: Vec<RankDevice>,
    bursts: Vec<RankBurst>,
}

/// The view.
#[component]
pub fn Devices() -> impl IntoView {
    let (live, run) = (expect_context::<Live>(), expect_context::<RunId>());
    let fetched = LocalResource::new(move || {
        // Devices are sampled once per second, so they are fetched once per second.
        live.now.track();
        let run = run.get();
        async move {
            Some(Devices { samples: api::devices(&run).await.ok()?, bursts: api::bursts(&run).await.ok()? })
        }
    });
    // The old content stays while the server is unreachable. The notice tells the user.
    let devices = Memo::new(move |old: Option<&Option<Devices>>| {
        fetched.get().flatten().or_else(|| old.cloned().flatten())
    });
    let has_any = Memo::new(move |_| {
        devices.with(|devices| {
            devices.as_ref().map(|devices| !devices.samples.is_empty() || !devices.bursts.is_empty())
        })
    });
    let samples = Signal::derive(move || devices.get().unwrap_or_default().samples);
    let bursts = Signal::derive(move || devices.get().unwrap_or_default().bursts);
    let words = move || {
        let ranks = live.run.with(|run| run.as_ref().map_or(0, |run| run.report.ranks));
        samples.with(|samples| sentence(samples, ranks))
    };
    move || match has_any.get() {
        None => ().into_any(),
        Some(false) => view! { <NoDevices /> }.into_any(),
        Some(true) => view! {
            <p class="lead" data-testid="device-sentence">{words}</p>
            <Samples samples=samples />
            <Bursts bursts=bursts />
        }
        .into_any(),
    }
}

#[component]
fn NoDevices() -> impl IntoView {
    view! {
        <section class="empty" data-testid="no-devices">
            <h1>"No rank has reported a device"</h1>
            <p>
                "Ranks on NVIDIA GPUs report their device once per second if NVML can be opened. "
                <code>"paceline doctor"</code>" says whether it can."
            </p>
        </section>
    }
}
