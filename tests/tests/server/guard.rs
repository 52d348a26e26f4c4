//! Tests of the server's defenses: malformed batches, unknown hosts and missing tokens; and that Prometheus accepts the
//! metrics.

use std::io::Write as _;
use std::process::{Command, Stdio};

use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use paceline::http::router;
use paceline::state::collection::Collection;
use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;
use testkit::app::{app, post};
use testkit::programs::{Job, Server, resident_bytes};
use testkit::simulator::{Plan, Simulation};
use tower::ServiceExt as _;

/// Frames plain bytes as a batch, so that damaged bytes reach the code after decompression.
fn reframed(plain: &[u8]) -> Vec<u8> {
    let mut frame = b"PCLB\x01\0\0\0".to_vec();
    frame.extend_from_slice(&(plain.len() as u32).to_le_bytes());
    frame.extend_from_slice(&zstd::bulk::compress(plain, 1).expect("the bytes can be compressed"));
    frame
}

/// Damages a frame in one of several ways.
fn spoil(random: &mut ChaCha8Rng, frame: &[u8], plain: &[u8]) -> Vec<u8> {
    let flip = |random: &mut ChaCha8Rng, bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        for _ in 0..=random.random_range(0..3) {
            let at = random.random_range(0..bytes.len() as u64) as usize;
            bytes[at] ^= 1 << random.random_range(0..8);
        }
        bytes
    };
    match random.random_range(0..6) {
        0 => (0..random.random_range(0..200)).map(|_| random.random_range(0..256) as u8).collect(),
        1 => frame[..random.random_range(0..frame.len() as u64) as usize].to_vec(),
        2 => flip(random, frame),
        3 => reframed(&plain[..random.random_range(0..plain.len() as u64) as usize]),
        4 => {
            // A huge number, which may replace a length.
            let mut bytes = plain.to_vec();
            let at = random.random_range(0..bytes.len() as u64) as usize;
            bytes.splice(at..at, [0xff; 9]);
            reframed(&bytes)
        }
        _ => reframed(&flip(random, plain)),
    }
}

/// Sends damaged requests through the whole router. Each one gets an answer, none causes a panic, and memory does not
/// grow. Some flips leave a valid batch (a changed time or size); such batches are accepted and change only their own
/// run. `PACELINE_FUZZ=10` tries a million.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_batches_do_no_harm() -> anyhow::Result<()> {
    let inputs = 100_000 * u64::from(fuzz::times());
    let data = tempfile::tempdir()?;
    let router = router(app(data.path(), Collection::default(), None)?);
    let simulation = Simulation::run(&Plan { steps: 2, ..Plan::small(1) });
    let batch = simulation.batches.into_iter().max_by_key(|received| received.batch.events.len());
    let batch = batch.expect("the simulation has batches").batch;
    let (frame, plain) = (wire::codec::encode(&batch)?, wire::codec::encode_plain(&batch));
    let mut random = ChaCha8Rng::seed_from_u64(7);
    let (mut refused, mut taken) = (0_u64, 0_u64);
    let mut after_warm_up = 0;
    for input in 0..inputs {
        let body = spoil(&mut random, &frame, &plain);
        let answer = router.clone().oneshot(post(body)).await?;
        match answer.status() {
            status if status.is_client_error() => refused += 1,
            StatusCode::OK => taken += 1,
            // A changed incarnation looks like another process that claims the rank.
            StatusCode::SERVICE_UNAVAILABLE => refused += 1,
            status => anyhow::bail!("input {input}: {status}"),
        }
        if input == inputs / 10 {
            after_warm_up = resident_bytes(std::process::id())?;
        }
    }
    let grown = resident_bytes(std::process::id())?.saturating_sub(after_warm_up);
    assert!(refused > inputs * 7 / 10, "{refused} refused, {taken} accepted");
    assert!(grown < 96 << 20, "memory grew by {grown} bytes over {inputs} inputs ({taken} accepted)");
    Ok(())
}

