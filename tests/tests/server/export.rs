//! Tests of exports as other programs read them. HolisticTraceAnalysis finds the same overlap as the report, tables
//! agree with the analysis, steps that are no longer in memory are exported, and invalid requests are refused with a
//! sentence.

#![allow(clippy::print_stdout, reason = "compared figures are shown with --nocapture")]

use std::collections::BTreeMap;
use std::path::Path;

use paceline::state::restore;
use paceline::state::run::Run;
use paceline::store::directory::Layout;
use testkit::holistic;
use testkit::programs::{Job, Server, paceline, wait_until};
use testkit::simulator::{FaultKind, Plan, Simulation};
use testkit::stored::store;
use wire::ids::{RunId, Step};

/// Runs `paceline export` and returns its output.
pub fn export(data: &Path, run: &str, more: &[&str]) -> anyhow::Result<String> {
    let data = data.to_string_lossy();
    let output = paceline(&[&["export", run, "--data", &data], more].concat())?;
    anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// Runs `paceline export`, which must fail, and returns its error.
pub fn refused(data: &Path, run: &str, more: &[&str]) -> String {
    export(data, run, more).expect_err("the export must be refused").to_string()
}

/// Returns the hidden share of each rank's collectives over the recorded steps, from the analysis.
fn overlaps(run: &Run, steps: (u64, u64)) -> BTreeMap<u32, f64> {
    let mut sums: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    let analyzed = run.steps().newest(usize::MAX);
    for step in analyzed.iter().filter(|step| (steps.0..=steps.1).contains(&step.step.0)) {
        for (rank, analysis) in step.present() {
            let sum = sums.entry(rank as u32).or_default();
            *sum = (sum.0 + analysis.hidden_nanos, sum.1 + analysis.comm_nanos);
        }
    }
    sums.into_iter().map(|(rank, (hidden, comm))| (rank, hidden as f64 / comm as f64)).collect()
}

/// Checks that HTA's figure of every rank agrees with ours to a tenth of a percentage point.
fn check_overlap(data: &Path, id: &RunId, steps: (u64, u64)) -> anyhow::Result<()> {
    let run = restore::run(&Layout::new(data), id)?.expect("the run was stored");
    let ours = overlaps(&run, steps);
    let traces = data.join("traces");
    let range = format!("{}..{}", steps.0, steps.1);
    let format = ["--format", "chrome", "--steps", &range, "-o", &traces.to_string_lossy()];
    let said = export(data, id.as_str(), &format)?;
    assert!(said.contains("HolisticTraceAnalysis"), "{said}");
    let theirs = holistic::overlaps(&traces)?;
    println!("{id}: overlap by rank, ours {ours:.5?}, HTA {theirs:.5?}");
    assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>());
    for (rank, ours) in &ours {
        let error = (ours - theirs[rank]).abs();
        assert!(error <= 0.001, "{id} rank {rank}: ours {ours}, HTA {}", theirs[rank]);
    }
    // A rank that is last in every bucket may hide all communication. If all ranks did, the comparison would mean
    // nothing.
    assert!(ours.values().any(|ours| (0.01..=0.99).contains(ours)), "{id}: {ours:?} are trivial");
    Ok(())
}

#[test]
fn holistic_trace_analysis_finds_the_same_overlap_on_every_rank() -> anyhow::Result<()> {
    if !holistic::is_installed()? {
        return Ok(());
    }
    let data = tempfile::tempdir()?;
    let plan = Plan { jitter: 0.05, ..Plan::small(7).with_fault(2, FaultKind::Input, 10_000_000) };
    let simulation = Simulation::run(&plan);
    store(data.path(), &simulation.batches)?;
    check_overlap(data.path(), &simulation.batches[0].batch.run, (2, 99))?;

    let data = tempfile::tempdir()?;
    let data_text = data.path().to_string_lossy();
    let job = Job::start(&["-n", "2", "--data", &data_text, "--", "char_lm", "--steps", "80"])?;
    let (code, printed, complaints) = job.finish()?;
    assert_eq!(code, 0, "{printed}{complaints}");
    let id = Layout::new(data.path()).runs()?.pop().expect("one run");
    check_overlap(data.path(), &id, (2, 79))
}

