//! The key figures of a run, now and in its healthy period.

use leptos::prelude::*;
use wire::views::{BaselineRun, Missing, Report};

use crate::key_figure::KeyFigure;
use crate::periods::Compared;
use crate::widgets::written;

/// How a figure is read, written and compared.
struct Read {
    testid: &'static str,
    name: &'static str,
    value: fn(&Report) -> Result<f64, String>,
    write: fn(&Report, f64) -> String,
    /// Formats the change from one value to another. A ratio changes by points, because a percentage of a percentage could
    /// be read as either.
    change: fn(f64, f64) -> String,
    /// Says more about the figure if there is no healthy period to compare with.
    below: fn(&Report) -> String,
}

const FIGURES: [Read; 6] = [
    Read {
        testid: "step-time",
        name: "step time",
        value: |report| written(&report.period_nanos, |nanos| nanos),
        write: |_, nanos| units::nanos(nanos),
        change: relative_change,
        below: |report| {
            let spread = report.step_time_nanos.value();
            spread.map_or_else(String::new, |spread| {
                format!(
                    "first begin to last end: median {}, p90 {}",
                    units::nanos(spread.median),
                    units::nanos(spread.p90)
                )
            })
        },
    },
    Read {
        testid: "throughput",
        name: "throughput",
        value: |report| report.throughput.as_result().copied().map_err(Missing::to_string),
        write: |report, rate| units::rate(rate, &format!("{}/s", report.sample_unit)),
        change: relative_change,
        below: |report| format!("over {} steps", units::count(report.steps)),
    },
    Read {
        testid: "efficiency",
        name: "implied efficiency",
        value: |report| written(&report.scaling_efficiency.implied, |ratio| ratio),
        write: |_, ratio| units::percent(ratio),
        change: change_in_points,
        below: |report| match report.scaling_efficiency.measured.value() {
            Some(measured) => measured_against(measured, report.baseline.as_ref()),
            None => "not measured: no baseline run".into(),
        },
    },
    Read {
        testid: "overlap",
        name: "overlap",
        value: |report| written(&report.overlap_ratio, |ratio| ratio),
        write: |_, ratio| units::percent(ratio),
        change: change_in_points,
        below: |report| {
            let fraction = report.communication_fraction.value();
            fraction.map_or_else(String::new, |share| format!("communication {}", units::percent(share)))
        },
    },
    Read {
        testid: "mfu",
        name: "MFU",
        value: |report| written(&report.flops_utilization.model, |ratio| ratio),
        write: |_, ratio| units::percent(ratio),
        change: change_in_points,
        below: |report| report.flops_utilization.basis.clone().unwrap_or_default(),
    },
    Read {
        testid: "goodput-ratio",
        name: "goodput",
        value: |report| report.goodput.as_result().map(|goodput| goodput.ratio).map_err(Missing::to_string),
        write: |_, ratio| units::percent(ratio),
        change: change_in_points,
        // Unlike the other figures, it is of the whole run.
        below: |report| {
            report.goodput.known().map_or_else(String::new, |goodput| {
                let wall = units::clock(goodput.wall_nanos as f64 / 1e9);
                format!("of the whole run, {wall} on {}", analysis::wording::goodput::ranks(goodput))
            })
        },
    },
];

/// Says what efficiency was measured, and against which run.
fn measured_against(measured: f64, baseline: Option<&BaselineRun>) -> String {
    let measured = units::percent(measured);
    match baseline {
        Some(BaselineRun { run, ranks, has_verdict, rule, .. }) => {
            let fault = if *has_verdict { ", which had a fault itself" } else { "" };
            format!("measured ({}) {measured} of {run} on {}{fault}", rule.name(), units::ranks(*ranks))
        }
        None => format!("measured {measured}"),
    }
}

/// The strip of figures. A figure is missing until the report has arrived.
#[component]
pub fn Figures(compared: Compared) -> impl IntoView {
    let strip = move || {
        let (now, healthy) = (compared.now.get(), compared.healthy.get());
        FIGURES
            .iter()
            .map(|read| {
                let report = now.as_deref();
                let value = report.map_or_else(|| Err(String::new()), |report| (read.value)(report));
                let below = match (report, &healthy, &value) {
                    (Some(report), Some(healthy), Ok(value)) => {
                        comparison(read, *value, healthy).unwrap_or_else(|| (read.below)(report))
                    }
                    (Some(report), ..) => (read.below)(report),
                    (None, ..) => String::new(),
                };
                let value =
                    value.map(|value| report.map_or_else(String::new, |now| (read.write)(now, value)));
                view! { <KeyFigure testid=read.testid name=read.name value=value below=below /> }
            })
            .collect_view()
    };
    let scope = move || {
        let range = |report: &Report| {
            let (first, last) = report.step_range?;
            Some(format!("{} to {}", units::count(first), units::count(last)))
        };
        let now = compared.now.get().and_then(|report| range(&report))?;
        Some(match compared.healthy.get().and_then(|report| range(&report)) {
            Some(healthy) => format!(
                "Means of steps {now}. Below each: the mean of the healthy steps {healthy}, and the change."
            ),
            None => format!("Means of steps {now}."),
        })
    };
    view! {
        <div>
            <p class="quiet scope" data-testid="scope">{scope}</p>
            <dl class="figures">{strip}</dl>
        </div>
    }
}

/// Formats a relative change; nothing if it is relative to 0.
fn relative_change(before: f64, now: f64) -> String {
    if before > 0.0 { units::signed_percent(now / before - 1.0) } else { String::new() }
}

fn change_in_points(before: f64, now: f64) -> String {
    units::points(now - before)
}

/// Compares a value with that of the healthy period; `None` if that is missing.
fn comparison(read: &Read, value: f64, healthy: &Report) -> Option<String> {
    let healthy_value = (read.value)(healthy).ok()?;
    let change = match (read.change)(healthy_value, value) {
        none if none.is_empty() => none,
        change => format!(" ({change})"),
    };
    Some(units::unbroken(&format!("healthy {}{change}", (read.write)(healthy, healthy_value))))
}
