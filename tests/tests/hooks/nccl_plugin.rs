//! Tests of the library in unmodified jobs of several processes with real collectives. The test double of NCCL drives
//! it as NCCL drives a profiler plugin. The tests cover every version of the interface, from the plugin's callbacks to
//! the report.

use std::path::Path;
use std::process::Command;

use anyhow::ensure;
use serde_json::Value;
use testkit::fake_gpu;
use testkit::programs::{Job, Server, bucket_sizes, gap, get_json, paceline, program, report, wait_until};
use testkit::small_disk::SmallDisk;

/// The number of steps of the job. Each has 12 ms of forward, then 11 ms of backward with three buckets.
const STEPS: &str = "150";

/// Runs the job on two ranks with the library attached. Returns the report, the sizes of a step's collectives, and the
/// output.
fn observed(interface: u32, more: &[&str]) -> anyhow::Result<(Value, Vec<u64>, String)> {
    let data = tempfile::tempdir()?;
    let data_text = data.path().to_string_lossy();
    let stand_in = program("nccl_stand_in");
    let (stand_in, interface) = (stand_in.to_string_lossy(), interface.to_string());
    let mut arguments = vec!["--attach", "-n", "2", "--data", &data_text, "--", &stand_in];
    arguments.extend(["--interface", &interface, "--steps", STEPS]);
    arguments.extend(more);
    // The launcher looks for the library next to itself, where cargo puts it.
    ensure!(program("libpaceline_attach.so").is_file());
    let (code, printed, complaints) = Job::start(&arguments)?.finish()?;
    ensure!(code == 0, "{printed}{complaints}");
    Ok((report(data.path(), "latest")?, bucket_sizes(data.path())?, printed))
}

fn millis(report: &Value, path: &str) -> f64 {
    report.pointer(path).and_then(Value::as_f64).unwrap_or(f64::NAN) / 1e6
}

/// Checks that a rank that computes 10 ms longer is named, and that the saving from fixing it is 10 ms. Collectives alone show
/// neither whether it computes or its host is late, nor what runs beside them.
fn is_late(rank: u32, report: &Value) -> anyhow::Result<()> {
    let verdict = &report["verdicts"][0];
    ensure!(verdict["culprit"]["rank"] == rank && verdict["cause"] == "unknown", "{}", report["verdicts"]);
    let cost = millis(verdict, "/cost_nanos_per_step");
    ensure!((7.0..13.0).contains(&cost), "planted 10 ms, found {cost} ms");
    let withheld = report["what_if"]["missing"].as_str().unwrap_or_default();
    ensure!(withheld.contains("nothing shows whether ranks compute"), "{}", report["what_if"]);
    ensure!(report["overlap_ratio"]["missing"] == withheld, "{}", report["overlap_ratio"]);
    Ok(())
}

#[test]
fn every_version_of_the_interface_provides_steps_and_buckets() -> anyhow::Result<()> {
    for interface in 1..=6 {
        let (report, sizes, printed) = observed(interface, &[])?;
        ensure!(printed.contains("Observing the collectives"), "not announced: {printed}");
        let steps = report["steps"].as_u64().unwrap_or_default();
        // The step is recognized after about a second.
        ensure!((60..150).contains(&steps), "interface {interface}: {steps} steps: {report}");
        let step = millis(&report, "/local_step_time_nanos/median");
        ensure!((23.0..60.0).contains(&step), "interface {interface}: a step of {step} ms");
        // Before 2.26, NCCL reports when collectives are enqueued but not when they run, so no figure depends on that.
        let buckets = report["buckets"].as_array().map_or(0, Vec::len);
        ensure!(buckets == if interface < 3 { 0 } else { 3 }, "interface {interface}: {}", report["buckets"]);
        let withheld = gap(&report, "buckets").unwrap_or_default();
        ensure!((interface < 3) == withheld.contains("not when they ran"), "{}", report["gaps"]);
        ensure!(gap(&report, "phases").is_some(), "the lack of phases is not reported: {}", report["gaps"]);
        let throughput = &report["throughput"];
        ensure!(throughput["missing"] == "the job does not count its samples", "{throughput}");
        // The forward pass lies before the first bucket. Where only enqueueing is reported, the order decides.
        let begin = if interface < 3 { [4 << 14, 4 << 16, 4 << 18] } else { [4 << 16, 4 << 18, 4 << 14] };
        ensure!(sizes == begin, "interface {interface}: {sizes:?}");
    }
    Ok(())
}

