//! Faults in real training jobs.

use std::path::Path;

use anyhow::ensure;
use paceline_tests::crossover::Crossover;
use paceline_tests::programs;
use wire::views::Report;

use crate::cases::{Job, Real, STEPS};
use crate::judge::{Found, Outcome, Planted};

/// Healthy runs before and after a fault that differ by more than this share of the step say that the machine changed
/// meanwhile, and not what the fault costs: the fault is planted again, whatever was found.
const MOST_DRIFT: f64 = 0.04;
/// But not for ever.
const MOST_REPEATS: u32 = 4;

/// Healthy and faulty runs of one job in turns, a healthy one first and last.
pub fn alternate(
    data: &Path,
    job: Job,
    cases: &[&Real],
    keep: &mut impl FnMut(Outcome),
) -> anyhow::Result<()> {
    if cases.is_empty() {
        return Ok(());
    }
    let mut before = healthy(data, job, keep)?;
    for case in cases {
        let mut repeats = 0;
        loop {
            let load = load();
            let report = faulty(data, case)?;
            let after = healthy(data, job, keep)?;
            let agree = (before - after).abs() <= MOST_DRIFT * before.min(after);
            if agree || repeats == MOST_REPEATS {
                keep(judged(case, &report, [before, after], (load, repeats)));
                before = after;
                break;
            }
            (before, repeats) = (after, repeats + 1);
        }
    }
    Ok(())
}

/// One healthy run; returns its mean step in milliseconds.
fn healthy(data: &Path, job: Job, keep: &mut impl FnMut(Outcome)) -> anyhow::Result<f64> {
    let load = load();
    let found = Found::of(&train(data, job, &[])?);
    let step_millis = found.step_millis;
    keep(outcome(job, None, found, load));
    Ok(step_millis)
}

fn faulty(data: &Path, case: &Real) -> anyhow::Result<Report> {
    let slow: Vec<String> = case.slow.iter().map(ToString::to_string).collect();
    let (slow, millis) = (slow.join(","), case.millis.to_string());
    let (from, to) = (case.bad.start.to_string(), case.bad.end.to_string());
    let trouble = [
        ["--slow-rank", &slow],
        ["--slow-phase", case.class.phase()],
        ["--slow-ms", &millis],
        ["--slow-from", &from],
        ["--slow-to", &to],
    ];
    train(data, case.job, trouble.as_flattened())
}

fn judged(case: &Real, report: &Report, healthy: [f64; 2], (load, repeats): (String, u32)) -> Outcome {
    let found = Found::of(report);
    let (first, last) = report.step_range.unwrap_or((0, STEPS));
    let bad = case.bad.end.min(last + 1).saturating_sub(case.bad.start.max(first));
    let usual = (healthy[0] + healthy[1]) / 2.0;
    let cost_millis = found.step_millis - usual;
    let planted = Planted {
        class: case.class,
        slow: case.slow.clone(),
        millis: case.millis,
        bad_share: bad as f64 / (last + 1 - first) as f64,
        bad: (case.bad.start, case.bad.end),
        cost_millis,
        cost_uncertainty: (healthy[0] - healthy[1]).abs() / 2.0,
        share: cost_millis / usual,
        repeats,
    };
    outcome(case.job, Some(planted), found, load)
}

fn outcome(job: Job, planted: Option<Planted>, found: Found, load: String) -> Outcome {
    Outcome { real: true, job: job.program.into(), ranks: job.ranks as usize, planted, found, load }
}

fn train(data: &Path, job: Job, more: &[&str]) -> anyhow::Result<Report> {
    let (data_text, ranks, steps) = (data.to_string_lossy(), job.ranks.to_string(), STEPS.to_string());
    let mut arguments = vec!["-n", &ranks, "--data", &data_text, "--", job.program, "--steps", &steps];
    arguments.extend(more);
    let started = programs::Job::start(&arguments)?;
    let crossover = Crossover::of(&started, job.ranks as usize)?;
    let (code, printed, complaints) = started.finish()?;
    drop(crossover);
    ensure!(code == 0, "the job failed: {printed}{complaints}");
    Ok(serde_json::from_value(programs::report(data, "latest")?)?)
}

fn load() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').next().unwrap_or_default().to_owned()
}
