//! A scaling study as a table and as CSV.

use std::fmt::Write as _;

use analysis::study::{Efficiency, Study};
use wire::live::Part;
use wire::views::ScalingRule;

/// Returns a line for each run.
pub(super) fn csv(study: &Study) -> String {
    let mut out = String::from(
        "ranks,repeat,run,scaling,batch_per_rank,step_seconds,step_seconds_p50,step_seconds_p95,step_seconds_p99,\
         samples_per_second,efficiency,communication_fraction,exposed_wait_share,exposed_transfer_share,input_share\n",
    );
    let scaling = study.rule().map_or("", ScalingRule::name).trim_end_matches(" scaling");
    let text = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.6}"));
    for run in &study.runs {
        let fields = [
            run.report.ranks.to_string(),
            run.repeat.to_string(),
            run.report.run.to_string(),
            scaling.to_owned(),
            text(run.report.batch.value()),
            text(Some(run.period_nanos / 1e9)),
            text(Some(run.step.median / 1e9)),
            text(Some(run.step.p95 / 1e9)),
            text(Some(run.step.p99 / 1e9)),
            text(run.report.throughput.value()),
            text(study.efficiency_of(run)),
            text(run.report.communication_fraction.value()),
            text(run.share(&[Part::ExposedWait])),
            text(run.share(&[Part::ExposedTransfer])),
            text(run.input_share()),
        ];
        // Writing to a string cannot fail.
        let _infallible = writeln!(out, "{}", fields.join(","));
    }
    out
}

/// Returns the table of the median run of each world size with the efficiencies, and what they mean.
pub(super) fn table(worlds: &[u32], study: &Study) -> String {
    let mut out = format!(
        "{:>6}{:>12}{:>12}{:>12}{:>16}{:>10}{:>28}{:>10}{:>10}\n",
        "ranks", "step", "p95", "p99", "throughput", "exposed", "efficiency", "input", "serial"
    );
    for &ranks in worlds {
        let Some(run) = study.median(ranks) else { continue };
        let efficiency = study.efficiency_on(ranks);
        let unknown = || "-".to_owned();
        let throughput = run.report.throughput.value();
        let unit = format!("{}/s", run.report.sample_unit);
        out += &format!(
            "{ranks:>6}{:>12}{:>12}{:>12}{:>16}{:>10}{:>28}{:>10}{:>10}\n",
            units::nanos(run.period_nanos),
            units::nanos(run.step.p95),
            units::nanos(run.step.p99),
            throughput.map_or_else(unknown, |throughput| units::rate(throughput, &unit)),
            run.exposed_share().map_or_else(unknown, units::percent),
            efficiency.map_or_else(unknown, written),
            run.input_share().map_or_else(unknown, units::percent),
            efficiency.and_then(|efficiency| efficiency.serial_fraction).map_or_else(unknown, units::percent),
        );
    }
    out + "\n" + &meaning(study)
}

/// Formats an efficiency with its interval.
fn written(efficiency: &Efficiency) -> String {
    let mean = units::percent(efficiency.mean);
    match efficiency.interval {
        Some((low, high)) => format!("{mean} ({} to {})", units::percent(low), units::percent(high)),
        None => mean,
    }
}

/// Says what the efficiencies are, or why there are none.
fn meaning(study: &Study) -> String {
    let base = units::ranks(study.base().unwrap_or(1));
    match &study.found {
        Err(missing) => format!("There is no efficiency: {missing}.\n"),
        Ok((rule, all)) => {
            let serial = match rule {
                ScalingRule::Weak => "Gustafson, 1988",
                ScalingRule::Strong => "Karp and Flatt, 1990",
            };
            let mut out = format!(
                "{}: the {} is the same. Efficiency is the throughput per rank over that on {base}{}.\n",
                units::capitalized(rule.name()),
                rule.shared(),
                if all.iter().any(|efficiency| efficiency.interval.is_some()) {
                    ", with its 95 % interval"
                } else {
                    ""
                }
            );
            if all.iter().any(|efficiency| efficiency.serial_fraction.is_some()) {
                out += &format!("Serial: the share of the work that does not scale ({serial}).\n");
            }
            out
        }
    }
}
