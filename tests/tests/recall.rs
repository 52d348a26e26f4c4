//! A step that has left memory opens all the same, and no verdict offers one that does not.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, ensure};
use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use paceline::clock::ServerClock;
use paceline::http::{App, router};
use paceline::state::collection::{Collection, Replayed};
use paceline::state::run::Run;
use paceline::store::directory::Layout;
use paceline_tests::app::app;
use paceline_tests::feed::Feed;
use paceline_tests::programs::{Server, get_json, wait_until};
use paceline_tests::simulator::{Fault, FaultKind, Plan, Simulation};
use serde_json::Value;
use tower::ServiceExt as _;
use wire::ids::{RunId, Step};
use wire::live::{StepRanks, Waterfall};

/// A server without a socket, which keeps the records of the newest step alone in memory, and has taken in a run.
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
        runs.add(Replayed::new(Run::new(run.clone(), first.world_size, now).keeping(1), now));
        let app = app(data.path(), runs, Some(Layout::new(data.path())))?;
        let stage = Self { router: router(app.clone()), app, run, data };
        for received in &simulation.batches {
            let frame = wire::codec::encode(&received.batch)?;
            let request =
                Request::post("/api/v1/ingest").header("host", "localhost").body(Body::from(frame))?;
            ensure!(stage.router.clone().oneshot(request).await?.status() == StatusCode::OK);
        }
        Ok(stage)
    }

    /// The answer to a request for something of the run.
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

    /// The example steps of the report as it was when `at` was the newest step.
    async fn examples(&self, at: u64) -> anyhow::Result<Vec<u64>> {
        let (_, report) = self.get(&format!("?at={at}")).await?;
        let report: Value = serde_json::from_slice(&report)?;
        ensure!(report["verdicts"].get(0).is_some(), "a verdict at step {at}: {report:#}");
        Ok(examples(&report))
    }

    /// Has the log of the run made a segment; returns the path of one of its files.
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
async fn each_step_is_shown_from_disk_as_memory_would_have_shown_it() -> anyhow::Result<()> {
    let simulation = Simulation::run(&plan(4, 120, 2));
    // All of this run fits into the memory of a run that keeps what it may.
    let known = simulation.received();
    let stage = Stage::new(&simulation).await?;
    let offered = stage.examples(119).await?;
    ensure!(!offered.is_empty());
    for step in (0..120).chain(offered) {
        let (status, shown) = stage.waterfall(step).await?;
        let expected = known.waterfall(Some(Step(step))).context("it is in memory")?.encode();
        ensure!(status == StatusCode::OK && shown == expected, "step {step}: {status}");
    }
    stage.seal("steps.parquet")?;
    for step in 0..120 {
        let (status, shown) = stage.waterfall(step).await?;
        let expected = known.waterfall(Some(Step(step))).context("it is in memory")?.encode();
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
async fn a_step_whose_records_are_damaged_is_named_and_not_offered_again() -> anyhow::Result<()> {
    let stage = Stage::new(&Simulation::run(&plan(4, 120, 2))).await?;
    let path = stage.seal("spans.parquet")?;
    ensure!(!stage.examples(70).await?.is_empty());
    flip_in_the_middle(&path)?;
    // One that nobody has asked for yet.
    let (status, answer) = stage.waterfall(33).await?;
    let answer = String::from_utf8(answer)?;
    ensure!(status == StatusCode::NOT_FOUND, "{status}");
    let is_told = answer.contains("the records of step 33 are damaged on disk")
        && answer.contains("segment-000001/spans.parquet: it does not match its checksum");
    ensure!(is_told, "{answer}");
    // What is in that file is no example any more; what is in memory can be.
    for at in (60..120).step_by(7) {
        for step in stage.examples(at).await? {
            ensure!(stage.waterfall(step).await?.0 == StatusCode::OK, "step {step} is offered at step {at}");
        }
    }
    Ok(())
}

/// A waterfall of a running server.
fn waterfall(server: &Server, run: &str, step: u64) -> anyhow::Result<Waterfall> {
    let url = format!("{}/api/v1/runs/{run}/steps/{step}/waterfall", server.address);
    let mut answer = ureq::get(url).call().with_context(|| format!("step {step}"))?;
    let bytes = answer.body_mut().with_config().limit(1 << 30).read_to_vec()?;
    let waterfall = Waterfall::decode(&bytes)?;
    ensure!(waterfall.is_consistent() && waterfall.step == step, "step {step}: {}", waterfall.step);
    Ok(waterfall)
}

/// Example steps of what was found.
fn examples(report: &Value) -> Vec<u64> {
    let found = ["verdicts", "notes"].iter().filter_map(|list| report[list].as_array()).flatten();
    found.filter_map(|verdict| verdict["example_step"].as_u64()).collect()
}

fn finished_report(server: &Server, run: &str) -> anyhow::Result<Value> {
    wait_until("the run to be over and judged", || {
        let report = get_json(&format!("{}/api/v1/runs/{run}", server.address)).ok()?;
        (report["state"] == "completed" && !examples(&report).is_empty()).then_some(report)
    })
}

/// 160 steps of 1,024 ranks take 280 MB in memory: twice what a run may keep.
#[test]
fn the_step_that_a_verdict_offers_opens_at_1024_ranks_also_after_the_server_was_killed() -> anyhow::Result<()>
{
    const OLD: u64 = 25;
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let plan = Plan { ranks_per_host: 8, buckets: 12, tick: 1_000_000_000, ..plan(1_024, 160, 613) };
    let mut feed = Feed::new(Simulation::run(&plan));
    feed.send_all_but(0, &server.address)?;
    let report = finished_report(&server, &feed.run)?;
    let mut steps = examples(&report);
    steps.extend([OLD, 159]);
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
