//! Traces that PyTorch's profiler wrote, imported by the command line. The traces are of a simulated job.

use std::io::Write as _;
use std::path::Path;

use anyhow::ensure;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use testkit::kineto::{RANGE, Traced};
use testkit::pipeline::Pipelined;
use testkit::programs::{Server, get_json, paceline, report, said, wait_until};

/// A job of four ranks and three steps, of which rank 2 sleeps 40 ms twice in each.
const JOB: Traced = Traced { ranks: 4, steps: 3, kernels: 1, sleeps: Some((2, 40_000)) };

/// Writes the traces of a job into a folder, compressed, and named so that their order is not that of the ranks.
fn write(job: Traced, folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)?;
    for (rank, trace) in job.traces().into_iter().enumerate() {
        let name = format!("host_{}.{}.pt.trace.json.gz", 90 - rank, 1_000 + rank);
        let mut packed = GzEncoder::new(std::fs::File::create(folder.join(name))?, Compression::fast());
        packed.write_all(trace.as_bytes())?;
        packed.finish()?;
    }
    Ok(())
}

/// Imports a folder into a data directory, and returns what the command says and the report.
fn import(folder: &Path, data: &Path) -> anyhow::Result<(String, Value)> {
    let output = paceline(&["import", &folder.to_string_lossy(), "--data", &data.to_string_lossy()])?;
    let (out, err) = said(&output);
    ensure!(output.status.success(), "{out}\n{err}");
    Ok((out, report(data, "latest")?))
}

#[test]
fn the_sleeping_rank_of_a_traced_job_is_named() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (traces, data) = (folder.path().join("traces"), folder.path().join("data"));
    write(JOB, &traces)?;
    let (out, report) = import(&traces, &data)?;
    ensure!(out.contains("Imported 4 of 4 ranks\n"), "{out}");
    ensure!(out.contains("rank 2     steps 4 to 6, 24 kernels and copies, 12 collectives  host_88"), "{out}");
    let verdict = &report["verdicts"][0];
    ensure!(verdict["culprit"]["rank"] == 2 && verdict["cause"] == "host", "{verdict:#}");
    let cost = verdict["cost_nanos_per_step"].as_f64().unwrap_or(0.0);
    ensure!((cost - 80e6).abs() < 1e6, "{cost} ns instead of 80 ms");
    ensure!(report["step_range"] == json!([4, 6]), "{}", report["step_range"]);
    ensure!(report["goodput"]["missing"].is_string() && report["name"] == "traces", "{report:#}");
    // The clocks are 3 s apart, and the all-reduces align them to their own length.
    let bounds =
        report["clocks"].as_array().into_iter().flatten().filter_map(|clock| clock["bound_nanos"].as_f64());
    let worst = bounds.fold(0.0, f64::max);
    ensure!(worst < 1e6, "{worst} ns");
    Ok(())
}

#[test]
fn an_export_of_an_import_is_imported_with_the_same_figures() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let [traces, data, exported, again] =
        ["traces", "data", "exported", "again"].map(|name| folder.path().join(name));
    write(JOB, &traces)?;
    let (_, first) = import(&traces, &data)?;
    let (data, output) = (data.to_string_lossy(), exported.to_string_lossy());
    let steps = ["--format", "chrome", "--steps", "4..6", "-o", &output, "--data", &data];
    let said_by_export = said(&paceline(&[&["export", "latest"], &steps[..]].concat())?);
    ensure!(said_by_export.0.contains("4 files"), "{said_by_export:?}");
    let (out, second) = import(&exported, &again)?;
    ensure!(out.contains("Imported 4 of 4 ranks\n") && second["step_range"] == first["step_range"], "{out}");
    for same in ["/verdicts/0/culprit", "/verdicts/0/cause", "/buckets/0/function", "/buckets/3/bytes"] {
        ensure!(
            first.pointer(same).is_some() && first.pointer(same) == second.pointer(same),
            "{same}: {out}"
        );
    }
    // Times of the export are whole microseconds, and a step has a dozen.
    let figures = ["/step_time_nanos/mean", "/verdicts/0/cost_nanos_per_step"];
    let parts = ["backward", "exposed_wait", "exposed_transfer", "idle", "other"];
    let ledger_paths = |rank: usize| parts.map(|part| format!("/ledger/{rank}/{part}_nanos"));
    for figure in figures.map(str::to_owned).into_iter().chain((0..4).flat_map(ledger_paths)) {
        let number = |report: &Value| report.pointer(&figure).and_then(Value::as_f64);
        let (before, after) = (number(&first), number(&second));
        let differ = before.zip(after).map(|(before, after)| (before - after).abs());
        ensure!(differ.is_some_and(|nanos| nanos < 3.0 * 12e3), "{figure}: {before:?}, then {after:?}");
    }
    Ok(())
}

