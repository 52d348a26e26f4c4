//! Faults in real training jobs.

use std::path::Path;

use anyhow::ensure;
use testkit::crossover::Crossover;
use testkit::programs;
use wire::views::Report;

use crate::cases::{Job, PLAIN_STEPS, Real, STEPS};
use crate::judge::{Found, Kind, Outcome, Planted};
use crate::kept::Records;
use crate::toggled::Toggled;

/// Judges a healthy run and a faulty run, with as many more runs as the true cost of the fault requires.
pub fn judge(case: &Real, records: &Records, keep: &mut impl FnMut(Outcome)) -> anyhow::Result<()> {
    keep(healthy(case.job, records)?);
    keep(faulty(case, records)?);
    Ok(())
}

/// Judges a healthy run in which every rank stays on its cores.
pub fn plain(job: Job, records: &Records) -> anyhow::Result<Outcome> {
    let load = load();
    let train = |data: &Path| finish(start(data, job, PLAIN_STEPS, &[])?);
    let report = records.read_or_train("healthy", train, report)?;
    Ok(Outcome { kind: Kind::Plain, ..outcome(job, None, Found::from_report(&report), load) })
}

fn healthy(job: Job, records: &Records) -> anyhow::Result<Outcome> {
    let load = load();
    let report = records.read_or_train("healthy", |data| train(data, job, &[]), report)?;
    Ok(outcome(job, None, Found::from_report(&report), load))
}

fn faulty(case: &Real, records: &Records) -> anyhow::Result<Outcome> {
    let load = load();
    let (from, to) = (case.bad.start.to_string(), case.bad.end.to_string());
    let when = trouble(case, &["--slow-from", &from, "--slow-to", &to]);
    let report = records.read_or_train("faulty", |data| train(data, case.job, &when), report)?;
    let (first, last) = report.step_range.unwrap_or((0, STEPS));
    let bad = case.bad.end.min(last + 1).saturating_sub(case.bad.start.max(first));
    let bad_share = bad as f64 / (last + 1 - first) as f64;
    let truth = Toggled::measure(records, |data, interval| {
        train(data, case.job, &trouble(case, &["--slow-every", interval]))
    })?;
    let planted = Planted {
        class: case.class,
        slow: case.slow.clone(),
        millis: case.millis,
        bad_share,
        bad: (case.bad.start, case.bad.end),
        cost_millis: truth.cost_millis * bad_share,
        standard_error: truth.standard_error_millis * bad_share,
        share: truth.cost_millis * bad_share / truth.usual_millis,
        measured: truth.runs,
    };
    Ok(outcome(case.job, Some(planted), Found::from_report(&report), load))
}

/// Returns the options that plant the fault of `case` in the steps that `when` selects.
fn trouble(case: &Real, when: &[&str]) -> Vec<String> {
    let slow = case.slow.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let millis = case.millis.to_string();
    let what = ["--slow-rank", &slow, "--slow-phase", case.class.phase(), "--slow-ms", &millis];
    what.iter().chain(when).map(ToString::to_string).collect()
}

fn outcome(job: Job, planted: Option<Planted>, found: Found, load: String) -> Outcome {
    let kind = if job.has_own_cores() { Kind::Real } else { Kind::Shared };
    Outcome { kind, job: job.program.into(), ranks: job.ranks as usize, planted, found, load }
}

/// Runs a job that writes its records to `data`. Its ranks exchange cores all the time.
fn train(data: &Path, job: Job, more: &[String]) -> anyhow::Result<()> {
    let started = start(data, job, STEPS, more)?;
    let crossover = Crossover::new(&started, job.ranks as usize)?;
    finish(started)?;
    drop(crossover);
    Ok(())
}

fn start(data: &Path, job: Job, steps: u64, more: &[String]) -> anyhow::Result<programs::Job> {
    let (data, ranks, steps) = (data.to_string_lossy(), job.ranks.to_string(), steps.to_string());
    let mut arguments = vec!["-n", &ranks, "--data", &data, "--", job.program, "--steps", &steps];
    arguments.extend(["--batch", job.batch, "--strong"]);
    arguments.extend(more.iter().map(String::as_str));
    programs::Job::start(&arguments)
}

fn finish(job: programs::Job) -> anyhow::Result<()> {
    let (code, printed, complaints) = job.finish()?;
    ensure!(code == 0, "the job failed: {printed}{complaints}");
    Ok(())
}

fn report(data: &Path) -> anyhow::Result<Report> {
    Ok(serde_json::from_value(programs::report(data, "latest")?)?)
}

fn load() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').next().unwrap_or_default().to_owned()
}
