//! Tests of the program and the scripts that check a machine with a GPU: without a GPU they say so, and on the fake GPU
//! every check runs. The figures of the fake GPU are meaningless.

use std::path::Path;
use std::process::Command;

use anyhow::ensure;
use testkit::programs::{judged, program};
use testkit::{fetch, nvidia};

/// The file that exists while the kernel module is loaded. (If root uses NVIDIA's libraries, they create /dev/nvidiactl
/// themselves.)
const MODULE: &str = "/proc/driver/nvidia/version";

#[test]
fn without_a_gpu_the_script_skips_and_prints_the_reason() -> anyhow::Result<()> {
    if Path::new(MODULE).exists() {
        fetch::skip("the script without a GPU", "this machine has one");
        return Ok(());
    }
    let results = tempfile::tempdir()?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("gpu").join("accept.sh");
    let accept = program("accept");
    let output = Command::new(script)
        .arg(results.path())
        .env("PACELINE_PROGRAMS", accept.parent().expect("the program has a folder"))
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.code() == Some(77), "{:?}: {said}", output.status);
    ensure!(said.starts_with("SKIP all checks: ") && said.contains("driver"), "{said}");
    ensure!(std::fs::read_dir(results.path())?.next().is_none(), "results were written without measuring");
    Ok(())
}

