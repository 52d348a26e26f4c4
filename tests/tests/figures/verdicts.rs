//! Tests with real training jobs and planted trouble. The report names the rank and the cause, no other rank, and a
//! cost close to the planted one. A bench measures exact costs on a quiet machine. Here the cost may be off by half,
//! and a busy machine may cause other trouble that costs more.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use testkit::programs::{Job, Running, report};
use testkit::{crossover, fetch};

/// How much longer a step of the troubled rank takes: several times as much as its work, so that the trouble exceeds what
/// another process does to a job of four ranks on two cores.
const PLANTED_MILLIS: f64 = 90.0;
/// The number of processes that share a core with a rank.
const BUSY_PER_CORE: usize = 3;

fn train(data: &Path, steps: &str, more: &[&str]) -> anyhow::Result<Value> {
    let data_text = data.to_string_lossy();
    let mut arguments = vec!["-n", "4", "--data", &data_text, "--", "char_lm", "--steps", steps];
    arguments.extend(more);
    let (code, printed, complaints) = Job::start(&arguments)?.finish()?;
    assert_eq!(code, 0, "{printed}{complaints}");
    report(data, "latest")
}

fn check_fault(rank: u32, phase: &str) -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let (rank_text, millis) = (rank.to_string(), PLANTED_MILLIS.to_string());
    let planted = ["--slow-rank", &rank_text, "--slow-phase", phase, "--slow-ms", &millis];
    let report = train(data.path(), "90", &planted)?;
    let verdicts = report["verdicts"].as_array().into_iter().flatten();
    let against_ranks: Vec<&Value> = verdicts.filter(|verdict| verdict["culprit"] != "all").collect();
    let [found] = against_ranks[..] else { panic!("expected a verdict on one rank: {report:#}") };
    assert_eq!(found["culprit"], json!({ "rank": rank }), "{report:#}");
    assert_eq!(found["cause"], phase, "{report:#}");
    let cost = found["cost_nanos_per_step"].as_f64().unwrap_or(0.0) / 1e6;
    assert!(
        (PLANTED_MILLIS / 2.0..=PLANTED_MILLIS * 2.0).contains(&cost),
        "planted {PLANTED_MILLIS} ms, found {cost} ms: {report:#}"
    );
    check_ledger(&report);
    Ok(())
}

/// Checks that the ledger sums to the step, to the nanosecond, on every rank.
fn check_ledger(report: &Value) {
    let ledger = report["ledger"].as_array().expect("one object per rank");
    assert_eq!(ledger.len(), 4);
    for rank in ledger {
        let part = |name: &str| rank[name].as_u64().unwrap_or_else(|| panic!("{name} is missing: {rank}"));
        let parts = [
            "input_nanos",
            "h2d_nanos",
            "forward_nanos",
            "backward_nanos",
            "exposed_wait_nanos",
            "exposed_transfer_nanos",
            "optimizer_nanos",
            "other_nanos",
        ];
        assert_eq!(parts.map(part).iter().sum::<u64>(), part("step_nanos"), "{rank}");
    }
}

#[test]
fn input_trouble_on_rank_2_is_found() -> anyhow::Result<()> {
    check_fault(2, "input")
}

#[test]
fn compute_trouble_on_rank_1_is_found() -> anyhow::Result<()> {
    check_fault(1, "compute")
}

#[test]
fn host_trouble_on_rank_3_is_found() -> anyhow::Result<()> {
    check_fault(3, "host")
}

/// Each of two ranks has half of the cores, and other processes use those of one rank. Further processes on the machine
/// may cost the job more.
#[test]
fn processes_that_use_the_cores_of_a_rank_are_reported() -> anyhow::Result<()> {
    let cores = std::thread::available_parallelism()?.get();
    if cores < 2 {
        fetch::skip("processes on the cores of a rank", "two ranks need two cores");
        return Ok(());
    }
    let busy = |core: usize| -> anyhow::Result<Running> {
        let process = Running(Command::new("sh").args(["-c", "while :; do :; done"]).spawn()?);
        crossover::bind(process.0.id(), core);
        Ok(process)
    };
    let half = cores / 2;
    let cores_of_rank_1 = (half..2 * half).flat_map(|core| [core; BUSY_PER_CORE]);
    let busy = cores_of_rank_1.map(busy).collect::<anyhow::Result<Vec<_>>>()?;
    let data = tempfile::tempdir()?;
    let arguments = ["-n", "2", "--data", &data.path().to_string_lossy(), "--", "char_lm", "--steps", "150"];
    let (code, printed, complaints) = Job::start(&arguments)?.finish()?;
    drop(busy);
    assert_eq!(code, 0, "{printed}{complaints}");
    let report = report(data.path(), "latest")?;
    let found =
        ["verdicts", "notes"].into_iter().flat_map(|list| report[list].as_array().into_iter().flatten());
    let mut against_it =
        found.filter(|found| found["culprit"] == json!({ "rank": 1 }) && found["cause"] == "host");
    let verdict = against_it.next().unwrap_or_else(|| panic!("rank 1 has no host verdict: {report:#}"));
    let sentence = verdict["sentence"].as_str().unwrap_or_default();
    assert!(sentence.contains("to other processes on its cores"), "{verdict:#}");
    let evidence = verdict["evidence"].as_array().into_iter().flatten().filter_map(Value::as_str);
    assert_eq!(evidence.filter(|line| line.starts_with("its cores (")).count(), 1, "{verdict:#}");
    Ok(())
}

#[test]
fn a_healthy_job_has_no_verdict_on_a_rank_and_little_other_time() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let report = train(data.path(), "180", &[])?;
    let verdicts = report["verdicts"].as_array().expect("the verdicts are a list");
    assert!(verdicts.iter().all(|verdict| verdict["culprit"].get("rank").is_none()), "{report:#}");
    check_ledger(&report);
    for rank in report["ledger"].as_array().expect("one object per rank") {
        let share = rank["other_nanos"].as_f64().unwrap_or(1.0) / rank["step_nanos"].as_f64().unwrap_or(1.0);
        assert!(share < 0.1, "other is {share} of the step: {report:#}");
    }
    assert_eq!(report["ranks"], 4);
    assert!(report["overlap_ratio"].as_f64().is_some_and(|ratio| ratio > 0.0), "{report:#}");
    assert!(report["scaling_efficiency"]["implied"].as_f64().is_some_and(|ratio| ratio > 0.0));
    Ok(())
}