#[tokio::test]
async fn each_kind_of_malformed_batch_gets_a_clear_4xx() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let router = router(app(data.path(), Collection::default(), None)?);
    let simulation = Simulation::run(&Plan { steps: 2, ..Plan::small(1) });
    let good = wire::codec::encode(&simulation.batches[0].batch)?;
    let frame_with = |at: usize, bytes: &[u8]| {
        let mut frame = good.clone();
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        frame
    };
    let bomb = {
        let mut frame = b"PCLB\x01\0\0\0".to_vec();
        frame.extend_from_slice(&(8_u32 << 20).to_le_bytes());
        frame.extend_from_slice(&zstd::bulk::compress(&vec![0; 256 << 20], 3)?);
        frame
    };
    let cases = [
        (Vec::new(), 400, "truncated"),
        (b"GET / HTTP/1.1".to_vec(), 400, "not a Paceline batch"),
        (good[..good.len() / 2].to_vec(), 400, "truncated: payload"),
        (frame_with(4, &[99, 0]), 400, "version 99"),
        (frame_with(8, &[0xff; 4]), 413, "plain length: 4294967295"),
        (bomb, 400, "decompress"),
        (vec![0; wire::batch::MAX_WIRE_BYTES + 1], 413, "larger than"),
    ];
    for (body, status, says) in cases {
        let answer = router.clone().oneshot(post(body)).await?;
        let found = answer.status().as_u16();
        let text = String::from_utf8_lossy(&answer.into_body().collect().await?.to_bytes()).into_owned();
        assert_eq!(found, status, "{text}");
        assert!(text.contains(says), "{text:?} does not contain {says:?}");
    }
    assert_eq!(router.oneshot(post(good)).await?.status(), StatusCode::OK);
    Ok(())
}

#[tokio::test]
async fn a_run_id_with_another_world_size_is_a_conflict() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let router = router(app(data.path(), Collection::default(), None)?);
    let mut batch = Simulation::run(&Plan { steps: 2, ..Plan::small(1) }).batches[0].batch.clone();
    assert_eq!(router.clone().oneshot(post(wire::codec::encode(&batch)?)).await?.status(), StatusCode::OK);
    // A batch that is sent again is acknowledged again, but applied once.
    assert_eq!(router.clone().oneshot(post(wire::codec::encode(&batch)?)).await?.status(), StatusCode::OK);
    batch.world_size += 1;
    let answer = router.oneshot(post(wire::codec::encode(&batch)?)).await?;
    assert_eq!(answer.status(), StatusCode::CONFLICT);
    Ok(())
}

#[tokio::test]
async fn requests_of_unknown_hosts_and_origins_are_rejected() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let router = router(app(data.path(), Collection::default(), None)?);
    let get = |path: &str, headers: &[(&str, &str)]| {
        let request =
            headers.iter().fold(Request::get(path), |request, (name, value)| request.header(*name, *value));
        router.clone().oneshot(request.body(Body::empty()).expect("a valid request"))
    };
    let local = ("host", "127.0.0.1:8080");
    assert_eq!(
        get("/api/v1/runs", &[("host", "evil.example")]).await?.status(),
        StatusCode::MISDIRECTED_REQUEST
    );
    let foreign = get("/api/v1/runs", &[local, ("origin", "http://evil.example")]).await?;
    assert_eq!(foreign.status(), StatusCode::FORBIDDEN);
    assert_eq!(get("/api/v1/runs", &[local]).await?.status(), StatusCode::OK);
    assert_eq!(get("/api/v1/nothing", &[local]).await?.status(), StatusCode::NOT_FOUND);
    assert_eq!(get("/api/v1/runs/no-such-run", &[local]).await?.status(), StatusCode::NOT_FOUND);
    assert_eq!(get("/healthz", &[local]).await?.status(), StatusCode::OK);
    let document = get("/api/v1/openapi.json", &[local]).await?.into_body().collect().await?.to_bytes();
    let document: serde_json::Value = serde_json::from_slice(&document)?;
    for path in
        ["/api/v1/runs", "/api/v1/runs/{run}", "/api/v1/ingest", "/api/v1/runs/{run}/steps/{step}/waterfall"]
    {
        assert!(document["paths"].get(path).is_some(), "{path} is not in the OpenAPI document");
    }
    Ok(())
}

#[test]
fn listening_beyond_loopback_requires_a_token() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let output = testkit::programs::paceline(&[
        "serve",
        "--listen",
        "0.0.0.0:0",
        "--data",
        &data.path().to_string_lossy(),
    ])?;
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("--token"), "{said}");
    Ok(())
}

#[test]
fn promtool_accepts_the_metrics_of_an_active_run() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let mut job =
        Job::start(&["-n", "2", "--server", &server.address, "--", "char_lm", "--steps", "100000"])?;
    job.wait_for("step    100/")?;
    let metrics = ureq::get(format!("{}/metrics", server.address)).call()?.body_mut().read_to_string()?;
    for name in ["paceline_step_seconds_bucket", "paceline_phase_seconds_total", "paceline_ranks_reporting"] {
        assert!(metrics.contains(name), "{name} is missing:\n{metrics}");
    }
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    promtool.stdin.take().expect("stdin is piped").write_all(metrics.as_bytes())?;
    let verdict = promtool.wait_with_output()?;
    let said = [verdict.stdout, verdict.stderr].concat();
    assert!(verdict.status.success(), "{}", String::from_utf8_lossy(&said));
    Ok(())
}
