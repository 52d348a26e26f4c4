//! The library in foreign jobs, driven as NCCL drives a profiler plugin, in jobs of several processes whose collectives
//! are real: every version of the interface, from the plugin's callbacks to the report.

use std::path::Path;
use std::process::Command;

use anyhow::ensure;
use paceline_tests::fake_gpu;
use paceline_tests::programs::{Job, Server, bucket_sizes, get_json, paceline, program, report, wait_until};
use paceline_tests::small_disk::SmallDisk;
use serde_json::Value;

/// Steps of the stand-in: 12 ms of forward, then 11 ms of backward with three buckets.
const STEPS: &str = "150";

/// Runs the stand-in on two ranks with the library attached; its report, the sizes of a step's collectives, and what it
/// printed.
fn observed(interface: u32, more: &[&str]) -> anyhow::Result<(Value, Vec<u64>, String)> {
    let data = tempfile::tempdir()?;
    let data_text = data.path().to_string_lossy();
    let stand_in = program("nccl_stand_in");
    let (stand_in, interface) = (stand_in.to_string_lossy(), interface.to_string());
    let mut arguments = vec!["--attach", "-n", "2", "--data", &data_text, "--", &stand_in];
    arguments.extend(["--interface", &interface, "--steps", STEPS]);
    arguments.extend(more);
    // The launcher looks for the library beside itself, where cargo puts it.
    ensure!(program("libpaceline_agent.so").is_file());
    let (code, printed, complaints) = Job::start(&arguments)?.finish()?;
    ensure!(code == 0, "{printed}{complaints}");
    Ok((report(data.path(), "latest")?, bucket_sizes(data.path())?, printed))
}

fn millis(report: &Value, path: &str) -> f64 {
    report.pointer(path).and_then(Value::as_f64).unwrap_or(f64::NAN) / 1e6
}

/// This rank computes 10 ms longer, and a fix saves that.
fn is_late(rank: u32, report: &Value) -> anyhow::Result<()> {
    let verdict = &report["verdicts"][0];
    ensure!(verdict["culprit"]["rank"] == rank && verdict["cause"] == "compute", "{}", report["verdicts"]);
    let cost = millis(verdict, "/cost_nanos_per_step");
    ensure!((7.0..13.0).contains(&cost), "10 ms were planted, found {cost}");
    let error = report["what_if"]["simulation_error"].as_f64().unwrap_or(f64::NAN);
    ensure!(error < 0.05, "a step can be replayed: {}", report["what_if"]);
    Ok(())
}

#[test]
fn every_version_of_the_interface_gives_steps_and_buckets() -> anyhow::Result<()> {
    for interface in 1..=6 {
        let (report, sizes, printed) = observed(interface, &[])?;
        ensure!(printed.contains("Observing the collectives"), "it says what it will observe: {printed}");
        let steps = report["steps"].as_u64().unwrap_or_default();
        // A second passes before it is sure of what a step is.
        ensure!((60..150).contains(&steps), "interface {interface}: {steps} steps: {report}");
        let step = millis(&report, "/local_step_time_nanos/median");
        ensure!((23.0..60.0).contains(&step), "interface {interface}: a step of {step} ms");
        // Before 2.26 NCCL says when collectives are enqueued and nothing of when they run: no figure rests on that.
        let buckets = report["buckets"].as_array().map_or(0, Vec::len);
        ensure!(buckets == if interface < 3 { 0 } else { 3 }, "interface {interface}: {}", report["buckets"]);
        let withheld = report["missing"]["buckets"].as_str().unwrap_or_default();
        ensure!((interface < 3) == withheld.contains("not when they ran"), "{}", report["missing"]);
        ensure!(
            report["missing"]["phases"].is_string(),
            "what NCCL cannot tell is said: {}",
            report["missing"]
        );
        let no_samples = &report["missing"]["throughput"];
        ensure!(
            report["throughput"].is_null() && no_samples == "the job does not count its samples",
            "{no_samples}"
        );
        ensure!(sizes == [4 << 16, 4 << 18, 4 << 14], "interface {interface}: {sizes:?}");
    }
    Ok(())
}

#[test]
fn a_rank_that_is_late_is_named_by_the_collectives_alone() -> anyhow::Result<()> {
    let (report, _, _) = observed(5, &["--slow-rank", "1"])?;
    is_late(1, &report)
}

/// Four ranks: neighbours reduce activations twice in forward, all reduce gradients.
#[test]
fn groups_are_told_apart_and_a_late_rank_holds_up_its_own_first() -> anyhow::Result<()> {
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
    // 10 ms in two halves, each of which its neighbour waits for; the other pair waits with the gradients.
    let [late, other] = [0, 1].map(|at| &groups[1]["worst"][at]);
    ensure!(late["first"] == 2 && late["latest"][0] == 3, "{groups}");
    let wait = |member: &Value| millis(member, "/cost/wait_nanos");
    ensure!((3.5..7.0).contains(&wait(late)) && wait(other) < 2.0, "{groups}");
    // A pair's waits are no compute of its neighbour's: what is left of each rank's own time names one rank.
    is_late(3, &report)?;
    let text = paceline(&["report", "latest", "--data", &data_text, "--format", "markdown"])?;
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    ensure!(text.contains("| ranks 2 to 3 |") && text.contains("| 2 ranks, 1 apart, 2 groups |"), "{text}");
    Ok(())
}

