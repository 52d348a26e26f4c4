//! Fuzzes HTTP: requests with odd paths, queries and headers, and batches with odd records. Each answer must be
//! bounded, valid for its content type, and not a server error. No run may be set aside.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{HeaderValue, Method, Request, StatusCode, Uri, header};
use fuzz::{Corpus, Verdict};
use wire::batch::Batch;
use wire::codec::{decode_plain, encode_plain};
use wire::ids::{BatchSeq, Rank, RunId};
use wire::live::tile::Tile;
use wire::live::{StepColumns, StepRanks, Waterfall, view};

use super::odd::make_odd;
use super::server::{Answer, Tried, batch};
use super::{CORPUS, ensure};

/// The largest answer, in bytes: enough for anything that can be requested of a run of 40 steps.
const MAX_ANSWER: usize = 16 << 20;
/// The longest time until a snapshot, on a busy machine.
const WITHIN: Duration = Duration::from_secs(10);
const WIRE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../wire");

const WORDS: [&str; 40] = [
    "18446744073709551615",
    "18446744073709551616",
    "9223372036854775808",
    "4294967295",
    "4294967296",
    "-1",
    "0",
    "1",
    "1e9",
    "0x10",
    "NaN",
    "latest",
    "recent",
    "all",
    "json",
    "frame",
    "html",
    "markdown",
    "perfetto",
    "chrome",
    "parquet",
    "csv",
    "max",
    "mean",
    "lateness",
    "one",
    "wide",
    "..",
    "0..4294967295",
    "%00",
    "%FF",
    "%2e%2e",
    "%2F",
    "+",
    "&",
    "=",
    "?",
    "/",
    "from",
    "rank_from",
];

/// Parses a line: `METHOD /path?query`, and optionally the value of several headers.
fn request(line: &[u8]) -> Option<Request<Body>> {
    let mut parts = line.splitn(3, |&byte| byte == b' ');
    let method = Method::from_bytes(parts.next()?).ok()?;
    let uri = Uri::try_from(parts.next()?).ok()?;
    let mut request = Request::builder().method(method).uri(uri).header("host", "localhost");
    if let Some(accept) = parts.next() {
        let value = HeaderValue::from_bytes(accept).ok()?;
        for name in ["accept", "accept-encoding", "if-none-match", "content-length", "cookie"] {
            request = request.header(name, value.clone());
        }
    }
    request.body(Body::empty()).ok()
}

fn is_answer(path: &str, answer: &Answer) -> Verdict {
    let Answer { status, headers, body } = answer;
    let text = || String::from_utf8_lossy(&body[..body.len().min(400)]).into_owned();
    // A 503 says when to try again, except for a page of a dashboard that was not built.
    let is_api = path.starts_with("/api") || path.starts_with("/parts");
    let is_busy =
        *status == StatusCode::SERVICE_UNAVAILABLE && (headers.contains_key(header::RETRY_AFTER) || !is_api);
    ensure(!status.is_server_error() || is_busy, || format!("{path} is answered {status}: {}", text()))?;
    ensure(body.len() < MAX_ANSWER, || format!("{path} is answered with {} bytes", body.len()))?;
    if !status.is_success() {
        return ensure(body.len() < 8_192 + 8 * path.len(), || format!("an error of {} bytes", body.len()));
    }
    let media = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match media {
        _ if body.is_empty() => Ok(()),
        "application/json" => {
            let value: Result<serde_json::Value, _> = serde_json::from_slice(body);
            ensure(value.is_ok(), || format!("{path} is answered with {}", text()))
        }
        "application/octet-stream" if !path.contains("/export") => is_frame(path, body),
        _ => Ok(()),
    }
}

/// Checks that a binary answer is a consistent frame. The dashboard indexes frames without bounds checks of its own.
fn is_frame(path: &str, body: &[u8]) -> Verdict {
    let is_consistent = view::is_view(body)
        || StepColumns::decode(body).is_ok_and(|frame| frame.is_consistent())
        || StepRanks::decode(body).is_ok_and(|frame| frame.is_consistent())
        || Waterfall::decode(body).is_ok_and(|frame| frame.is_consistent())
        || Tile::decode(body).is_ok_and(|frame| frame.is_consistent());
    ensure(is_consistent, || format!("{path} is answered with an invalid frame of {} bytes", body.len()))
}

#[test]
fn any_request_gets_a_valid_and_bounded_answer() {
    let tried = Tried::with_runs();
    for run in ["one", "wide"] {
        assert_eq!(tried.get(&format!("/api/v1/runs/{run}")).status, StatusCode::OK, "the run exists");
    }
    let corpus = Corpus::lines(format!("{CORPUS}/requests.txt")).words(&WORDS);
    corpus.check("request", 8_000, |line, _| {
        let Some(request) = request(line) else { return Ok(()) };
        let path = request.uri().to_string();
        let is_head = request.method() == Method::HEAD;
        let answer = tried.ask(request);
        ensure(!is_head || answer.body.is_empty(), || format!("{path} is answered with a body"))?;
        is_answer(&path, &answer)?;
        tried.trouble().map_or(Ok(()), Err)
    });
    // Requests start nothing but bursts: the runs are unchanged.
    assert!(tried.get("/api/v1/runs/one/summary").body.windows(10).any(|part| part == b"\"steps\":40"));
}

