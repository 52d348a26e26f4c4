//! Tests of the shipped rules and dashboard. They use only metrics that `/metrics` has, and their unit tests pass. With
//! the real Prometheus and Alertmanager, the straggler of a real job reaches a webhook, and a healthy job raises no
//! alert.

#![allow(clippy::print_stdout, reason = "measured times are shown with --nocapture")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use paceline::metrics::Metrics;
use serde_json::Value;
use testkit::monitoring::{Monitoring, is_installed, shipped};
use testkit::programs::{Job, Server, wait_until};

/// The number of steps, enough for a verdict and an alert even on a busy machine.
const STEPS: &str = "400";
const WITHIN: Duration = Duration::from_secs(90);

fn promtool(folder: &Path, arguments: &[&str]) {
    let output = Command::new("promtool").current_dir(folder).args(arguments).output();
    let output = output.expect("promtool is installed");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "promtool {arguments:?}:\n{}", String::from_utf8_lossy(&said));
}

#[test]
fn rules_are_valid_and_their_unit_tests_pass() {
    if !is_installed() {
        return;
    }
    promtool(&shipped(), &["check", "rules", "recording.yml", "alerts.yml"]);
    promtool(&shipped(), &["test", "rules", "recording_test.yml", "alerts_test.yml"]);
    promtool(&shipped(), &["check", "config", "--syntax-only", "prometheus.yml"]);
}

fn read(name: &str) -> String {
    fs::read_to_string(shipped().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Returns the text after `key` of every line that starts with it.
fn values<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    text.lines().filter_map(|line| line.trim().strip_prefix(key)).map(str::trim).collect()
}

#[test]
fn every_alert_has_a_severity_texts_tests_of_both_kinds_and_a_runbook_section() {
    let (alerts, tests, runbook) = (read("alerts.yml"), read("alerts_test.yml"), read("RUNBOOK.md"));
    let names = values(&alerts, "- alert:");
    assert!(names.len() >= 8, "{names:?}");
    let sections: BTreeSet<&str> = values(&runbook, "## ").into_iter().collect();
    assert_eq!(sections, names.iter().copied().collect(), "the runbook has one section per alert");
    for (name, body) in names.iter().zip(alerts.split("- alert:").skip(1)) {
        for wanted in ["severity:", "summary:", "description:", "$labels."] {
            assert!(body.contains(wanted), "{name} has no {wanted}");
        }
        let url = format!("/deploy/prometheus/RUNBOOK.md#{}", name.to_lowercase());
        assert!(values(body, "runbook_url:")[0].ends_with(&url), "{name} does not link to {url}");
        let cases = tests.split("alertname: ").skip(1).filter(|case| case.lines().next() == Some(name));
        let (fires, quiet): (Vec<&str>, Vec<&str>) = cases.partition(|case| case.contains("exp_labels"));
        assert!(!fires.is_empty() && !quiet.is_empty(), "{name}: {} and {}", fires.len(), quiet.len());
    }
}

/// Returns the names of Paceline's metrics in any text.
fn metrics_in(text: &str) -> BTreeSet<&str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    text.split(|c| !is_part(c)).filter(|word| word.starts_with("paceline_")).collect()
}

/// Returns the names of all series that a scrape may have. A histogram has three families of series.
fn exported() -> BTreeSet<String> {
    let names = Metrics::new().names().to_vec();
    let parts = ["", "_bucket", "_sum", "_count"];
    names.iter().flat_map(|name| parts.map(|part| format!("{name}{part}"))).collect()
}

#[test]
fn rules_tests_and_runbook_use_only_metrics_that_exist() {
    let exported = exported();
    for name in ["recording.yml", "alerts.yml", "alerts_test.yml", "recording_test.yml", "RUNBOOK.md"] {
        let text = read(name);
        let unknown: Vec<&str> = metrics_in(&text).into_iter().filter(|&n| !exported.contains(n)).collect();
        assert!(unknown.is_empty(), "{name} uses unknown metrics: {unknown:?}");
    }
    assert!(!exported.contains("paceline_no_such_metric"));
}