#[test]
fn a_late_rank_is_named_from_collectives_alone() -> anyhow::Result<()> {
    let (report, _, _) = observed(5, &["--slow-rank", "1"])?;
    is_late(1, &report)
}

/// Tests four ranks: neighbors reduce activations twice in forward, and all ranks reduce gradients.
#[test]
fn groups_are_distinguished_and_a_late_rank_delays_its_own_group_first() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let data_text = data.path().to_string_lossy();
    let stand_in = program("nccl_stand_in");
    let stand_in = stand_in.to_string_lossy();
    let job = ["--attach", "-n", "4", "--data", &data_text, "--", &stand_in, "--steps", STEPS];
    let (code, printed, complaints) =
        Job::start(&[&job[..], &["--pairs", "--slow-rank", "3"]].concat())?.finish()?;
    ensure!(code == 0, "{printed}{complaints}");
    let report = report(data.path(), "latest")?;
    let groups = &report["groups"];
    ensure!(groups.as_array().map(Vec::len) == Some(2), "{groups}");
    for (at, ranks, count, collectives) in [(0, 4, 1, 3.0), (1, 2, 2, 2.0)] {
        let found = &groups[at];
        ensure!(found["group"]["ranks"] == ranks && found["count"] == count, "{groups}");
        ensure!(found["cost"]["collectives"] == collectives, "{groups}");
    }
    // The late rank loses 10 ms in two halves, and its neighbor waits for each. The other pair waits at the gradients.
    let [late, other] = [0, 1].map(|at| &groups[1]["worst"][at]);
    ensure!(late["first"] == 2 && late["latest"][0] == 3, "{groups}");
    let wait = |member: &Value| millis(member, "/cost/wait_nanos");
    ensure!((3.5..7.0).contains(&wait(late)) && wait(other) < 2.0, "{groups}");
    // The waits of a pair are not counted as compute of the neighbor, so the local work of only one rank stands out.
    is_late(3, &report)?;
    let text = paceline(&["report", "latest", "--data", &data_text, "--format", "markdown"])?;
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    ensure!(text.contains("| ranks 2 to 3 |") && text.contains("| 2 ranks, 1 apart, 2 groups |"), "{text}");
    Ok(())
}

/// Returns the report of four ranks. Versions before 2.27 do not report the number of ranks of a communicator.
fn report_of_four(mode: &str, interface: &str) -> anyhow::Result<Value> {
    let data = tempfile::tempdir()?;
    let data_text = data.path().to_string_lossy();
    let stand_in = program("nccl_stand_in");
    let stand_in = stand_in.to_string_lossy();
    let job = ["--attach", "-n", "4", "--data", &data_text, "--", &stand_in, "--steps", STEPS, mode];
    let (code, printed, complaints) =
        Job::start(&[&job[..], &["--interface", interface, "--slow-rank", "2"]].concat())?.finish()?;
    ensure!(code == 0, "{printed}{complaints}");
    report(data.path(), "latest")
}

/// Tests four stages and four micro-batches: messages between neighbors in both directions, and a norm over all ranks.
#[test]
fn a_slow_pipeline_stage_is_named_from_messages_between_neighbors() -> anyhow::Result<()> {
    for interface in ["3", "6"] {
        let report = report_of_four("--pipeline", interface)?;
        let (all, neighbors) = (&report["groups"][0], &report["groups"][1]);
        ensure!(all["functions"][0] == "all_reduce", "{}", report["groups"]);
        ensure!(
            neighbors["functions"]
                .as_array()
                .is_some_and(|functions| functions.len() == 1 && functions[0] == "send_receive"),
            "{}",
            report["groups"]
        );
        ensure!(neighbors["group"]["ranks"] == 2 && neighbors["count"] == 3, "{}", report["groups"]);
        // Four micro-batches, forward and backward.
        ensure!(neighbors["cost"]["collectives"] == 8.0, "{}", report["groups"]);
        ensure!(neighbors["cost"]["bytes"] == 8.0 * 4.0 * 4096.0, "{}", report["groups"]);
        is_late(2, &report)?;
    }
    Ok(())
}

/// Tests two exchanges of each rank with all others, followed by gradients.
#[test]
fn an_exchange_with_all_ranks_is_one_all_to_all() -> anyhow::Result<()> {
    let report = report_of_four("--experts", "5")?;
    let group = &report["groups"][0];
    ensure!(report["groups"].as_array().map(Vec::len) == Some(1), "{}", report["groups"]);
    ensure!(group["cost"]["collectives"] == 5.0, "{group}");
    ensure!(
        group["functions"]
            .as_array()
            .is_some_and(|functions| functions.iter().any(|function| function == "all_to_all")),
        "{group}"
    );
    is_late(2, &report)
}