#[test]
fn no_rank_is_blamed_while_one_has_no_file() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (traces, data) = (folder.path().join("traces"), folder.path().join("data"));
    write(JOB, &traces)?;
    std::fs::remove_file(traces.join("host_88.1002.pt.trace.json.gz"))?;
    let (out, report) = import(&traces, &data)?;
    ensure!(out.contains("Imported 3 of 4 ranks: the others have no file"), "{out}");
    ensure!(report["steps"] == 3 && report["verdicts"] == json!([]), "{report:#}");
    ensure!(report["overlap_ratio"].is_number(), "{report:#}");
    // The rank has no figures, and none of the others' counts it as 0.
    let ledger = report["ledger"].as_array().map(Vec::as_slice).unwrap_or_default();
    ensure!(ledger.iter().map(|rank| rank["rank"].clone()).collect::<Vec<_>>() == [0, 1, 3], "{ledger:#?}");
    let residual = report.pointer("/loss_ledger/residual").and_then(Value::as_f64).unwrap_or(1.0);
    ensure!(residual.abs() < 0.02, "{residual}");
    let gap = testkit::programs::gap(&report, "ranks").unwrap_or_default();
    ensure!(gap.starts_with("1 of 4 ranks have no file"), "{gap}");
    let missing = report.pointer("/comm_model/missing").and_then(Value::as_str).unwrap_or_default();
    ensure!(missing.starts_with("some ranks have no file"), "{missing}");
    let verdicts = report["verdicts_missing"].as_str().unwrap_or_default();
    ensure!(verdicts.ends_with("no recorded collective shows which of its ranks was last"), "{verdicts}");
    Ok(())
}

#[test]
fn a_healthy_job_has_no_verdict() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (traces, data) = (folder.path().join("traces"), folder.path().join("data"));
    write(Traced { sleeps: None, ..JOB }, &traces)?;
    let (_, report) = import(&traces, &data)?;
    ensure!(report["verdicts"] == json!([]), "{report:#}");
    let missing = report["verdicts_missing"].as_str().unwrap_or_default();
    ensure!(missing.contains("collectives of 3 recorded steps, no rank is late"), "{missing}");
    Ok(())
}

#[test]
fn damaged_and_foreign_files_are_said() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (traces, data) = (folder.path().join("traces"), folder.path().join("data"));
    std::fs::create_dir(&traces)?;
    let texts = JOB.traces();
    std::fs::write(traces.join("rank-0.json"), &texts[0])?;
    std::fs::write(traces.join("rank-1.json.tmp"), &texts[1][..texts[1].len() * 9 / 10])?;
    std::fs::write(traces.join("notes.json"), "{\"a\": 1}")?;
    let (out, _) = import(&traces, &data)?;
    ensure!(out.contains("Skipped notes.json: it has no list of events (traceEvents)"), "{out}");
    ensure!(out.contains("the file ends early, at byte"), "{out}");
    ensure!(out.contains("Imported 2 of 4 ranks: the others have no file"), "{out}");
    let none = paceline(&["import", &traces.join("notes.json").to_string_lossy()])?;
    ensure!(!none.status.success() && said(&none).1.contains("the file cannot be imported"));
    let absent = paceline(&["import", &traces.join("*.parquet").to_string_lossy()])?;
    ensure!(said(&absent).1.contains("there is no file"), "{}", said(&absent).1);
    Ok(())
}

#[test]
fn figures_of_another_tool_are_printed_and_nothing_is_stored() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (traces, data) = (folder.path().join("traces"), folder.path().join("data"));
    write(Traced { ranks: 2, sleeps: None, ..JOB }, &traces)?;
    std::fs::write(traces.join("notes.json"), "{\"a\": 1}")?;
    let [from, to] = [&traces, &data].map(|path| path.to_string_lossy());
    let (out, _) = said(&paceline(&["import", &from, "--like", "hta", "--data", &to])?);
    let row = out.lines().find(|line| line.ends_with("host_90.1000.pt.trace.json.gz")).unwrap_or_default();
    let cells: Vec<&str> = row.split_whitespace().collect();
    // Nothing hides the all-reduces. Of three steps, the last one does not count: eight times 5 ms and more of compute.
    ensure!(cells.first() == Some(&"0") && cells.get(1) == Some(&"0") && cells.get(2) == Some(&"%"), "{out}");
    ensure!(row.contains("40.") && out.contains("notes.json is left out: it has no list of events"), "{out}");
    let (out, _) = said(&paceline(&["import", &from, "--like", "hta", "--json", "--data", &to])?);
    let rows: Vec<serde_json::Value> = serde_json::from_str(&out)?;
    let row = |file: &str| rows.iter().find(|row| row["file"] == file).cloned().unwrap_or_default();
    let first = row("host_90.1000.pt.trace.json.gz");
    ensure!(first["overlap_ratio"] == 0.0 && first["compute_nanos"].as_u64() > Some(40_000_000), "{out}");
    let missing = row("notes.json")["missing"].as_str().unwrap_or_default().to_owned();
    ensure!(missing.starts_with("it has no list of events"), "{out}");
    ensure!(!data.exists(), "{} exists", data.display());
    Ok(())
}