fn dashboard() -> Value {
    let path = shipped().with_file_name("grafana").join("paceline.json");
    serde_json::from_str(&fs::read_to_string(path).expect("the file is readable")).expect("the file is JSON")
}

/// Returns the panels of the dashboard that show data.
fn panels(dashboard: &Value) -> Vec<&Value> {
    let panels = dashboard["panels"].as_array().expect("the dashboard has panels");
    panels.iter().filter(|panel| panel["type"] != "row").collect()
}

fn queries(panel: &Value) -> Vec<&str> {
    let targets = panel["targets"].as_array().expect("a panel has targets");
    targets.iter().map(|target| target["expr"].as_str().expect("a target has an expr")).collect()
}

#[test]
fn the_dashboard_has_units_fits_a_grid_and_uses_only_metrics_that_exist() {
    let (dashboard, exported) = (dashboard(), exported());
    let variables = dashboard["templating"]["list"].as_array().expect("the dashboard has variables");
    let names: Vec<&Value> = variables.iter().map(|variable| &variable["name"]).collect();
    assert_eq!(names, ["datasource", "run"]);
    let mut cells = BTreeSet::new();
    for panel in panels(&dashboard) {
        let title = panel["title"].as_str().expect("a panel has a title");
        assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{title} has no unit");
        assert!(
            panel["description"].as_str().is_some_and(|text| !text.is_empty()),
            "{title} has no description"
        );
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
        for query in queries(panel) {
            let unknown: Vec<&str> =
                metrics_in(query).into_iter().filter(|&name| !exported.contains(name)).collect();
            assert!(unknown.is_empty(), "{title} uses unknown metrics: {unknown:?}");
            assert!(query.contains("$run") || query.contains("paceline_server_"), "{title} shows all runs");
        }
        let grid = |key: &str| panel["gridPos"][key].as_u64().expect("the panel has a position");
        for (row, column) in (0..grid("h")).flat_map(|row| (0..grid("w")).map(move |column| (row, column))) {
            assert!(cells.insert((grid("y") + row, grid("x") + column)), "{title} overlaps another panel");
        }
        assert!(grid("x") + grid("w") <= 24, "{title} is too wide");
    }
}

#[test]
fn every_query_of_the_dashboard_parses() {
    if !is_installed() {
        return;
    }
    let dashboard = dashboard();
    let queries: Vec<&str> = panels(&dashboard).into_iter().flat_map(queries).collect();
    assert!(queries.len() > 20);
    let rule = |(at, query): (usize, &&str)| {
        let query = query.replace("$__rate_interval", "1m").replace("$run", ".+");
        format!("      - record: query:{at}\n        expr: {}\n", serde_json::json!(query))
    };
    let rules: String = queries.iter().enumerate().map(rule).collect();
    let folder = tempfile::tempdir().expect("a folder can be created");
    fs::write(folder.path().join("rules.yml"), format!("groups:\n  - name: dashboard\n    rules:\n{rules}"))
        .expect("the file can be written");
    promtool(folder.path(), &["check", "rules", "rules.yml"]);
}

fn job(server: &Server, more: &[&str]) -> anyhow::Result<Job> {
    let start = ["-n", "2", "--server", &server.address, "--", "char_lm", "--steps", STEPS];
    Job::start(&[&start, more].concat())
}

