//! Compares two reports, figure by figure.

use crate::traces::differences;
use wire::live::Part;
use wire::views::comparison::{Change, Compared, Comparison, Unit};
use wire::views::{Culprit, Figure, MemoryGrowth, Report, Spread, Verdict};

/// The number of consecutive steps that count as one, because consecutive steps are alike.
const ALIKE_STEPS: f64 = 25.0;
/// The number of standard errors that chance alone seldom exceeds (95 %).
const STANDARD_ERRORS: f64 = 1.96;
/// The standard error of a median relative to that of a mean, for normal scatter.
const MEDIAN_TO_MEAN: f64 = 1.2533;
/// The smallest difference that counts if the scatter is unknown: as a share of the first run's value, in points of a
/// share, or (for a part of the ledger) as a share of the step.
const MIN_DIFFERENCE: f64 = 0.01;

/// The direction in which a figure is better.
#[derive(Clone, Copy)]
enum Better {
    Lower,
    Higher,
}

#[must_use]
pub fn compare(a: &Report, b: &Report) -> Comparison {
    let figures = figures(a, b);
    let ledger = ledger(a, b);
    let both_traced = b.traced.as_ref().zip(a.traced.as_ref());
    let (traced, traced_left_out) =
        both_traced.map(|(own, other)| differences(own, other)).unwrap_or_default();
    Comparison {
        a: a.run.clone(),
        b: b.run.clone(),
        sentence: sentence(a, b, &figures[..2], &ledger),
        caveats: caveats(a, b),
        verdicts_gone: only_in(&a.verdicts, &b.verdicts),
        verdicts_new: only_in(&b.verdicts, &a.verdicts),
        memory_gone: grows_only_in(&a.memory, &b.memory),
        memory_new: grows_only_in(&b.memory, &a.memory),
        figures,
        ledger,
        traced,
        traced_left_out,
    }
}

fn figures(a: &Report, b: &Report) -> Vec<Compared> {
    let median = |spread: &Figure<Spread>| spread.known().map(|spread| spread.median);
    let noise = step_noise(a, b);
    let step = |name: &str, figure: fn(&Spread) -> f64, noise: Option<f64>| {
        let value = |report: &Report| report.step_time_nanos.known().map(figure);
        compared(name, Unit::Nanos, Better::Lower, value(a), value(b), noise)
    };
    let ratio = |name: &str, better: Better, figure: fn(&Report) -> Option<f64>| {
        compared(name, Unit::Ratio, better, figure(a), figure(b), None)
    };
    vec![
        step("step time, median", |spread| spread.median, noise),
        step("step time, p90", |spread| spread.p90, None),
        step("step time, p99", |spread| spread.p99, None),
        // The figure of the list of runs and of the overview.
        compared(
            "step time, mean",
            Unit::Nanos,
            Better::Lower,
            a.period_nanos.value(),
            b.period_nanos.value(),
            None,
        ),
        compared(
            "local step time, median",
            Unit::Nanos,
            Better::Lower,
            median(&a.local_step_time_nanos),
            median(&b.local_step_time_nanos),
            noise,
        ),
        compared(
            "throughput",
            Unit::PerSecond,
            Better::Higher,
            a.throughput.value(),
            b.throughput.value(),
            noise,
        ),
        ratio("overlap", Better::Higher, |report| report.overlap_ratio.value()),
        ratio("communication fraction", Better::Lower, |report| report.communication_fraction.value()),
        compared("tail", Unit::Nanos, Better::Lower, a.tail_nanos.value(), b.tail_nanos.value(), None),
        ratio("efficiency, implied", Better::Higher, |report| report.scaling_efficiency.implied.value()),
        ratio("efficiency, measured", Better::Higher, |report| report.scaling_efficiency.measured.value()),
        ratio("MFU", Better::Higher, |report| report.flops_utilization.model.value()),
        ratio("goodput", Better::Higher, |report| report.goodput.known().map(|goodput| goodput.ratio)),
        ratio("wasted share", Better::Lower, |report| Some(report.what_if.known()?.wasted_share)),
    ]
}

/// Compares each part of the ledger, as the mean over ranks and steps.
fn ledger(a: &Report, b: &Report) -> Vec<Compared> {
    let step = a.mean_nanos(&Part::ALL).unwrap_or(0.0);
    let part = |part: Part| {
        let (mean_a, mean_b) = (a.mean_nanos(&[part]), b.mean_nanos(&[part]));
        let mut row = compared(part.name(), Unit::Nanos, Better::Lower, mean_a, mean_b, None);
        // A part that is close to 0 may double without any effect.
        if let Some((a, b)) = mean_a.zip(mean_b) {
            row.change = judge(b - a, MIN_DIFFERENCE * step, Better::Lower);
        }
        row
    };
    Part::stacked(a.has_idle() || b.has_idle()).map(part).collect()
}

fn compared(
    name: &str,
    unit: Unit,
    better: Better,
    a: Option<f64>,
    b: Option<f64>,
    noise: Option<f64>,
) -> Compared {
    let difference = a.zip(b).and_then(|(a, b)| difference(unit, a, b));
    let least = noise.unwrap_or(MIN_DIFFERENCE);
    let change = difference.map_or(Change::Unknown, |difference| judge(difference, least, better));
    Compared { name: name.into(), unit, a, b, difference, noise, change }
}

/// Returns b / a - 1, or b - a for shares; `None` if a is 0.
#[must_use]
pub fn difference(unit: Unit, a: f64, b: f64) -> Option<f64> {
    match unit {
        Unit::Ratio => Some(b - a),
        Unit::Nanos | Unit::PerSecond => (a != 0.0).then(|| b / a - 1.0),
    }
}