#[test]
fn an_import_goes_to_the_server_that_uses_the_data() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (traces, data) = (folder.path().join("traces"), folder.path().join("data"));
    write(JOB, &traces)?;
    let server = Server::start(&data)?;
    let data = data.to_string_lossy();
    let output = paceline(&["import", &traces.to_string_lossy(), "--data", &data, "--name", "resnet"])?;
    let (out, err) = said(&output);
    ensure!(output.status.success() && out.contains("Stored by the server"), "{out}\n{err}");
    // The list of runs follows the newest records within half a second.
    wait_until("the imported run with its verdict", || {
        let runs = get_json(&format!("{}/api/v1/runs", server.address)).ok()?;
        let run = &runs[0];
        let is_it = run["name"] == "resnet" && run["imported"] == true && run["state"] == "completed";
        (is_it && run["worst"]["culprit"]["rank"] == 2).then_some(())
    })?;
    Ok(())
}

/// Dumps of a gloo job of four ranks, in which rank 2 did not issue the fourth all-reduce.
const DUMPS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../import/tests/dumps");

#[test]
fn dumps_of_a_hang_name_the_rank_that_is_behind_and_blame_no_one_for_time() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (out, report) = import(Path::new(DUMPS), &folder.path().join("data"))?;
    ensure!(out.contains("one rank is behind: rank 2 has issued 3 and none after it"), "{out}");
    ensure!(out.contains("rank 3     step 2, 4 collectives  nccl_trace_rank_3"), "{out}");
    ensure!(report["verdicts"] == json!([]), "{report:#}");
    let missing = report["verdicts_missing"].as_str().unwrap_or_default();
    ensure!(missing.contains("when collectives were enqueued and not when they ran"), "{missing}");
    ensure!(report["overlap_ratio"]["missing"].is_string(), "{report:#}");
    Ok(())
}

/// What takes the late rank longer is in the report, in the comparison of ranks, and as evidence; a run without it differs by that.
#[test]
fn what_ran_is_known_by_name() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let [slow, healthy, data] = ["slow", "healthy", "data"].map(|name| folder.path().join(name));
    write(JOB, &slow)?;
    write(Traced { sleeps: None, kernels: 2, ..JOB }, &healthy)?;
    let (_, report) = import(&slow, &data)?;
    let evidence = report["verdicts"][0]["evidence"][0].as_str().unwrap_or_default();
    ensure!(
        evidence == format!("`{RANGE}` takes 80.0 ms longer per step than on rank 0 (trace from step 4 on)"),
        "{evidence}"
    );
    let rows = report["traced"]["rows"].as_array().map(Vec::as_slice).unwrap_or_default();
    let row = |name: &str| rows.iter().find(|row| row["name"] == name);
    let gemm = row("gemm").map(|row| (row["kind"].clone(), row["calls"].clone()));
    // Of 4 ranks in 3 steps, 4 each.
    ensure!(gemm == Some(("kernel".into(), 48.into())), "{rows:#?}");
    ensure!(row(RANGE).is_some_and(|row| row["kind"] == "range"), "{rows:#?}");

    let baseline = report["run"].as_str().unwrap_or_default().to_owned();
    import(&healthy, &data)?;
    let data_text = data.to_string_lossy().into_owned();
    let (compared, _) = said(&paceline(&["compare", &baseline, "latest", "--data", &data_text])?);
    // One of 4 ranks slept for 80 ms.
    ensure!(compared.lines().any(|line| line.contains(RANGE) && line.contains("−20.0 ms")), "{compared}");

    let server = Server::start(&data)?;
    let at = format!("http://{}/api/v1/runs/{baseline}/traced", server.listen());
    let found = get_json(&format!("{at}?rank=2"))?;
    let longest = &found[0]["summary"]["rows"][0];
    ensure!(found[0]["rank"] == 2 && longest["name"] == RANGE, "{found:#}");
    let compared = get_json(&format!("{at}/comparison?rank=2&against=1"))?;
    let first = &compared["rows"][0];
    ensure!(first["name"] == RANGE && first["own_calls"] == 4.0, "{compared:#}");
    ensure!(get_json(&format!("{at}?rank=9")).is_err(), "a rank that is not there has a summary");
    Ok(())
}