/// Runs a process with two devices, as JAX drives them, on the fake GPU's driver. With `processes`, `paceline run`
/// starts that many processes and tells each that it is one rank; otherwise there is no launcher.
fn with_two_devices(processes: Option<&str>, variables: &[(&str, &str)]) -> anyhow::Result<(Value, String)> {
    let (data, driver) = (tempfile::tempdir()?, fake_gpu::installed_as(&["libcuda.so.1"])?);
    let mut job = Command::new(program("paceline"));
    match processes {
        Some(processes) => job.args(["run", "--attach", "-n", processes]),
        None => job.arg("attach"),
    };
    let output = job
        .arg("--data")
        .arg(data.path())
        .arg("--")
        .arg(program("nccl_stand_in"))
        .args(["--steps", STEPS, "--together", "2", "--slow-rank", "1"])
        .env("LD_LIBRARY_PATH", driver.path())
        .env("FAKEGPU_REAL_TIME", "1")
        .env_remove("PACELINE_SERVER")
        .envs(variables.iter().copied())
        .output()?;
    let said =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    ensure!(output.status.success(), "{said}");
    Ok((report(data.path(), "latest")?, said))
}

#[test]
fn a_process_with_several_gpus_counts_as_several_ranks() -> anyhow::Result<()> {
    // Without a launcher, or with a launcher that sets two ranks for two processes while NCCL has four.
    for (processes, ranks) in [(None, 2), (Some("2"), 4)] {
        let (report, said) = with_two_devices(processes, &[])?;
        ensure!(report["ranks"] == ranks, "{report}{said}");
        ensure!(report["steps"].as_u64() > Some(60), "{} steps: {said}", report["steps"]);
        ensure!(report["ledger"].as_array().map(Vec::len) == Some(ranks), "{report}");
        // Four ranks on fewer cores also pay for transfers. That delay is common to all ranks and may cost more.
        let verdicts = report["verdicts"].as_array().into_iter().flatten();
        let named = verdicts.map(|verdict| &verdict["culprit"]).find(|culprit| **culprit != "all");
        ensure!(named.is_some_and(|culprit| culprit["rank"] == 1), "{}", report["verdicts"]);
    }
    Ok(())
}

#[test]
fn a_process_that_its_launcher_declares_one_rank_is_one_rank() -> anyhow::Result<()> {
    // The launcher declares two processes, and the communicator has two ranks, but both are in this process.
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
    let variables =
        [("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", &port), ("SLURM_PROCID", "0"), ("SLURM_NTASKS", "2")];
    let (report, said) = with_two_devices(None, &variables)?;
    ensure!(said.contains("only its first GPU is observed"), "{said}");
    ensure!(report["ranks"] == 2, "{report}");
    Ok(())
}

#[test]
fn a_forked_child_is_not_observed_and_ends() -> anyhow::Result<()> {
    let (report, _, printed) = observed(6, &["--fork"])?;
    ensure!(printed.contains("150 steps"), "{printed}");
    ensure!(report["steps"].as_u64() > Some(60), "{report}");
    Ok(())
}

#[test]
fn a_killed_server_does_not_affect_the_job() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let stand_in = program("nccl_stand_in");
    let stand_in = stand_in.to_string_lossy();
    let job =
        Job::start(&["--attach", "-n", "2", "--server", &server.address, "--", &stand_in, "--steps", STEPS])?;
    let steps = format!("{}/api/v1/runs", server.address);
    wait_until("the first 50 steps", || {
        get_json(&steps).ok()?[0]["last_step"].as_u64().filter(|step| *step > 50)
    })?;
    server.kill()?;
    let (code, printed, complaints) = job.finish()?;
    ensure!(code == 0, "{printed}{complaints}");
    ensure!(printed.matches("150 steps").count() == 2, "a rank did not finish its steps: {printed}");
    Ok(())
}

#[test]
fn a_server_with_a_full_disk_does_not_affect_the_job() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let Some(disk) = SmallDisk::start(data.path())? else { return Ok(()) };
    let stand_in = program("nccl_stand_in");
    let stand_in = stand_in.to_string_lossy();
    let job = Job::start(&[
        "--attach",
        "-n",
        "2",
        "--server",
        &disk.server.address,
        "--",
        &stand_in,
        "--steps",
        "500",
    ])?;
    disk.wait_until_full()?;
    let (code, printed, complaints) = job.finish()?;
    ensure!(code == 0, "{printed}{complaints}");
    ensure!(printed.matches("500 steps").count() == 2, "a rank did not finish its steps: {printed}");
    Ok(())
}