#[test]
fn an_alert_names_the_straggler_and_is_resolved_when_the_job_ends() -> anyhow::Result<()> {
    if !is_installed() {
        return Ok(());
    }
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let monitoring = Monitoring::start(server.listen())?;
    let began = Instant::now();
    let job = job(&server, &["--slow-rank", "1", "--slow-phase", "input", "--slow-ms", "30"])?;
    let is_it = |status: &'static str| {
        move |message: &testkit::monitoring::Message| {
            let name = message.label("alertname");
            matches!(name, "PacelineStraggler" | "PacelineStragglerSevere")
                && message.alert["status"] == status
        }
    };
    let alert = monitoring.wait_for("straggler", WITHIN, is_it("firing"))?;
    let seconds = alert.at.duration_since(began).as_secs_f64();
    println!("from the job's start to the webhook: {seconds:.1} s");
    assert_eq!((alert.label("rank"), alert.label("cause")), ("1", "input"), "{alert:?}");
    assert!(alert.label("run").starts_with("char_lm-"), "{alert:?}");
    let summary = alert.alert["annotations"]["summary"].as_str().unwrap_or_default();
    assert!(summary.contains("Rank 1 of char_lm-"), "{summary}");
    assert!(monitoring.received().iter().all(|other| other.label("rank") != "0"), "rank 0 is named, too");

    let (code, printed, complaints) = job.finish()?;
    assert_eq!(code, 0, "{printed}{complaints}");
    monitoring.wait_for("end of the alert", WITHIN, is_it("resolved"))?;
    let expression = r#"ALERTS{alertname=~"Paceline.*"}"#;
    wait_until("all alerts of the run to end", || monitoring.query(expression).ok().filter(Vec::is_empty))?;
    the_end_is_scraped(&monitoring)
}

/// Waits until Prometheus has scraped the state of the only run, which has completed.
fn the_end_is_scraped(monitoring: &Monitoring) -> anyhow::Result<()> {
    let completed = r#"paceline_run_state{state="completed"} == 1"#;
    wait_until("the end of the run to be scraped", || {
        monitoring.query(completed).ok().filter(|runs| runs.len() == 1)
    })
    .map(drop)
}

#[test]
fn a_severe_straggler_raises_an_alert_with_the_shipped_files() -> anyhow::Result<()> {
    if !is_installed() {
        return Ok(());
    }
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let monitoring = Monitoring::start_as_shipped(server.listen())?;
    let began = Instant::now();
    let start = ["-n", "2", "--server", &server.address, "--", "char_lm", "--steps", "100000"];
    let _job = Job::start(
        &[&start[..], &["--slow-rank", "1", "--slow-phase", "input", "--slow-ms", "30"]].concat(),
    )?;
    let alert = monitoring
        .wait_for("straggler", WITHIN, |message| message.label("alertname") == "PacelineStragglerSevere")?;
    let seconds = alert.at.duration_since(began).as_secs_f64();
    println!("as shipped, from the job's start to the webhook: {seconds:.1} s");
    assert_eq!((alert.label("rank"), alert.label("cause")), ("1", "input"), "{alert:?}");
    Ok(())
}

#[test]
fn a_healthy_job_is_scraped_and_raises_no_alert() -> anyhow::Result<()> {
    if !is_installed() {
        return Ok(());
    }
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let monitoring = Monitoring::start(server.listen())?;
    let (code, printed, complaints) = job(&server, &[])?.finish()?;
    assert_eq!(code, 0, "{printed}{complaints}");
    the_end_is_scraped(&monitoring)?;
    let scrapes = monitoring.query("count_over_time(paceline_scaling_efficiency_ratio[10m]) >= 3")?;
    assert!(!scrapes.is_empty(), "the job was not scraped");
    // The gauges of a run that has ended are gone.
    let goodput = monitoring.query("max_over_time(paceline_goodput_ratio[10m]) > 0 < 1")?;
    assert_eq!(goodput.len(), 1, "{goodput:#?}");
    let launch =
        monitoring.query(r#"max_over_time(paceline_badput_seconds_total{kind="launch"}[10m]) > 0"#)?;
    assert_eq!(launch.len(), 1, "the time before the first batch is not in the metrics: {launch:#?}");
    let fired = monitoring.query(r#"count_over_time(ALERTS{alertstate="firing"}[10m])"#)?;
    assert!(fired.is_empty(), "{fired:#?}\n{printed}");
    assert!(monitoring.received().is_empty(), "a healthy job raised an alert");
    Ok(())
}