/// Returns the columns with these names of a CSV table.
fn columns(path: &Path, names: &[&str]) -> anyhow::Result<Vec<Vec<i64>>> {
    let text = std::fs::read_to_string(path)?;
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    let at: Vec<usize> =
        names.iter().map(|name| header.iter().position(|n| n == name).expect("the column exists")).collect();
    let row = |line: &str| {
        let values: Vec<&str> = line.split(',').collect();
        at.iter().map(|&at| Ok(values[at].parse()?)).collect()
    };
    lines.map(row).collect()
}

#[test]
fn the_sums_of_a_table_agree_with_the_analysis() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let simulation = Simulation::run(&Plan::small(3));
    store(data.path(), &simulation.batches)?;
    let path = data.path().join("buckets.csv");
    let path_text = path.to_string_lossy();
    export(data.path(), "latest", &["--format", "csv", "--steps", "10..19", "-o", &path_text])?;
    let names = ["step", "rank", "start_unix_ns", "end_unix_ns", "transfer_ns", "hidden_ns", "exposed_ns"];
    let rows = columns(&path, &names)?;
    assert_eq!(rows.len(), 10 * 4 * 4, "the table does not have ten steps of four ranks and four buckets");
    let run = simulation.received();
    for (rank, ours) in overlaps(&run, (10, 19)) {
        let rank_rows = || rows.iter().filter(|row| row[1] == i64::from(rank));
        let (hidden, whole): (i64, i64) =
            rank_rows().fold((0, 0), |sum, row| (sum.0 + row[5], sum.1 + row[3] - row[2]));
        assert!((hidden as f64 / whole as f64 - ours).abs() < 1e-6, "rank {rank}");
    }
    for row in &rows {
        let (duration, parts) = (row[3] - row[2], row[5] + row[6]);
        // Clock drift changes an aligned duration by parts per million.
        assert!((duration - parts).abs() <= 2 + duration / 10_000 && row[4] <= duration + 2, "{row:?}");
    }
    Ok(())
}

#[test]
fn steps_that_left_memory_are_exported_from_disk() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let plan = Plan { ranks: 8, ranks_per_host: 8, steps: 6_000, buckets: 40, ..Plan::small(1) };
    let simulation = Simulation::run(&plan);
    assert!(
        simulation.received().placed_steps(Step(0), Step(4), usize::MAX, None).placed.is_empty(),
        "the run is too small to leave memory"
    );
    store(data.path(), &simulation.batches)?;
    let path = data.path().join("old.csv");
    let path_text = path.to_string_lossy();
    export(data.path(), "latest", &["--format", "csv", "--steps", "0..4", "-o", &path_text])?;
    let rows = columns(&path, &["step", "rank"])?;
    assert_eq!(rows.len(), 5 * 8 * 40);
    assert_eq!((&rows[0][..], &rows[rows.len() - 1][..]), (&[0, 0][..], &[4, 7][..]));
    Ok(())
}

#[test]
fn the_file_name_determines_compression_and_a_refusal_leaves_no_file() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    store(data.path(), &Simulation::run(&Plan::small(4)).batches)?;
    let at = |name: &str| data.path().join(name);
    let text = |name: &str| at(name).to_string_lossy().into_owned();
    for (format, name) in [("chrome", "all.json"), ("chrome", "all.json.gz"), ("csv", "rows.csv.gz")] {
        export(data.path(), "latest", &["--format", format, "-o", &text(name)])?;
    }
    let trace: serde_json::Value = serde_json::from_slice(&std::fs::read(at("all.json"))?)?;
    assert_eq!(trace["deviceProperties"].as_array().map(Vec::len), Some(4));
    for name in ["all.json.gz", "rows.csv.gz"] {
        assert_eq!(std::fs::read(at(name))?[..2], [0x1f, 0x8b], "{name} is not compressed");
    }
    let none = text("none");
    assert!(refused(data.path(), "latest", &["--steps", "900..999", "-o", &none]).contains("newest is 99"));
    assert!(refused(data.path(), "latest", &["--steps", "9..3", "-o", &none]).contains("write A..B"));
    assert!(refused(data.path(), "latest", &["--rank", "4", "-o", &none]).contains("its ranks are 0 to 3"));
    assert!(refused(data.path(), "unknown", &["-o", &none]).contains("there is no run \"unknown\""));
    let said = refused(data.path(), "latest", &["--format", "pdf", "-o", &none]);
    assert!(["perfetto", "chrome", "parquet", "csv"].iter().all(|format| said.contains(format)), "{said}");
    assert!(!at("none").exists());
    Ok(())
}