#[test]
fn the_exit_code_determines_the_state_under_any_launcher() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let job = |code: &str| {
        Command::new(program("paceline"))
            .args(["attach", "--data"])
            .arg(data.path())
            .arg("--")
            .arg(program("nccl_stand_in"))
            .args(["--steps", "100", "--exit-code", code])
            .envs([("RANK", "0"), ("WORLD_SIZE", "1")])
            .env_remove("PACELINE_SERVER")
            .output()
    };
    for (code, state) in [(0, "completed"), (3, "failed")] {
        let output = job(&code.to_string())?;
        ensure!(output.status.code() == Some(code), "{}", String::from_utf8_lossy(&output.stderr));
        let report = report(data.path(), "latest")?;
        ensure!(report["state"] == state, "{report}");
    }
    Ok(())
}

/// Tests a budget of 0: the slow rank is named from the steps that all ranks observed.
#[test]
fn an_exceeded_budget_causes_sampling_and_the_slow_rank_is_still_named() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let output = Command::new(program("paceline"))
        .args(["run", "--attach", "-n", "2", "--data"])
        .arg(data.path())
        .arg("--")
        .arg(program("nccl_stand_in"))
        .args(["--steps", "400", "--slow-rank", "1"])
        .env("PACELINE_OVERHEAD_BUDGET", "0")
        .env_remove("PACELINE_SERVER")
        .output()?;
    // The launcher prints both streams of every rank on standard output, with the rank's number.
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    ensure!(
        said.matches("from now on one step in 2 is observed in full").count() == 2,
        "not both ranks announce sampling: {said}"
    );
    let found = report(data.path(), "latest")?;
    let steps = found["steps"].as_u64().unwrap_or_default();
    let left_out = gap(&found, "steps").and_then(|said| said.split(' ').next()?.parse().ok());
    ensure!(steps >= 50 && left_out.is_some_and(|count: u64| count >= 100), "{steps}: {found:#}");
    let verdict = &found["verdicts"][0];
    ensure!(verdict["culprit"] == serde_json::json!({ "rank": 1 }), "{found:#}");
    let cost = verdict["cost_nanos_per_step"].as_f64().unwrap_or(f64::NAN) / 1e6;
    ensure!((7.0..13.0).contains(&cost), "planted 10 ms, found {cost} ms: {verdict:#}");
    Ok(())
}

#[test]
fn another_profiler_of_the_job_is_not_replaced() -> anyhow::Result<()> {
    let output = Command::new(program("paceline"))
        .args(["attach", "--data"])
        .arg(tempfile::tempdir()?.path())
        .args(["--", "printenv", "NCCL_PROFILER_PLUGIN"])
        .env("NCCL_PROFILER_PLUGIN", "/opt/other/libprofiler.so")
        .env_remove("PACELINE_SERVER")
        .output()?;
    let printed = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success() && printed.contains("\n/opt/other/libprofiler.so\n"), "{printed}");
    ensure!(printed.contains("Not observed: NCCL_PROFILER_PLUGIN is /opt/other/libprofiler.so"), "{printed}");
    Ok(())
}

#[test]
fn without_a_server_or_a_job_the_library_is_inactive() -> anyhow::Result<()> {
    let library = program("libpaceline_attach.so");
    let alone = |variables: &[(&str, &str)]| {
        // Limits the time, in case the job does not end.
        Command::new("timeout")
            .args(["-k", "5", "60"])
            .arg(program("nccl_stand_in"))
            .args(["--steps", "5"])
            .env_clear()
            .env("NCCL_PROFILER_PLUGIN", Path::new(&library))
            .envs(variables.iter().copied())
            .output()
    };
    let unobserved = alone(&[])?;
    let printed = String::from_utf8_lossy(&unobserved.stdout);
    ensure!(unobserved.status.success() && printed.contains("mask 0x0"), "{printed}");
    ensure!(unobserved.stderr.is_empty(), "{}", String::from_utf8_lossy(&unobserved.stderr));
    // A server that is not there costs the job only the time in which the last records are offered to it.
    let variables = [
        ("PACELINE_SERVER", "http://127.0.0.1:9"),
        ("PACELINE_RUN_ID", "r"),
        ("RANK", "0"),
        ("WORLD_SIZE", "1"),
    ];
    let unheard = alone(&variables)?;
    let printed = String::from_utf8_lossy(&unheard.stdout);
    ensure!(unheard.status.success() && printed.contains("5 steps"), "{printed}");
    Ok(())
}