fn judge(difference: f64, least: f64, better: Better) -> Change {
    let gain = match better {
        Better::Lower => -difference,
        Better::Higher => difference,
    };
    if gain.abs() <= least {
        Change::Same
    } else if gain > 0.0 {
        Change::Better
    } else {
        Change::Worse
    }
}

/// Returns how far two medians of step time may differ by chance, as a share, from the scatter inside each run.
/// Differences between two starts of the same job are not included.
fn step_noise(a: &Report, b: &Report) -> Option<f64> {
    let variance = |report: &Report| {
        let spread = report.step_time_nanos.known()?;
        let deviation = spread.deviation() / spread.median;
        let independent = (report.steps as f64 / ALIKE_STEPS).max(1.0);
        Some(deviation.powi(2) / independent)
    };
    Some(STANDARD_ERRORS * MEDIAN_TO_MEAN * (variance(a)? + variance(b)?).sqrt())
}

/// The difference at p90 from which two runs with equal medians are not called equal.
const NOTABLE_TAIL: f64 = 0.05;

/// `steps` are the comparisons of the median and of p90.
fn sentence(a: &Report, b: &Report, steps: &[Compared], ledger: &[Compared]) -> String {
    let (step, slowest) = (&steps[0], &steps[1]);
    let (Some(before), Some(after), Some(difference)) = (step.a, step.b, step.difference) else {
        return "There are too few observed steps to compare.".into();
    };
    let times = format!("{} against {}", units::nanos(after), units::nanos(before));
    if step.change == Change::Same {
        let noise = step.noise.map_or_else(String::new, |noise| {
            format!(" (chance alone explains up to {})", units::percent(noise))
        });
        let typical = format!("{times} in the median, {}{noise}", units::signed_percent(difference));
        let notable = slowest.difference.filter(|difference| difference.abs() > NOTABLE_TAIL);
        return match (notable, slowest.b.zip(slowest.a)) {
            (Some(by), Some((after, before))) => format!(
                "The typical steps of {} and {} do not differ measurably ({typical}), but the slowest tenth of them does: \
                 {} against {} at p90, {}.",
                b.run,
                a.run,
                units::nanos(after),
                units::nanos(before),
                units::signed_percent(by)
            ),
            _ => format!("The step times of {} and {} do not differ measurably: {typical}.", b.run, a.run),
        };
    }
    let change = |row: &Compared| row.b.unwrap_or(0.0) - row.a.unwrap_or(0.0);
    let slower = after > before;
    let most = ledger.iter().max_by(|x, y| {
        let explains = |row: &Compared| if slower { change(row) } else { -change(row) };
        explains(x).total_cmp(&explains(y))
    });
    let mostly = most.filter(|row| (change(row) > 0.0) == slower).map_or_else(String::new, |row| {
        format!(", mostly in {} ({})", row.name, units::signed_nanos(change(row)))
    });
    let word = if slower { "longer" } else { "less time" };
    format!(
        "A step of {} takes {:.0} % {word} than a step of {}: {times} in the median{mostly}.",
        b.run,
        difference.abs() * 100.0,
        a.run
    )
}

fn caveats(a: &Report, b: &Report) -> Vec<String> {
    let mut caveats = Vec::new();
    if a.name != b.name {
        caveats.push(format!("the runs are of different jobs: {} and {}", a.name, b.name));
    }
    if a.ranks != b.ranks {
        caveats.push(format!("world sizes differ: {} and {} ranks", a.ranks, b.ranks));
    }
    if a.sample_unit != b.sample_unit {
        caveats.push(format!("throughput is in different units: {} and {}", a.sample_unit, b.sample_unit));
    }
    let bytes = |report: &Report| report.buckets.iter().map(|bucket| bucket.bytes).collect::<Vec<_>>();
    let (of_a, of_b) = (bytes(a), bytes(b));
    if of_a.iter().sum::<u64>() != of_b.iter().sum::<u64>() {
        caveats.push("the runs reduce different numbers of bytes: the model or the precision differs".into());
    } else if of_a != of_b {
        caveats.push(format!("gradients are split into {} and {} buckets", of_a.len(), of_b.len()));
    }
    for report in [a, b].into_iter().filter(|report| report.steps < 50) {
        caveats.push(format!("{} has only {} observed steps", report.run, report.steps));
    }
    caveats
}

/// Returns the sentences of the verdicts in `verdicts` that have no counterpart in `other`, which is a verdict with the same
/// culprit and cause.
fn only_in(verdicts: &[Verdict], other: &[Verdict]) -> Vec<String> {
    let key = |verdict: &Verdict| {
        let ranks = verdict.culprit.as_ref().map(|culprit| match culprit {
            Culprit::All => Vec::new(),
            named => named.ranks().to_vec(),
        });
        (ranks, verdict.cause)
    };
    let is_new = |verdict: &&Verdict| !other.iter().any(|counterpart| key(counterpart) == key(verdict));
    verdicts.iter().filter(is_new).map(|verdict| verdict.sentence.clone()).collect()
}

/// Returns the sentences of the growths in `growths` of memory that does not grow in `other`.
fn grows_only_in(growths: &[MemoryGrowth], other: &[MemoryGrowth]) -> Vec<String> {
    let is_new = |growth: &&MemoryGrowth| !other.iter().any(|counterpart| counterpart.kind == growth.kind);
    growths.iter().filter(is_new).map(|growth| growth.sentence.clone()).collect()
}