/// Sends batches that the codec accepts, with odd records in them. Each batch is a run of its own, of which everything
/// is then requested.
#[test]
fn any_accepted_batch_leaves_a_run_that_can_be_shown() {
    let tried = RefCell::new(Tried::start());
    let (frame, next) = (encode_plain(&batch("one", 0, 1, 0, 0..6)), AtomicU64::new(0));
    let taken = AtomicU64::new(0);
    let corpus = Corpus::folder(format!("{WIRE}/tests/corpus/plain"))
        .and(Corpus::files(format!("{WIRE}/src/codec"), ".hex"))
        .with("six steps", frame.clone())
        .with("six steps again", frame)
        .only(|bytes| decode_plain(bytes).is_ok());
    corpus.check("batch", 600, |bytes, choice| {
        let Ok(mut batch) = decode_plain(bytes) else { return Ok(()) };
        let name = format!("run-{}", next.fetch_add(1, Ordering::Relaxed));
        batch.run = RunId::new(&*name).map_err(|error| error.to_string())?;
        // Steps of a run with one rank close at once. With more ranks they stay open, which is a case of its own.
        (batch.rank, batch.seq) = (Rank(0), BatchSeq(0));
        batch.world_size = if choice.is_multiple_of(4) { batch.world_size.min(64) } else { 1 };
        make_odd(&mut batch, choice / 4);
        let verdict = sent_and_looked_at(&tried.borrow(), &batch, &taken);
        if verdict.is_err() {
            // The failure may persist, and the next input would be blamed for it.
            tried.replace(Tried::start());
        }
        verdict
    });
    let taken = taken.into_inner();
    assert!(taken > 100, "only {taken} batches were accepted: little is tested after the codec");
}

fn sent_and_looked_at(tried: &Tried, batch: &Batch, taken: &AtomicU64) -> Verdict {
    let status = tried.send(batch);
    ensure(!status.is_server_error(), || format!("the batch is answered {status}"))?;
    if status == StatusCode::OK {
        taken.fetch_add(1, Ordering::Relaxed);
        sampled(tried, batch.run.as_str())?;
        is_shown(tried, &batch.run)?;
    }
    tried.app.vitals.failure().map_or(Ok(()), Err)
}

/// Checks that the run is in a snapshot and not set aside, as runs are on which the server fails.
fn is_shown(tried: &Tried, run: &RunId) -> Verdict {
    let began = Instant::now();
    loop {
        let snapshot = tried.app.hub.snapshot();
        if let Some(reason) = snapshot.aside.get(run) {
            return Err(format!("the run is set aside: {reason}"));
        }
        if snapshot.runs.contains_key(run) {
            return Ok(());
        }
        ensure(began.elapsed() < WITHIN, || "the run is not shown".into())?;
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn sampled(tried: &Tried, run: &str) -> Verdict {
    let asked = [
        "?window=all",
        "?form=frame",
        "?form=html",
        "/steps",
        "/steps/latest/waterfall",
        "/heatmap?columns=1&rows=1",
        "/heatmap?measure=exposed-wait&reduce=mean",
        "/devices",
        "/bursts",
        "/scaling",
        "/export?format=chrome",
        "/export?format=perfetto",
        "/export?format=csv",
        "/summary",
    ];
    for path in asked.map(|path| format!("/api/v1/runs/{run}{path}")) {
        is_answer(&path, &tried.get(&path))?;
    }
    let path = format!("/api/v1/compare?a={run}&b={run}");
    is_answer(&path, &tried.get(&path))
}

/// Pages of other host names, which may resolve to this machine, are refused, and so are pages of other origins.
#[test]
fn only_requests_of_own_hosts_and_origins_are_accepted() {
    let tried = Tried::start();
    let corpus = Corpus::lines(format!("{CORPUS}/hosts.txt"));
    let words = [
        "localhost",
        "127.0.0.1",
        "evil.example",
        "[::1]",
        ":",
        "http://",
        "[",
        "]",
        "@",
        "8080",
        "%",
        "::1",
    ];
    corpus.words(&words).check("host", 10_000, |line, _| {
        let mut parts = line.splitn(2, |&byte| byte == b' ');
        let mut header = |name| Some((name, HeaderValue::from_bytes(parts.next()?).ok()?));
        let (host, origin) = (header("host"), header("origin"));
        let Some((_, host)) = host else { return Ok(()) };
        let mut request = Request::get("/api/v1/clock").header("host", &host);
        if let Some((name, value)) = &origin {
            request = request.header(*name, value);
        }
        let request = request.body(Body::empty()).map_err(|error| error.to_string())?;
        let answer = tried.ask(request);
        is_answer("/api/v1/clock", &answer)?;
        if !answer.status.is_success() {
            return Ok(());
        }
        let host = host.to_str().map_err(|error| error.to_string())?;
        let name = host.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches(':');
        let is_address = host.bytes().all(|byte| byte.is_ascii_hexdigit() || b"[]:.".contains(&byte));
        ensure(name.eq_ignore_ascii_case("localhost") || is_address, || format!("{host:?} was accepted"))?;
        let origin = origin.and_then(|(_, value)| value.to_str().ok().map(str::to_owned));
        let is_own = origin.is_none_or(|origin| origin.ends_with(&format!("://{host}")));
        ensure(is_own, || format!("another origin was accepted for {host:?}"))
    });
}
