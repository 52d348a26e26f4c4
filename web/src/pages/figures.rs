//! The key figures of a run, always in the same order.

use leptos::prelude::*;
use units::signed;
use wire::views::{Missing, OwnOverhead, Report, Spread};

use crate::cells::text;
use crate::html::{Html, shown};
use crate::live::Live;
use crate::widgets::{figure, written};

/// Creates the strip of figures.
pub fn figures() -> AnyView {
    let live = expect_context::<Live>();
    let content = text(move || {
        let run = live.run.get();
        let report = run.as_ref().map(|run| &run.report);
        let html = Html::default().raw("<dl class=figures>");
        strip(html, report).raw("</dl>").done()
    });
    shown("", content)
}

/// Appends the figures of the report. A figure is missing until the report has arrived.
fn strip(html: Html, report: Option<&Report>) -> Html {
    let read = |of: fn(&Report) -> Result<String, String>| report.map_or_else(|| Err(String::new()), of);
    let below = |of: fn(&Report) -> String| report.map(of).unwrap_or_default();
    let html = figure(
        html,
        (
            "step-time",
            "Step time, mean",
            "mean time from one observed step to the next; costs are shares of it",
        ),
        read(|r| written(&r.period_nanos, units::nanos)),
        &below(|r| {
            let spread =
                |t: Spread| format!("median {}, p90 {}", units::nanos(t.median), units::nanos(t.p90));
            r.step_time_nanos.value().map(spread).unwrap_or_default()
        }),
    );
    let html = figure(
        html,
        ("throughput", "Throughput", "samples per second over all ranks"),
        read(|r| {
            let rate = r.throughput.as_result().map_err(Missing::to_string)?;
            Ok(units::rate(*rate, &format!("{}/s", r.sample_unit)))
        }),
        &below(|r| format!("over {} steps", units::count(r.steps))),
    );
    let html = figure(
        html,
        ("overlap", "Overlap", "|hidden communication| / |communication|, over ranks and steps"),
        read(|r| written(&r.overlap_ratio, units::percent)),
        &below(|r| {
            let fraction =
                r.communication_fraction.value().map(|f| format!("communication {}", units::percent(f)));
            fraction.unwrap_or_default()
        }),
    );
    let html = figure(
        html,
        ("efficiency", "Efficiency, implied", "mean over ranks of compute time / mean step time"),
        read(|r| written(&r.scaling_efficiency.implied, units::percent)),
        &below(|r| {
            let measured = r.scaling_efficiency.measured.value();
            measured.map_or_else(|| "no baseline run".into(), |m| format!("measured {}", units::percent(m)))
        }),
    );
    let html = figure(
        html,
        (
            "overhead",
            "Own overhead",
            "median of (observed step / neighboring shadow step) - 1, with its 95 % interval",
        ),
        read(overhead),
        &below(|r| r.own_overhead.known().map(interval).unwrap_or_default()),
    );
    figure(
        html,
        ("drops", "Records dropped", "records that an agent lost, by reason"),
        read(|r| Ok(units::count(dropped(r)))),
        &below(|r| match r.drops.len() {
            0 => "no records lost".into(),
            ranks => format!("on {ranks} ranks"),
        }),
    )
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

/// Formats the interval of the own overhead.
pub fn interval(overhead: &OwnOverhead) -> String {
    // A number and its unit stay on one line.
    let [low, high] = [overhead.low, overhead.high].map(|end| signed_percent(end).replace(' ', "\u{a0}"));
    format!("{low} to {high}, {} pairs", overhead.pairs)
}

/// Formats a share in percent with its sign. A negative overhead is noise.
pub fn signed_percent(ratio: f64) -> String {
    format!("{} %", signed(ratio * 100.0, 2))
}
