//! Faults in real training jobs.

use std::path::Path;

use anyhow::ensure;
use paceline_tests::programs;
use wire::views::Report;

use crate::cases::{Class, Job, Real, STEPS};
use crate::judge::{Found, Outcome, Planted};

/// One faulty run, and a healthy one of the same job where the true cost must be measured.
pub fn faulty(data: &Path, case: &Real) -> anyhow::Result<Outcome> {
    let load = load();
    let slow: Vec<String> = case.slow.iter().map(ToString::to_string).collect();
    let (slow, millis) = (slow.join(","), case.millis.to_string());
    let (from, to) = (case.bad.start.to_string(), case.bad.end.to_string());
    let trouble = [
        "--slow-rank",
        &slow,
        "--slow-phase",
        case.class.phase(),
        "--slow-ms",
        &millis,
        "--slow-from",
        &from,
        "--slow-to",
        &to,
    ];
    let report = train(data, case.job, &trouble)?;
    let found = Found::of(&report);
    let (first, last) = report.step_range.unwrap_or((0, case.steps));
    let bad = case.bad.end.min(last + 1).saturating_sub(case.bad.start.max(first));
    let bad_share = bad as f64 / (last + 1 - first) as f64;
    let (cost_millis, cost_from) = match case.class {
        // It sleeps behind backward: what is left of it is only to be had from a run without.
        Class::Network => {
            let healthy = Found::of(&train(data, case.job, &[])?).step_millis;
            (found.step_millis - healthy, "the same job without it, measured next")
        }
        _ => (case.millis * bad_share, "processor time burnt"),
    };
    let share = cost_millis / found.step_millis;
    let planted = Planted {
        class: case.class,
        slow: case.slow.clone(),
        millis: case.millis,
        bad_share,
        bad: (case.bad.start, case.bad.end),
        cost_millis,
        cost_from,
        share,
    };
    Ok(outcome(case.job, Some(planted), found, load))
}

/// One healthy run.
pub fn healthy(data: &Path, job: Job) -> anyhow::Result<Outcome> {
    let load = load();
    let found = Found::of(&train(data, job, &[])?);
    Ok(outcome(job, None, found, load))
}

fn outcome(job: Job, planted: Option<Planted>, found: Found, load: String) -> Outcome {
    Outcome { real: true, job: job.program.into(), ranks: job.ranks as usize, planted, found, load }
}

fn train(data: &Path, job: Job, more: &[&str]) -> anyhow::Result<Report> {
    let (data_text, ranks, steps) = (data.to_string_lossy(), job.ranks.to_string(), STEPS.to_string());
    let mut arguments = vec!["-n", &ranks, "--data", &data_text, "--", job.program, "--steps", &steps];
    arguments.extend(more);
    let (code, printed, complaints) = programs::Job::start(&arguments)?.finish()?;
    ensure!(code == 0, "the job failed: {printed}{complaints}");
    Ok(serde_json::from_value(programs::report(data, "latest")?)?)
}

fn load() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').next().unwrap_or_default().to_owned()
}