/// The report of four ranks of the stand-in; versions before 2.27 do not say how many ranks a communicator has.
fn of_four(mode: &str, interface: &str) -> anyhow::Result<Value> {
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

/// Four stages and four micro-batches: sends between neighbours, both ways, and a norm among all.
#[test]
fn a_pipelines_slow_stage_is_named_by_what_neighbours_send_each_other() -> anyhow::Result<()> {
    for interface in ["3", "6"] {
        let report = of_four("--pipeline", interface)?;
        let (all, neighbours) = (&report["groups"][0], &report["groups"][1]);
        ensure!(all["functions"][0] == "all_reduce", "{}", report["groups"]);
        ensure!(
            neighbours["functions"].as_array().is_some_and(|of| of.len() == 1 && of[0] == "send_receive"),
            "{}",
            report["groups"]
        );
        ensure!(neighbours["group"]["ranks"] == 2 && neighbours["count"] == 3, "{}", report["groups"]);
        // Four micro-batches, forward and back.
        ensure!(neighbours["cost"]["collectives"] == 8.0, "{}", report["groups"]);
        ensure!(neighbours["cost"]["bytes"] == 8.0 * 4.0 * 4096.0, "{}", report["groups"]);
        is_late(2, &report)?;
    }
    Ok(())
}

/// Two exchanges of each rank with all others, then gradients.
#[test]
fn experts_exchange_with_all_others_at_once() -> anyhow::Result<()> {
    let report = of_four("--experts", "5")?;
    let group = &report["groups"][0];
    ensure!(report["groups"].as_array().map(Vec::len) == Some(1), "{}", report["groups"]);
    ensure!(group["cost"]["collectives"] == 5.0, "{group}");
    ensure!(
        group["functions"].as_array().is_some_and(|of| of.iter().any(|one| one == "all_to_all")),
        "{group}"
    );
    is_late(2, &report)
}

/// A process with two devices, as JAX drives them; the driver is the stand-in. `launched` by `paceline run`, which
/// says that each process is one rank, or by itself.
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
fn a_process_that_drives_several_gpus_is_as_many_ranks() -> anyhow::Result<()> {
    // No launcher says anything; or one says of two processes that they are two ranks, and NCCL knows of four.
    for (processes, ranks) in [(None, 2), (Some("2"), 4)] {
        let (report, said) = with_two_devices(processes, &[])?;
        ensure!(report["ranks"] == ranks, "{report}{said}");
        ensure!(report["steps"].as_u64() > Some(60), "{} steps: {said}", report["steps"]);
        ensure!(report["ledger"].as_array().map(Vec::len) == Some(ranks), "{report}");
        // Four ranks on fewer cores also pay for transfers, all alike, and that may cost more.
        let verdicts = report["verdicts"].as_array().into_iter().flatten();
        let named = verdicts.map(|verdict| &verdict["culprit"]).find(|culprit| **culprit != "all");
        ensure!(named.is_some_and(|culprit| culprit["rank"] == 1), "{}", report["verdicts"]);
    }
    Ok(())
}

#[test]
fn a_process_that_is_one_rank_by_its_launcher_stays_one() -> anyhow::Result<()> {
    // It says that there are two processes, as there are two ranks in the communicator: both are here.
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
fn a_server_that_dies_costs_the_job_nothing() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let stand_in = program("nccl_stand_in");
    let stand_in = stand_in.to_string_lossy();
    let job =
        Job::start(&["--attach", "-n", "2", "--server", &server.address, "--", &stand_in, "--steps", STEPS])?;
    let steps = format!("{}/api/v1/runs", server.address);
    wait_until("steps to be known", || {
        get_json(&steps).ok()?[0]["last_step"].as_u64().filter(|step| *step > 50)
    })?;
    server.kill()?;
    let (code, printed, complaints) = job.finish()?;
    ensure!(code == 0, "{printed}{complaints}");
    ensure!(printed.matches("150 steps").count() == 2, "both ranks did all of their work: {printed}");
    Ok(())
}

#[test]
fn a_server_whose_disk_is_full_to_the_end_costs_the_job_nothing() -> anyhow::Result<()> {
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
    ensure!(printed.matches("500 steps").count() == 2, "both ranks did all of their work: {printed}");
    Ok(())
}

#[test]
fn a_job_that_ends_badly_has_failed_whoever_started_its_ranks() -> anyhow::Result<()> {
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

/// However low the budget is, the rank that is slow is named, from steps that all ranks observed.
#[test]
fn what_costs_more_than_it_may_is_sampled_and_the_slow_rank_is_named_all_the_same() -> anyhow::Result<()> {
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
    // What ranks say on either stream is printed with their number before it.
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    ensure!(
        said.matches("from now on one step in 2 is observed in full").count() == 2,
        "both ranks say it: {said}"
    );
    let found = report(data.path(), "latest")?;
    let steps = found["steps"].as_u64().unwrap_or_default();
    let left_out = found["missing"]["steps"].as_str().and_then(|said| said.split(' ').next()?.parse().ok());
    ensure!(steps >= 50 && left_out.is_some_and(|count: u64| count >= 100), "{steps}: {found:#}");
    let verdict = &found["verdicts"][0];
    ensure!(verdict["culprit"] == serde_json::json!({ "rank": 1 }), "{found:#}");
    let cost = verdict["cost_nanos_per_step"].as_f64().unwrap_or(f64::NAN) / 1e6;
    ensure!((7.0..13.0).contains(&cost), "10 ms were planted, {cost} found: {verdict:#}");
    Ok(())
}

#[test]
fn a_job_with_another_profiler_keeps_it() -> anyhow::Result<()> {
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
fn without_a_server_and_without_a_job_the_library_is_inert() -> anyhow::Result<()> {
    let library = program("libpaceline_agent.so");
    let alone = |variables: &[(&str, &str)]| {
        // Ended where it does not come to its end by itself.
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
    // A server that is not there costs the job nothing but the time that the last records are offered it.
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
