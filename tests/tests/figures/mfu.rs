//! The model FLOPs utilization: of a simulated job whose truth is known, and of a real one.

use anyhow::{Context as _, ensure};
use serde_json::Value;
use testkit::programs::{Job, report};
use testkit::simulator::{Plan, Simulation};
use wire::batch::Note;
use wire::views::{Missing, Report};
use wire::workload::Workload;

/// Returns the report of a simulated job in which each rank states this workload, or none.
fn stated(workload: impl Fn(u32) -> Option<Workload>) -> Report {
    let mut simulation = Simulation::run(&Plan::small(7));
    for received in &mut simulation.batches {
        if received.batch.seq.0 == 0 {
            received.batch.notes.extend(workload(received.batch.rank.0).map(Note::Workload));
        }
    }
    simulation.received().report(usize::MAX, simulation.end())
}

#[test]
fn the_operations_of_all_samples_are_compared_with_the_peak_of_all_ranks() {
    let workload = |rank: u32| Workload {
        flops_per_sample: 1_000_000,
        hardware_flops_per_sample: 1_500_000,
        peak_flops_per_second: if rank == 0 { 3_000_000_000_000 } else { 1_000_000_000_000 },
        ..Workload::default()
    };
    let report = stated(|rank| Some(workload(rank)));
    let throughput = report.throughput.value().expect("the simulated job counts its samples");
    let used = &report.flops_utilization;
    let mfu = used.model.value().expect("all is stated");
    let true_mfu = throughput * 1e6 / (3.0 + 3.0) / 1e12;
    assert!((mfu / true_mfu - 1.0).abs() < 1e-9, "{mfu} and {true_mfu}");
    let hfu = used.hardware.value().expect("all is stated");
    assert!((hfu / mfu - 1.5).abs() < 1e-9, "{hfu} and {mfu}");
    let basis = used.basis.as_deref().expect("it is known");
    assert!(
        basis.starts_with("1.00 MFLOP per sample, as the job states; peak 1.50 TFLOP/s per rank"),
        "{basis}"
    );
}

#[test]
fn what_one_rank_does_not_state_is_missing_with_its_reason() {
    let whole =
        Workload { flops_per_sample: 1_000_000, peak_flops_per_second: 1 << 40, ..Workload::default() };
    let reason = |workload: &dyn Fn(u32) -> Option<Workload>| {
        stated(workload).flops_utilization.model.reason().cloned()
    };
    assert_eq!(reason(&|_| Some(whole.clone())), None);
    assert_eq!(reason(&|_| None), Some(Missing::NoFlops));
    assert_eq!(reason(&|rank| (rank != 2).then(|| whole.clone())), Some(Missing::NoFlops));
    let without_peak =
        |rank| Workload { peak_flops_per_second: 0, flops_per_sample: 1 + u64::from(rank), ..whole.clone() };
    assert_eq!(reason(&|rank| Some(without_peak(rank))), Some(Missing::NoPeak));
    let tiny = Workload { peak_flops_per_second: 1_000, ..whole };
    assert!(matches!(reason(&|_| Some(tiny.clone())), Some(Missing::AboveThePeak { .. })));
}

#[test]
fn a_job_that_states_its_samples_once_has_a_throughput() {
    let mut simulation = Simulation::run(&Plan::small(7));
    let counted = simulation.received().report(usize::MAX, simulation.end()).throughput.value();
    for received in &mut simulation.batches {
        let batch = &mut received.batch;
        for event in &mut batch.events {
            if let wire::event::Event::Step(step) = event {
                step.samples = 0;
            }
        }
        if batch.seq.0 == 0 {
            let sample_unit = "images".into();
            batch.notes.push(Note::Workload(Workload {
                samples_per_step: 64,
                sample_unit,
                ..Workload::default()
            }));
        }
    }
    let report = simulation.received().report(usize::MAX, simulation.end());
    assert!(counted.is_some());
    assert_eq!(report.batch.value(), Some(64.0));
    assert_eq!(report.sample_unit, "images");
    let period = report.period_nanos.value().expect("there are steps");
    let expected = 4.0 * 64.0 / (period / 1e9);
    let found = report.throughput.value().expect("the samples are stated");
    assert!((found / expected - 1.0).abs() < 0.02, "{found} and {expected}");
}

#[test]
fn a_real_job_on_cpus_measures_its_peak() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let arguments = ["-n", "2", "--data", &data.path().to_string_lossy(), "--", "char_lm", "--steps", "60"];
    let (code, printed, complaints) = Job::start(&arguments)?.finish()?;
    ensure!(code == 0, "{printed}{complaints}");
    let report: Value = report(data.path(), "latest")?;
    let used = &report["flops_utilization"];
    let mfu = used["model"].as_f64().with_context(|| format!("{used:#}"))?;
    ensure!(mfu > 0.001 && mfu < 1.0 && used["hardware"] == used["model"], "{used:#}");
    // The operations of a token of char_lm: 6 for each of the parameters that are multiplied, and the attention.
    let per_token = used["model_flops_per_second"].as_f64().unwrap_or(0.0)
        / report["throughput"].as_f64().unwrap_or(f64::NAN);
    ensure!((per_token - per_token.round()).abs() < 1e-3 && per_token > 100_000.0, "{per_token}");
    let basis = used["basis"].as_str().unwrap_or_default();
    ensure!(basis.contains("per token") && basis.contains("as the job measured"), "{basis}");
    Ok(())
}
