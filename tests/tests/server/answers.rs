//! Tests that every error of the API is JSON with a sentence, whatever the request, and that answers show hostile names as
//! they are.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use paceline::http::router;
use paceline::state::collection::Collection;
use serde_json::Value;
use testkit::app::app;
use testkit::hostile;
use tower::ServiceExt as _;
use wire::batch::Batch;
use wire::clock::{MonoNanos, Probe, ServerNanos};

/// An answer: its status, whether it says that it is JSON, and its body.
struct Answer {
    status: StatusCode,
    is_json: bool,
    body: Vec<u8>,
}

impl Answer {
    /// Returns the sentence of an error.
    fn error(&self) -> anyhow::Result<String> {
        let text = String::from_utf8_lossy(&self.body);
        ensure!(self.is_json, "{}, but not JSON: {text:?}", self.status);
        let value: Value = serde_json::from_slice(&self.body).with_context(|| text.clone().into_owned())?;
        let error = value["error"].as_str().with_context(|| format!("no sentence: {text}"))?;
        ensure!(error.len() > 12 && error.contains(' '), "not a sentence: {error:?}");
        Ok(error.to_owned())
    }
}

/// A server without a socket.
struct Asked {
    router: Router,
    _data: tempfile::TempDir,
}

impl Asked {
    fn new(runs: Collection) -> anyhow::Result<Self> {
        let data = tempfile::tempdir()?;
        Ok(Self { router: router(app(data.path(), runs, None)?), _data: data })
    }

    /// Returns the answer, or `None` if the text is not a request at all.
    async fn ask(&self, method: &str, path: &str, body: Vec<u8>) -> anyhow::Result<Option<Answer>> {
        let request = Request::builder().method(Method::from_bytes(method.as_bytes())?).uri(path);
        let Ok(request) = request.header("host", "localhost").body(Body::from(body)) else { return Ok(None) };
        let answer = self.router.clone().oneshot(request).await?;
        let form = answer.headers().get(header::CONTENT_TYPE).and_then(|form| form.to_str().ok());
        let is_json = form.is_some_and(|form| form.starts_with("application/json"));
        let status = answer.status();
        Ok(Some(Answer { status, is_json, body: answer.into_body().collect().await?.to_bytes().to_vec() }))
    }

    async fn get(&self, path: &str) -> anyhow::Result<Answer> {
        self.ask("GET", path, Vec::new()).await?.context("not a request")
    }

    async fn send(&self, batch: &Batch) -> anyhow::Result<Answer> {
        let answer = self.ask("POST", "/api/v1/ingest", wire::codec::encode(batch)?).await?;
        answer.context("not a request")
    }

