//! Tests that steps that are no longer in memory can be opened, and that verdicts offer only steps that can be opened.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, ensure};
use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use paceline::clock::ServerClock;
use paceline::http::{App, router};
use paceline::state::collection::{Collection, Restored};
use paceline::state::run::Run;
use paceline::store::directory::Layout;
use serde_json::Value;
use testkit::app::{app, post};
use testkit::feed::Feed;
use testkit::programs::{Server, get_json, wait_until};
use testkit::simulator::{Fault, FaultKind, Plan, Simulation};
use tower::ServiceExt as _;
use wire::ids::{RunId, Step};
use wire::live::{StepRanks, Waterfall};

/// A server without a socket that has ingested a run, and has the records of only the newest step in memory.
struct Stage {
    app: App,
    router: Router,
    run: RunId,
    data: tempfile::TempDir,
}

impl Stage {
    async fn new(simulation: &Simulation) -> anyhow::Result<Self> {
        let data = tempfile::tempdir()?;
        let first = &simulation.batches[0].batch;
        let (run, now) = (first.run.clone(), ServerClock::start().now());
        let mut runs = Collection::default();
        runs.add(Restored::new(Run::new(run.clone(), first.world_size, now).keeping(1), now));
        let app = app(data.path(), runs, Some(Layout::new(data.path())))?;
        let stage = Self { router: router(app.clone()), app, run, data };
        for received in &simulation.batches {
            let request = post(wire::codec::encode(&received.batch)?);
            ensure!(stage.router.clone().oneshot(request).await?.status() == StatusCode::OK);
        }
        Ok(stage)
    }

    /// Requests a view of the run and returns the answer.
    async fn get(&self, view: &str) -> anyhow::Result<(StatusCode, Vec<u8>)> {
        let uri = format!("/api/v1/runs/{}{view}", self.run);
        let request = Request::get(uri).header("host", "localhost").body(Body::empty())?;
        let answer = self.router.clone().oneshot(request).await?;
        let status = answer.status();
        Ok((status, answer.into_body().collect().await?.to_bytes().to_vec()))
    }

    async fn waterfall(&self, step: u64) -> anyhow::Result<(StatusCode, Vec<u8>)> {
        self.get(&format!("/steps/{step}/waterfall")).await
    }

    /// Returns the example steps of the report as of step `at`.
    async fn examples(&self, at: u64) -> anyhow::Result<Vec<u64>> {
        let (_, report) = self.get(&format!("?at={at}")).await?;
        let report: Value = serde_json::from_slice(&report)?;
        ensure!(report["verdicts"].get(0).is_some(), "no verdict at step {at}: {report:#}");
        Ok(examples(&report))
    }

    /// Seals the log of the run. Returns the path of a file of the segment.
    fn seal(&self, file: &str) -> anyhow::Result<std::path::PathBuf> {
        self.app.log.close(self.run.clone());
        let folder = Layout::new(self.data.path()).folder(&self.run);
        wait_until("the log to be sealed", || folder.logs().ok()?.is_empty().then_some(()))?;
        Ok(folder.segment(1).join(file))
    }
}

fn plan(ranks: usize, steps: u64, slow: usize) -> Plan {
    let fault = Fault { rank: slow, kind: FaultKind::Input, nanos: 12_000_000, from: 20, to: steps };
    Plan { ranks, steps, faults: vec![fault], ..Plan::small(steps) }
}

