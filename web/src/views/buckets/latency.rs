//! The distribution of the latencies of a bucket: waits and transfers in one chart.

use std::sync::Arc;

use leptos::prelude::*;
use viz::palette::{self, Pattern};
use viz::ticks;
use viz::xy::Axis;
use wire::live::Part;
use wire::views::{BucketStats, LatencyHistogram};

use super::StepSelection;
use crate::download;
use crate::live::Live;
use crate::theme::Theme;
use crate::widgets::Legend;
use crate::xy::{Hit, Ink, Mark, Picture, Shown, Xy};

const WAIT: palette::Rgba = palette::part(Part::ExposedWait);
const TRANSFER: palette::Rgba = palette::part(Part::ExposedTransfer);

/// The chart of the selected bucket's latencies over the observed steps, or of all buckets' latencies.
#[component]
pub fn Latencies(selection: StepSelection) -> impl IntoView {
    let live = expect_context::<Live>();
    let theme = expect_context::<Theme>();
    let picture = Signal::derive(move || {
        let Some(shown) = live.run.get() else { return Err("Loading the run…".into()) };
        picture(&shown.report.buckets, selection.bucket.get())
    });
    let title = Signal::derive(move || {
        selection
            .bucket
            .get()
            .map_or_else(|| "Latency of all buckets".into(), |bucket| format!("Latency of bucket {bucket}"))
    });
    let save = move |_| download::png("latency.png", "latency", theme.inks().ground);
    view! {
        <section class="panel" aria-label="Latencies">
            <div class="panel-head">
                <h2>{title}<small>" collectives of the observed steps and all ranks"</small></h2>
                <span class="grow"></span>
                <button class="quiet" on:click=save>"PNG"</button>
            </div>
            <Legend items=[(WAIT, Pattern::Solid, "wait"), (TRANSFER, Pattern::Solid, "transfer")].into() />
            <Xy label=title testid="latency" height=220.0 axes=("latency, on a logarithmic scale", "collectives") picture=picture />
        </section>
    }
}

fn picture(buckets: &[BucketStats], bucket: Option<u32>) -> Shown {
    let chosen = |stats: &&BucketStats| bucket.is_none_or(|bucket| stats.bucket.0 == bucket);
    let histograms: Vec<&LatencyHistogram> =
        buckets.iter().filter(chosen).map(|stats| &stats.latency).collect();
    let used = histograms.iter().filter(|histogram| !histogram.transfers.is_empty());
    let first = used.clone().map(|histogram| histogram.first).min();
    let past = used.map(|histogram| histogram.first + histogram.transfers.len() as u32).max();
    let (Some(first), Some(past)) = (first, past) else {
        return Err("No collective has been measured yet.".into());
    };
    let mut counts = vec![(0u64, 0u64); (past - first) as usize];
    for histogram in histograms {
        let offset = histogram.first.saturating_sub(first) as usize;
        for (at, (wait, transfer)) in histogram.waits.iter().zip(&histogram.transfers).enumerate() {
            counts[offset + at].0 += u64::from(*wait);
            counts[offset + at].1 += u64::from(*transfer);
        }
    }
    let ends = |at: usize| {
        let bin = first + at as u32;
        // The first bin also holds all shorter latencies.
        (LatencyHistogram::begin(bin), LatencyHistogram::begin(bin + 1))
    };
    let bars = |read: fn(&(u64, u64)) -> u64| {
        counts.iter().enumerate().map(|(at, count)| (ends(at).0, ends(at).1, read(count) as f64)).collect()
    };
    let most = counts.iter().map(|(wait, transfer)| wait.max(transfer)).max().copied().unwrap_or(1);
    let x = Axis::log(ends(0).0, ends(counts.len() - 1).1, 10.0);
    let y = Axis::linear(0.0, ticks::ceiling(most as f64));
    let hit = |(at, (wait, transfer)): (usize, &(u64, u64))| {
        let (from, to) = ends(at);
        Hit {
            at: ((from * to).sqrt(), (*wait).max(*transfer) as f64),
            says: vec![
                format!("{} to {}", units::nanos(from), units::nanos(to)),
                format!("wait: {}", units::count(*wait)),
                format!("transfer: {}", units::count(*transfer)),
            ],
        }
    };
    Ok(Arc::new(Picture {
        x,
        y,
        x_ticks: x.ticks(8, units::nanos),
        y_ticks: y.ticks(4, |value| units::count(value as u64)),
        marks: vec![
            Mark::Bars { bars: bars(|count| count.0), ink: Ink::Data(WAIT) },
            Mark::Bars { bars: bars(|count| count.1), ink: Ink::Data(TRANSFER) },
        ],
        hits: counts.iter().enumerate().map(hit).collect(),
    }))
}