/// Returns a timeline of Horovod: 4 ranks, 30 steps, 3 tensors. Rank 2 is 40 ms late for the second tensor.
fn horovod_timeline() -> String {
    let mut events = vec![
        json!({"ph": "M", "name": "process_name", "pid": 0, "args": {"start_time_since_epoch_in_micros": 1_700_000_000_000_000_i64}}),
    ];
    for step in 0..30_u64 {
        for tensor in 1..=3_u64 {
            let at = 400_000 * step + 60_000 * tensor;
            let ready = |rank: u64| {
                at + 2_000 * ((rank + step + tensor) % 4) + if (rank, tensor) == (2, 2) { 40_000 } else { 0 }
            };
            let mut ranks: Vec<u64> = (0..4).collect();
            ranks.sort_by_key(|&rank| ready(rank));
            let (first, end) = (ready(ranks[0]), ready(ranks[3]) + 20);
            let mut add = |ph: &str, name: &str, ts: u64| {
                events.push(json!({"ph": ph, "name": name, "ts": ts, "pid": tensor}));
            };
            add("B", "NEGOTIATE_ALLREDUCE", first);
            ranks.iter().for_each(|&rank| add("X", &rank.to_string(), ready(rank)));
            add("E", "", end);
            add("B", "ALLREDUCE", end + 10);
            add("E", "", end + 2_000);
        }
    }
    Value::from(events).to_string()
}

/// Horovod says who is late, and not what ranks do meanwhile: the rank is named, and no cost.
#[test]
fn a_late_rank_of_unknown_cost_is_said_and_not_accused() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (timeline, data) = (folder.path().join("timeline.json"), folder.path().join("data"));
    std::fs::write(&timeline, horovod_timeline())?;
    let (out, report) = import(&timeline, &data)?;
    ensure!(out.contains("Imported 4 of 4 ranks") && report["verdicts"] == json!([]), "{out}");
    let missing = report["verdicts_missing"].as_str().unwrap_or_default();
    ensure!(
        missing.starts_with("rank 2 is the last to start in ")
            && missing.contains("what that costs is not known"),
        "{missing}"
    );
    let phases = testkit::programs::gap(&report, "phases").unwrap_or_default();
    ensure!(phases.starts_with("the files hold only collectives"), "{phases}");
    Ok(())
}

/// Imports the table of a simulated job with pipeline stages, and returns the report.
fn pipelined(job: Pipelined<'_>) -> anyhow::Result<Value> {
    let folder = tempfile::tempdir()?;
    let (table, data) = (folder.path().join("trace-job.parquet"), folder.path().join("data"));
    std::fs::write(&table, job.table()?)?;
    Ok(import(&table, &data)?.1)
}

/// What faults of a pipeline cost is what the same job takes less without them.
#[test]
fn a_slow_rank_and_a_slow_stage_of_a_pipeline_are_named_with_their_cost() -> anyhow::Result<()> {
    let even = Pipelined { stages: 4, data_parallel: 3, steps: 24, slow: &[] };
    let report = pipelined(even)?;
    ensure!(report["verdicts"] == json!([]), "{:#}", report["verdicts"]);
    let slow_stage = [(3, 0, 1.6), (3, 1, 1.6), (3, 2, 1.6)];
    for (slow, culprit) in
        [(&[(1, 2, 2.0)][..], json!({"rank": 5})), (&slow_stage, json!({"ranks": [9, 10, 11]}))]
    {
        let job = Pipelined { slow, ..even };
        let report = pipelined(job)?;
        let verdict = &report["verdicts"][0];
        ensure!(verdict["culprit"] == culprit && verdict["cause"] == "compute", "{verdict:#}");
        let doubts = verdict["counter_evidence"].to_string();
        ensure!(doubts.contains("as a pipeline stage does") == (slow.len() > 1), "{doubts}");
        let (cost, truth) = (
            verdict["cost_nanos_per_step"].as_f64().unwrap_or(0.0) / 1e9,
            job.seconds_per_step() - even.seconds_per_step(),
        );
        ensure!((cost / truth - 1.0).abs() < 0.1, "{culprit}: {cost} s per step instead of {truth} s");
    }
    Ok(())
}
