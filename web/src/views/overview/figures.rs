//! The key figures of a run, always in the same order.

use leptos::prelude::*;
use wire::views::{Missing, Report, Spread};

use crate::live::Live;
use crate::overhead::{OVERHEAD_MEANS, interval, signed_percent};
use crate::widgets::{KeyFigure, written};

/// The strip of figures. A figure is missing until the report has arrived.
#[component]
pub fn Figures() -> impl IntoView {
    let live = expect_context::<Live>();
    let strip = move || {
        let run = live.run.get();
        let report = run.as_ref().map(|run| &run.report);
        let read = |of: fn(&Report) -> Result<String, String>| report.map_or_else(|| Err(String::new()), of);
        let below = |of: fn(&Report) -> String| report.map(of).unwrap_or_default();
        view! {
            <KeyFigure
                testid="step-time"
                name="Step time, mean"
                means="mean time from one observed step to the next; costs are shares of it"
                value=read(|report| written(&report.period_nanos, units::nanos))
                below=below(|report| report.step_time_nanos.value().map(tails).unwrap_or_default())
            />
            <KeyFigure
                testid="throughput"
                name="Throughput"
                means="samples per second over all ranks"
                value=read(throughput)
                below=below(|report| format!("over {} steps", units::count(report.steps)))
            />
            <KeyFigure
                testid="overlap"
                name="Overlap"
                means="|hidden communication| / |communication|, over ranks and steps"
                value=read(|report| written(&report.overlap_ratio, units::percent))
                below=below(|report| {
                    let fraction = report.communication_fraction.value();
                    fraction.map_or_else(String::new, |f| format!("communication {}", units::percent(f)))
                })
            />
            <KeyFigure
                testid="efficiency"
                name="Efficiency, implied"
                means="mean over ranks of compute time / mean step time"
                value=read(|report| written(&report.scaling_efficiency.implied, units::percent))
                below=below(|report| {
                    let measured = report.scaling_efficiency.measured.value();
                    measured.map_or_else(|| "no baseline run".into(), |m| format!("measured {}", units::percent(m)))
                })
            />
            <KeyFigure
                testid="overhead"
                name="Own overhead"
                means=OVERHEAD_MEANS
                value=read(overhead)
                below=below(|report| report.own_overhead.known().map(interval).unwrap_or_default())
            />
            <KeyFigure
                testid="drops"
                name="Records dropped"
                means="records that an agent lost, by reason"
                value=read(|report| Ok(units::count(dropped(report))))
                below=below(|report| match report.drops.len() {
                    0 => "no records lost".into(),
                    ranks => format!("on {ranks} ranks"),
                })
            />
        }
    };
    view! { <dl class="figures">{strip}</dl> }
}

fn tails(spread: Spread) -> String {
    format!("median {}, p90 {}", units::nanos(spread.median), units::nanos(spread.p90))
}

fn throughput(report: &Report) -> Result<String, String> {
    let rate = report.throughput.as_result().map_err(Missing::to_string)?;
    Ok(units::rate(*rate, &format!("{}/s", report.sample_unit)))
}

fn dropped(report: &Report) -> u64 {
    report.drops.iter().flat_map(|rank| &rank.drops).map(|drop| drop.count).sum()
}

/// Returns the own overhead; an error with the interval if it is within noise.
fn overhead(report: &Report) -> Result<String, String> {
    let overhead = report.own_overhead.as_result().map_err(Missing::to_string)?;
    if overhead.low <= 0.0 && overhead.high >= 0.0 {
        return Err(format!("within noise: {}", interval(overhead)));
    }
    Ok(signed_percent(overhead.ratio))
}