fn flip_in_the_middle(path: &Path) -> anyhow::Result<()> {
    let mut bytes = std::fs::read(path)?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    Ok(std::fs::write(path, bytes)?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_step_looks_the_same_from_disk_and_from_memory() -> anyhow::Result<()> {
    let simulation = Simulation::run(&plan(4, 120, 2));
    // The complete run fits into the default memory of a run.
    let known = simulation.received();
    let stage = Stage::new(&simulation).await?;
    let offered = stage.examples(119).await?;
    ensure!(!offered.is_empty());
    for step in (0..120).chain(offered) {
        let (status, shown) = stage.waterfall(step).await?;
        let expected = known.waterfall(Some(Step(step))).context("the step is not in memory")?.encode();
        ensure!(status == StatusCode::OK && shown == expected, "step {step}: {status}");
    }
    stage.seal("steps.parquet")?;
    for step in 0..120 {
        let (status, shown) = stage.waterfall(step).await?;
        let expected = known.waterfall(Some(Step(step))).context("the step is not in memory")?.encode();
        ensure!(status == StatusCode::OK && shown == expected, "step {step}, sealed: {status}");
        let (status, ranks) = stage.get(&format!("/steps/{step}/ranks")).await?;
        ensure!(status == StatusCode::OK && StepRanks::decode(&ranks)?.rank_nanos.len() == 4);
    }
    let (_, csv) = stage.get("/export?format=csv&steps=7..118").await?;
    let rows = String::from_utf8(csv)?;
    let exported: BTreeSet<u64> =
        rows.lines().skip(1).filter_map(|row| row.split(',').next()?.parse().ok()).collect();
    ensure!(exported == (7..119).collect(), "the export has steps {exported:?}");
    let (status, answer) = stage.waterfall(120).await?;
    ensure!(status == StatusCode::NOT_FOUND, "{status}");
    let answer = String::from_utf8(answer)?;
    ensure!(answer.contains("has not arrived: the newest is 119"), "{answer}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_with_damaged_records_is_named_and_not_offered_again() -> anyhow::Result<()> {
    let stage = Stage::new(&Simulation::run(&plan(4, 120, 2))).await?;
    let path = stage.seal("spans.parquet")?;
    ensure!(!stage.examples(70).await?.is_empty());
    flip_in_the_middle(&path)?;
    // A step that was not requested before.
    let (status, answer) = stage.waterfall(33).await?;
    let answer = String::from_utf8(answer)?;
    ensure!(status == StatusCode::NOT_FOUND, "{status}");
    let is_told = answer.contains("the records of step 33 are damaged on disk")
        && answer.contains("segment-000001/spans.parquet: it does not match its checksum");
    ensure!(is_told, "{answer}");
    // Steps in that file are no longer offered as examples, but steps in memory may be.
    for at in (60..120).step_by(7) {
        for step in stage.examples(at).await? {
            ensure!(stage.waterfall(step).await?.0 == StatusCode::OK, "step {step} is offered at step {at}");
        }
    }
    Ok(())
}

fn waterfall(server: &Server, run: &str, step: u64) -> anyhow::Result<Waterfall> {
    let url = format!("{}/api/v1/runs/{run}/steps/{step}/waterfall", server.address);
    let mut answer = ureq::get(url).call().with_context(|| format!("step {step}"))?;
    let bytes = answer.body_mut().with_config().limit(1 << 30).read_to_vec()?;
    let waterfall = Waterfall::decode(&bytes)?;
    ensure!(waterfall.is_consistent() && waterfall.step == step, "step {step}: {}", waterfall.step);
    Ok(waterfall)
}

/// Returns the example steps of all verdicts and notes.
fn examples(report: &Value) -> Vec<u64> {
    let found = ["verdicts", "notes"].iter().filter_map(|list| report[list].as_array()).flatten();
    found.filter_map(|verdict| verdict["example_step"].as_u64()).collect()
}

fn finished_report(server: &Server, run: &str) -> anyhow::Result<Value> {
    wait_until("the run to complete and have verdicts", || {
        let report = get_json(&format!("{}/api/v1/runs/{run}", server.address)).ok()?;
        (report["state"] == "completed" && !examples(&report).is_empty()).then_some(report)
    })
}

/// The test uses 120 steps of 1,024 ranks, which take 210 MB in memory: half as much again as the limit of a run.
#[test]
fn example_steps_of_1024_ranks_open_before_and_after_a_kill_of_the_server() -> anyhow::Result<()> {
    const OLD: u64 = 25;
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let plan = Plan { ranks_per_host: 8, buckets: 12, tick: 1_000_000_000, ..plan(1_024, 120, 613) };
    let mut feed = Feed::new(Simulation::run(&plan));
    feed.send_all_but(0, &server.address)?;
    let report = finished_report(&server, &feed.run)?;
    let mut steps = examples(&report);
    steps.extend([OLD, 119]);
    let open = |server: &Server| -> anyhow::Result<Vec<Waterfall>> {
        steps.iter().map(|&step| waterfall(server, &feed.run, step)).collect()
    };
    let before = open(&server)?;
    for shown in &before {
        ensure!((shown.rank.len(), shown.bucket.len()) == (1_024, 1_024 * 12), "step {}", shown.step);
    }
    server.kill()?;
    let server = Server::start(data.path())?;
    let again = finished_report(&server, &feed.run)?;
    ensure!(!examples(&again).is_empty(), "{:#}", again["verdicts"]);
    for step in examples(&again) {
        ensure!(waterfall(&server, &feed.run, step)?.rank.len() == 1_024);
    }
    let after = open(&server)?;
    for (before, after) in before.iter().zip(&after) {
        let same = before.rank == after.rank
            && before.bucket_seq == after.bucket_seq
            && before.bucket_bytes == after.bucket_bytes
            && (before.span_nanos - after.span_nanos).abs() < 0.01 * before.span_nanos;
        ensure!(same, "step {}", before.step);
    }
    Ok(())
}
