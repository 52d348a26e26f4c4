//! The key figures of a run, always in the same places.

use leptos::prelude::*;
use viz::units;
use wire::views::{OwnOverhead, Report};

use crate::cells::derived;
use crate::live::Live;
use crate::widgets::{Figure, reason};

/// The strip of figures.
#[component]
pub fn Figures() -> impl IntoView {
    let live = expect_context::<Live>();
    // A figure is read from the report; until that is here, it is not known.
    let value = move |read: fn(&Report) -> Result<String, String>| {
        derived(move || {
            live.run.with(|run| run.as_ref().map_or_else(|| Err(String::new()), |run| read(&run.report)))
        })
    };
    let below = move |read: fn(&Report) -> String| {
        derived(move || live.run.with(|run| run.as_ref().map(|run| read(&run.report)).unwrap_or_default()))
    };
    view! {
        <dl class="figures">
            <Figure testid="step-time" name="Step time" means="max end - min begin over ranks; median over the observed steps"
                value=value(|r| r.step_time_ns.map(|t| units::nanos(t.median)).ok_or_else(|| reason(r, "step_time")))
                below=below(|r| r.step_time_ns.map(|t| format!("p90 {}", units::nanos(t.p90))).unwrap_or_default()) />
            <Figure testid="throughput" name="Throughput" means="samples per second over all ranks"
                value=value(|r| r.throughput
                    .map(|rate| units::rate(rate, &format!("{}/s", r.sample_unit)))
                    .ok_or_else(|| reason(r, "throughput")))
                below=below(|r| format!("over {} steps", units::count(r.steps))) />
            <Figure testid="overlap" name="Overlap" means="|hidden communication| / |communication|, over ranks and steps"
                value=value(|r| r.overlap_ratio.map(units::percent).ok_or_else(|| reason(r, "overlap")))
                below=below(|r| r.communication_fraction
                    .map(|f| format!("communication {}", units::percent(f)))
                    .unwrap_or_default()) />
            <Figure testid="efficiency" name="Efficiency, implied" means="mean over ranks of useful compute / step time"
                value=value(|r| r.scaling_efficiency.implied.map(units::percent)
                    .ok_or_else(|| reason(r, "scaling_efficiency")))
                below=below(|r| r.scaling_efficiency.measured
                    .map_or_else(|| "no baseline run".into(), |m| format!("measured {}", units::percent(m)))) />
            <Figure testid="overhead" name="Own overhead" means="median of observed step / neighbouring shadow step - 1, with its 95 % interval"
                value=value(overhead)
                below=below(|r| r.own_overhead.map(|o| interval(&o)).unwrap_or_default()) />
            <Figure testid="drops" name="Records dropped" means="records that an agent lost, by reason"
                value=value(|r| Ok(units::count(dropped(r))))
                below=below(|r| match r.drops.len() {
                    0 => "nothing was lost".into(),
                    ranks => format!("on {ranks} ranks"),
                }) />
        </dl>
    }
}

fn dropped(report: &Report) -> u64 {
    report.drops.iter().flat_map(|rank| &rank.drops).map(|drop| drop.count).sum()
}

/// A cost that cannot be told from nothing is not shown as a figure.
fn overhead(report: &Report) -> Result<String, String> {
    let overhead = report.own_overhead.ok_or_else(|| reason(report, "own_overhead"))?;
    if overhead.low <= 0.0 && overhead.high >= 0.0 {
        return Err(format!("within noise: {}", interval(&overhead)));
    }
    Ok(signed_percent(overhead.ratio))
}

/// An interval in words.
pub fn interval(overhead: &OwnOverhead) -> String {
    // A number and its unit stay on one line.
    let [low, high] = [overhead.low, overhead.high].map(|end| signed_percent(end).replace(' ', "\u{a0}"));
    format!("{low} to {high}, {} pairs", overhead.pairs)
}

/// Overhead may be below zero, which is noise; the sign says so.
pub fn signed_percent(ratio: f64) -> String {
    format!("{:+.2} %", ratio * 100.0)
}
