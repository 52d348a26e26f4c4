//! The figures of a run, and the reasons for missing figures.

use analysis::wording::goodput as wording;
use wire::batch::total;
use wire::views::goodput::Goodput;
use wire::views::{Figure, Report};

use super::{Body, Section};
use units::nanos;

/// Returns the section of the known figures, one line each. Figures that are not known are in [`missing`].
pub(super) fn section(report: &Report) -> Section {
    let mut figures: Vec<(String, String)> = Vec::new();
    let mut add = |name: &str, value: Option<String>| {
        figures.extend(value.map(|value| (name.to_owned(), value)));
    };
    let percent = |figure: &Figure<f64>| figure.value().map(units::percent);
    add(
        "step time",
        report.step_time_nanos.value().map(|time| {
            let [mean, median, p90, p99] = [time.mean, time.median, time.p90, time.p99].map(nanos);
            format!("{mean} mean (median {median}, p90 {p90}, p99 {p99})")
        }),
    );
    // Ranks that begin a step at different times share a part of it with the step before.
    let period = report.period_nanos.value().zip(report.step_time_nanos.value());
    add(
        "period",
        period.filter(|(period, time)| nanos(*period) != nanos(time.mean)).map(|(period, _)| {
            format!(
                "{} mean: the step time less what steps share where ranks begin one at different times",
                nanos(period)
            )
        }),
    );
    let unit = &report.sample_unit;
    add("throughput", report.throughput.value().map(|throughput| format!("{throughput:.0} {unit}/s")));
    let used = &report.flops_utilization;
    add(
        "MFU",
        percent(&used.model).zip(used.basis.as_ref()).map(|(share, basis)| format!("{share} ({basis})")),
    );
    add("HFU", percent(&used.hardware));
    add("goodput", report.goodput.known().map(goodput));
    add("overlap", percent(&report.overlap_ratio));
    let implied = percent(&report.scaling_efficiency.implied);
    add("efficiency", implied.map(|value| format!("{value} (implied: compute / step, no baseline run)")));
    let measured = percent(&report.scaling_efficiency.measured).zip(report.baseline.as_ref());
    add(
        "measured eff.",
        measured.map(|(value, baseline)| {
            let per_rank = baseline.throughput / f64::from(baseline.ranks);
            let rule = baseline.rule.name();
            format!(
                "{value} ({rule}: throughput per rank against {per_rank:.0} {unit}/s of {})",
                baseline.run
            )
        }),
    );
    add("own overhead", own_overhead(report));
    add("all-reduce", comm_model(report));
    let lost = total(report.drops.iter().flat_map(|rank| &rank.drops).map(|drop| drop.count));
    add("records lost", (lost > 0).then(|| lost.to_string()));
    Section { title: "Figures", introduction: Vec::new(), body: Body::Figures(figures), brief: true }
}

fn goodput(goodput: &Goodput) -> String {
    let (ratio, compute) = (units::percent(goodput.ratio), units::percent(goodput.compute_ratio));
    let wall = units::clock(goodput.wall_nanos as f64 / 1e9);
    let rest = match wording::badput(goodput) {
        none if none.is_empty() => String::new(),
        badput => format!("; the rest: {badput}"),
    };
    format!("{ratio} of {wall} on {} (compute {compute}){rest}", wording::ranks(goodput))
}

fn own_overhead(report: &Report) -> Option<String> {
    let own = report.own_overhead.known()?;
    let (ratio, low, high) = (own.ratio * 100.0, own.low * 100.0, own.high * 100.0);
    Some(format!("{ratio:.2} % (95 % interval {low:.2} to {high:.2}, {} pairs)", own.pairs))
}

fn comm_model(report: &Report) -> Option<String> {
    let model = report.comm_model.known()?;
    let latency = nanos(model.alpha_seconds * 1e9);
    // Buckets of similar size on a busy machine show a latency but no slope.
    let bandwidth = match 1e-9 / model.beta_seconds_per_byte {
        bandwidth if bandwidth.is_finite() => format!(" + bytes / {bandwidth:.2} GB/s"),
        _ => " for any size".into(),
    };
    Some(format!("{latency}{bandwidth} (fitted)"))
}

/// Returns the section of the missing figures and of the gaps, each with its reason.
pub(super) fn missing(report: &Report) -> Option<Section> {
    Some(Section {
        title: "Not known",
        introduction: Vec::new(),
        body: Body::Figures(report.reasons()),
        brief: true,
    })
}