    /// Sends the run `known` of this many ranks, of which rank 0 sends steps, and waits until it is listed.
    async fn with_run(self, ranks: u32) -> anyhow::Result<Self> {
        let mut batch = hostile::steps("known", ranks, 0, 0..6, 2);
        batch.notes.push(hostile::hello(hostile::NAME));
        // Without one, no clock places the steps.
        let at = ServerNanos(1_790_000_000_000_000_000);
        batch.probes.push(Probe {
            sent: MonoNanos(0),
            server_received: at,
            server_sent: at,
            received: MonoNanos(10),
        });
        ensure!(self.send(&batch).await?.status == StatusCode::OK);
        // The steps of a run whose other ranks are silent stay open.
        let last_step = if ranks == 1 { Value::from(5) } else { Value::Null };
        for _ in 0..500 {
            let answer = self.get("/api/v1/runs/known/summary").await?;
            let summary: Value = serde_json::from_slice(&answer.body)?;
            if answer.status == StatusCode::OK && summary["last_step"] == last_step {
                return Ok(self);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        anyhow::bail!("the run is not listed")
    }
}

/// What stands for a path parameter, and for a value of the query.
const PATH_VALUES: [&str; 9] =
    ["%FF", "a%2Fb", "-", "-1", "99999999999999999999999", "1e3", "..%2F..", "%00", "known"];
const QUERY_VALUES: [&str; 9] =
    ["", "-1", "1.5", "%FF", "99999999999999999999999", "null", "%00", "[]", "a..b"];

/// Returns `path` with every parameter replaced by `value`.
fn filled(path: &str, value: &str) -> String {
    let piece = |piece: &str| if piece.starts_with('{') { value.to_owned() } else { piece.to_owned() };
    path.split('/').map(piece).collect::<Vec<_>>().join("/")
}

/// Returns malformed requests for one operation of the OpenAPI document: a method and a path with a query.
fn malformed(method: &str, path: &str, operation: &Value) -> Vec<(String, String)> {
    let empty = Vec::new();
    let parameters = operation["parameters"].as_array().unwrap_or(&empty).iter();
    let query: Vec<&str> = parameters
        .filter(|parameter| parameter["in"] == "query")
        .filter_map(|parameter| parameter["name"].as_str())
        .collect();
    let mut requests = Vec::new();
    for value in PATH_VALUES {
        requests.push((method.to_owned(), filled(path, value)));
    }
    for name in query {
        for value in QUERY_VALUES {
            requests.push((method.to_owned(), format!("{}?{name}={value}", filled(path, "known"))));
            requests.push((method.to_owned(), format!("{}?{name}={value}&{name}=2", filled(path, "1"))));
        }
    }
    for other in ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"] {
        requests.push((other.to_owned(), filled(path, "known")));
        requests.push((other.to_owned(), format!("{}/further", filled(path, "known"))));
    }
    requests
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_error_of_the_api_is_json_with_a_sentence() -> anyhow::Result<()> {
    let asked = Asked::new(Collection::default())?.with_run(1).await?;
    let document: Value = serde_json::from_slice(&asked.get("/api/v1/openapi.json").await?.body)?;
    let mut requests = Vec::new();
    for (path, operations) in document["paths"].as_object().context("no paths")? {
        for (method, operation) in operations.as_object().context("no operations")? {
            requests.extend(malformed(&method.to_uppercase(), path, operation));
        }
    }
    let live = ["/api/v1/live", "/api/v1/live?run=%FF", "/api/v1/live?run=known", "/api/v1/live/x"];
    requests.extend(live.map(|path| ("GET".to_owned(), path.to_owned())));
    let nothing =
        ["/api/", "/api/v1", "/api/v1/", "/api/v2/runs", "/api/v1/runs/", "/api/v1//runs", "/api/v1/%FF"];
    requests.extend(nothing.map(|path| ("GET".to_owned(), path.to_owned())));
    let (mut errors, mut statuses) = (0, std::collections::BTreeMap::<u16, u32>::new());
    for (method, path) in &requests {
        let Some(answer) = asked.ask(method, path, b"not what is expected".to_vec()).await? else { continue };
        *statuses.entry(answer.status.as_u16()).or_default() += 1;
        ensure!(answer.status != StatusCode::INTERNAL_SERVER_ERROR, "{method} {path}: {:?}", answer.error());
        if answer.status.is_client_error() || answer.status.is_server_error() {
            let error = answer.error().with_context(|| format!("{method} {path}"))?;
            ensure!(!error.contains(char::is_control), "{method} {path}: {error:?}");
            ensure!(!error.contains("RunId(") && !error.contains("Rank("), "{method} {path}: {error}");
            errors += 1;
        }
    }
    ensure!(
        requests.len() > 900 && errors > 600,
        "{errors} errors of {} requests: {statuses:?}",
        requests.len()
    );
    for (path, says) in [
        (
            "/api/v1/runs/known/heatmap?rank_from=x",
            "the query of this request is not valid: rank_from: invalid digit",
        ),
        ("/api/v1/runs/known/steps/x/ranks", "the path of this request is not valid: Cannot parse"),
        ("/api/v1/nothing", "there is nothing at /api/v1/nothing"),
        ("/api/v1/runs/no-such", "there is no run \"no-such\"; GET /api/v1/runs lists them"),
        ("/api/v1/live", "/api/v1/live is a WebSocket"),
        ("/api/v1/ingest", "/api/v1/ingest does not take the method GET: the header `allow` has those"),
    ] {
        let error = asked.get(path).await?.error()?;
        ensure!(error.starts_with(says), "{path}: {error}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranks_that_a_run_does_not_have_are_an_error_that_names_those_it_has() -> anyhow::Result<()> {
    let asked = Asked::new(Collection::default())?.with_run(4).await?;
    for view in
        ["heatmap?rank_from=4", "heatmap?ranks=1,4", "export?rank=4", "stacks?rank=4", "traced?rank=4"]
    {
        let answer = asked.get(&format!("/api/v1/runs/known/{view}")).await?;
        let error = answer.error()?;
        ensure!(answer.status == StatusCode::NOT_FOUND, "{view}: {}", answer.status);
        ensure!(error == "run known has no rank 4: it has ranks 0 to 3", "{view}: {error}");
    }
    let answer = asked.get("/api/v1/runs/known/heatmap?rank_from=2&rank_to=1").await?;
    ensure!(answer.status == StatusCode::BAD_REQUEST, "{}", answer.status);
    for view in
        ["heatmap?rank_from=3", "heatmap?rank_from=1&rank_to=99", "heatmap?ranks=3,0", "stacks?rank=3"]
    {
        let answer = asked.get(&format!("/api/v1/runs/known/{view}")).await?;
        ensure!(answer.status == StatusCode::OK, "{view}: {}", answer.status);
    }
    Ok(())
}

/// The runs of this test hold what cannot be dropped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_server_refuses_new_runs_and_large_ones_and_serves_the_others() -> anyhow::Result<()> {
    let asked = Asked::new(Collection::with_limit(16 << 20))?;
    ensure!(asked.send(&hostile::steps("small", 1, 0, 0..1, 1)).await?.status == StatusCode::OK);
    let mut sent = 0;
    let refused = loop {
        let answer = asked.send(&hostile::layouts("large", sent)).await?;
        if answer.status != StatusCode::OK {
            break answer;
        }
        sent += 1;
        ensure!(sent < 40, "the server takes more than it may");
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    ensure!(refused.status == StatusCode::SERVICE_UNAVAILABLE, "{}", refused.status);
    let error = refused.error()?;
    ensure!(error.starts_with("the runs in this server's memory take the 16.0 MiB that they may"), "{error}");
    let new = asked.send(&hostile::steps("new", 1, 0, 0..1, 1)).await?;
    ensure!(
        new.status == StatusCode::SERVICE_UNAVAILABLE && new.error()? == error.replace("large", "new"),
        "{error}"
    );
    ensure!(asked.send(&hostile::steps("small", 1, 1, 1..2, 1)).await?.status == StatusCode::OK);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_names_act_on_nothing_in_files_for_tickets_and_viewers() -> anyhow::Result<()> {
    let asked = Asked::new(Collection::default())?.with_run(1).await?;
    let text = |answer: Answer| String::from_utf8_lossy(&answer.body).into_owned();
    let markdown = text(asked.get("/api/v1/runs/known?form=markdown").await?);
    let title = markdown.lines().next().unwrap_or_default().to_owned();
    ensure!(
        title
            == "# \\\\u{1b}\\]0;owned\\\\u{7}\\\\u{0} `@team` `https://evil.example` \\<img src=x onerror=y\\> \\_it\\_ \
                \\*b\\* \\`c\\` `#12` \\| (known)",
        "{title}"
    );
    let html = text(asked.get("/api/v1/runs/known?form=html").await?);
    ensure!(html.contains("owned") && !html.contains("<img"), "{html}");
    for format in ["perfetto", "chrome", "csv"] {
        let answer = asked.get(&format!("/api/v1/runs/known/export?format={format}&steps=0..5")).await?;
        ensure!(answer.status == StatusCode::OK, "{format}: {}", answer.status);
        let file = text(answer);
        ensure!(!file.contains("\x1b]0;") && !file.contains("owned\x07"), "{format}: {file:?}");
    }
    Ok(())
}