#[test]
fn the_judging_programs_accept_and_reject_their_input() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let write = |name: &str, text: &str| -> anyhow::Result<String> {
        let path = folder.path().join(name);
        std::fs::write(&path, text)?;
        Ok(path.to_string_lossy().into_owned())
    };
    let rows = |loss: f64| (0..30).map(|step| format!("{step},{loss}\n")).collect::<String>();
    let cpu = write("cpu.csv", &format!("step,loss\n{}", rows(2.0)))?;
    let near = write("near.csv", &format!("step,loss\n{}", rows(2.03)))?;
    let losses = |found: &str, most: &str| judged("losses.py", &[&cpu, found, most]);
    assert_eq!(losses(&near, "0.02")?, "PASS loss 2.0300, 2.0000 on the CPU; they may differ by 2%\n");
    assert!(losses(&near, "0.01")?.starts_with("FAIL "));
    assert_eq!(losses("/nowhere/nccl.csv", "0.02")?, "FAIL nccl.csv missing or empty\n");

    let group = r#"{"cost": {"collectives": 9.0}}"#;
    let bucket = r#"{"function": "send_receive"}"#;
    let report = |messages: usize| {
        let buckets = vec![bucket; messages].join(",");
        let ledger = r#"{"forward_nanos": 3e8, "backward_nanos": 6e8, "optimizer_nanos": 15e6}"#;
        format!(r#"{{"steps": 150, "groups": [{group}], "buckets": [{buckets}], "ledger": [{ledger}]}}"#)
    };
    let [four, three] = [write("four.json", &report(4))?, write("three.json", &report(3))?];
    assert!(judged("messages.py", &[&four])?.starts_with("PASS 150 steps of 9 "));
    assert!(judged("messages.py", &[&three])?.starts_with("FAIL "));
    let observed =
        "150 steps, 4 buckets; per step and rank forward 2.000 ms, backward 4.000 ms, optimizer 0.100 ms\n";
    assert_eq!(judged("observed.py", &[&four])?, format!("PASS {observed}"));
    assert!(
        judged("observed.py", &[&write("none.json", &report(4).replace("3e8", "0"))?])?.starts_with("FAIL ")
    );

    let verdicts = [
        r#"{"culprit": "all", "cause": "network", "sentence": "All."}"#,
        r#"{"culprit": {"rank": 1}, "cause": "input", "sentence": "Rank 1.", "code": {"at": "job.py:2 (get)"}}"#,
    ];
    let verdict = write("verdict.json", &format!(r#"{{"verdicts": [{}]}}"#, verdicts.join(",")))?;
    let culprit = |cause: &str, function: &str| judged("culprit.py", &[&verdict, "1", cause, function]);
    let sentences = "All. (no place in the code); Rank 1. (job.py:2 (get))\n";
    assert_eq!(culprit("input", "get")?, format!("PASS {sentences}"));
    assert_eq!(culprit("compute", "get")?, format!("FAIL {sentences}"));
    assert_eq!(culprit("input", "put")?, format!("FAIL {sentences}"));

    let job = write("job.py", "begin\nsleep()  # planted\n")?;
    let spent = r#"{"forward_nanos": 5000000, "backward_nanos": 0}"#;
    let framework = |phase: &str, steps: u32| {
        let verdicts = verdicts.join(",");
        let text = format!(r#"{{"steps": {steps}, "ledger": [{spent}, {spent}], "verdicts": [{verdicts}]}}"#);
        judged("framework.py", &[&write("framework.json", &text)?, &job, "10", phase])
    };
    assert!(framework("forward", 5)?.starts_with("PASS "), "{}", framework("forward", 5)?);
    for fails in [framework("backward", 5)?, framework("forward", 4)?] {
        assert!(fails.starts_with("FAIL "), "{fails}");
    }

    let printed =
        "1000000 parameters in 5 tensors\n  500 tokens/s\n 9000 tokens/s\n10000 tokens/s\n11000 tokens/s\n";
    let printed = write("printed.txt", printed)?;
    // 10,000 tokens of 6 MFLOP, and 12 * 10 * 10 * 10 FLOP for the attention.
    let used = |mfu: &str| {
        write(&format!("{}.json", mfu.len()), &format!(r#"{{"flops_utilization": {{"model": {mfu}}}}}"#))
    };
    let throughput =
        |printed: &str, mfu: &str| judged("throughput.py", &[printed, &used(mfu)?, "10", "10", "10", "1"]);
    let expected =
        "PASS 1 M parameters, 10000 tokens/s, 0.1 TFLOP/s, MFU 6.01% of 1 TFLOP/s; the report's 6.10%\n";
    assert_eq!(throughput(&printed, "0.061")?, expected);
    assert!(throughput(&printed, "0.065")?.starts_with("FAIL "));
    assert!(throughput(&printed, r#"{"missing": "NoFlops"}"#)?.starts_with("FAIL "));
    assert!(throughput(&four, "0.061")?.starts_with("FAIL "));

    // One collective per rank, which our clock places 5 us later than the profiler does.
    let row = |rank: u32| format!("{rank},1000005000,1000105500,30000\n");
    let names = "rank,start_unix_ns,end_unix_ns,clock_error_bound_ns\n";
    let rows = write("rows.csv", &format!("{names}{0}{0}{1}{1}", row(0), row(1)))?;
    let kernel =
        |name: &str, ts: u32| format!(r#"{{"cat": "kernel", "name": "{name}", "ts": {ts}, "dur": 100}}"#);
    let trace = |ts: u32| {
        let kernels =
            [kernel("ncclDevKernel_AllReduce", ts), kernel("gemm", 5), kernel("ncclDevKernel_AllReduce", ts)];
        format!(r#"{{"baseTimeNanoseconds": 999000000, "traceEvents": [{}]}}"#, kernels.join(","))
    };
    let stamps = |ts: u32| -> anyhow::Result<String> {
        write("0.json", &trace(ts))?;
        write("1.json", &trace(ts))?;
        judged("stamps.py", &[&rows, &folder.path().to_string_lossy()])
    };
    let found = stamps(1_000)?;
    assert!(found.starts_with("PASS 4 all-reduces") && found.contains("length +0.5 us"), "{found}");
    assert!(stamps(900)?.starts_with("FAIL 4 all-reduces"), "outside the error bound");

    let overhead = |times: &[&str]| judged("overhead.py", times);
    assert!(overhead(&["1", "1.003", "1"])?.starts_with("PASS +0.300% per step"));
    assert!(overhead(&["1", "1.02", "1", "1.02", "1"])?.starts_with("FAIL "));
    assert!(overhead(&["1", "1.06", "1.04"])?.starts_with("SKIP "), "the noise is as large as the overhead");
    assert!(overhead(&["1", "1", "none"])?.starts_with("FAIL a run reported no time"));
    Ok(())
}

#[test]
fn a_driver_without_a_device_is_a_different_reason() -> anyhow::Result<()> {
    let Some(driver) = nvidia::driver()? else { return Ok(()) };
    if Path::new(MODULE).exists() {
        fetch::skip("the driver without a device", "this machine has one");
        return Ok(());
    }
    let output = Command::new(program("accept")).env("LD_LIBRARY_PATH", driver).output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.code() == Some(77), "{:?}: {said}", output.status);
    ensure!(said.starts_with("SKIP all checks: the driver's library is installed but finds no"), "{said}");
    Ok(())
}

#[test]
fn every_check_runs_on_the_fake_gpu() -> anyhow::Result<()> {
    let results = tempfile::tempdir()?;
    let output =
        Command::new(program("accept")).arg("--fake").env("PACELINE_BENCH_OUT", results.path()).output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
    // The fake GPU uses processor time of this machine, so this test does not check overheads.
    let checks = [
        "events",
        "event costs",
        "staged, one rank",
        "overlap",
        "phases of kernels",
        "staged, two ranks on one GPU",
        "NCCL, one rank",
    ];
    for check in checks {
        ensure!(said.contains(&format!("PASS {check}: ")), "{check}:\n{said}{complaints}");
    }
    ensure!(said.contains(" overhead: a step of "), "{said}{complaints}");
    Ok(())
}

/// Judges the same compressed trace on two ranks.
fn traced(trace: &[u8]) -> anyhow::Result<String> {
    let folder = tempfile::tempdir()?;
    for rank in 0..2 {
        std::fs::write(folder.path().join(format!("rank-{rank}.trace.json.gz")), trace)?;
    }
    judged("traced.py", &[&folder.path().to_string_lossy(), "4"])
}

#[test]
fn a_trace_without_the_kernels_of_its_steps_is_rejected() -> anyhow::Result<()> {
    // Recorded on an H200. It ended before the device ran the steps.
    let found = traced(include_bytes!("../../../benches/results/2026-11-27-accept-torch-trace.json.gz"))?;
    ensure!(found.starts_with("FAIL rank 0: 32 kernels, 0 of them of NCCL, ProfilerStep#125, "), "{found}");

    // Recorded on an H200 once a trace went on until its last step had run.
    let found = traced(include_bytes!(
        "../../../benches/results/2026-11-27-accept-torch-trace-with-kernels.json.gz"
    ))?;
    ensure!(found.starts_with("PASS rank 0: 172 kernels, 8 of them of NCCL, ProfilerStep#128, "), "{found}");
    Ok(())
}