#[test]
fn a_report_is_written_in_every_format_and_read_back_from_json() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let plan = Plan::small(6).with_fault(2, FaultKind::Input, 10_000_000);
    store(data.path(), &Simulation::run(&plan).batches)?;
    let data_text = data.path().to_string_lossy();
    let report = |run: &str, format: &str| -> anyhow::Result<String> {
        let output = paceline(&["report", run, "--format", format, "--data", &data_text])?;
        anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    };
    let text = report("latest", "text")?;
    assert!(text.contains("Rank 2 waits for its input"), "{text}");
    let html = data.path().join("report.html");
    let json = data.path().join("report.json");
    for (format, path) in [("html", &html), ("json", &json)] {
        let path = path.to_string_lossy();
        let output = paceline(&["report", "--format", format, "-o", &path, "--data", &data_text])?;
        assert!(output.status.success() && output.stdout.is_empty(), "{format}");
    }
    assert_eq!(std::fs::read_to_string(&html)?, report("latest", "html")?);
    assert_eq!(report(&json.to_string_lossy(), "text")?, text, "a stored report differs");
    assert!(report("latest", "markdown")?.starts_with("# simulated (simulated-6)"));
    let alias = paceline(&["report", "--json", "--data", &data_text])?;
    assert_eq!(String::from_utf8(alias.stdout)?, report("latest", "json")?);
    Ok(())
}

#[test]
fn the_api_exports_the_same_rows_and_refuses_with_a_sentence() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let simulation = Simulation::run(&Plan::small(5));
    let id = &simulation.batches[0].batch.run;
    store(data.path(), &simulation.batches)?;
    let path = data.path().join("rows.csv");
    let csv = ["--format", "csv", "--steps", "10..19", "-o", &path.to_string_lossy()];
    export(data.path(), id.as_str(), &csv)?;
    let server = Server::start(data.path())?;
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let get = |run: &str, query: &str| -> anyhow::Result<(u16, String)> {
        let url = format!("{}/api/v1/runs/{run}/export?{query}", server.address);
        let mut answer = agent.get(url).call()?;
        Ok((
            answer.status().as_u16(),
            String::from_utf8_lossy(&answer.body_mut().read_to_vec()?).into_owned(),
        ))
    };
    // A new server knows its runs after a moment.
    let (status, text) = wait_until("the run to be known", || {
        get(id.as_str(), "format=csv&steps=10..19").ok().filter(|(_, text)| !text.contains("there is no run"))
    })?;
    assert_eq!(status, 200, "{text}");
    // The clocks are known more precisely by now, so absolute times differ, but the rows are the same.
    let keys = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.split(',').take(5).collect::<Vec<_>>().join(",")).collect()
    };
    assert_eq!(keys(&text), keys(&std::fs::read_to_string(&path)?));
    for (query, length) in
        [("", 10_000), ("format=parquet", 1_000), ("format=chrome&rank=2&steps=3..3", 1_000)]
    {
        let (status, body) = get(id.as_str(), query)?;
        assert!(status == 200 && body.len() > length, "{query}: {status}, {} bytes", body.len());
    }
    for (run, query, status, words) in [
        (id.as_str(), "format=pdf", 400, "use perfetto, chrome, parquet or csv"),
        (id.as_str(), "steps=9..3", 400, "write A..B"),
        (id.as_str(), "steps=0..9999", 413, "at most 5000"),
        (id.as_str(), "steps=500..600", 404, "its newest is 99"),
        (id.as_str(), "rank=4", 404, "no rank 4"),
        ("unknown", "", 404, "there is no run"),
    ] {
        let (got, body) = get(run, query)?;
        assert!(got == status && body.contains(words), "{run} {query}: {got} {body}");
    }
    Ok(())
}
