//! Tests of who gets access: tokens, sessions of browsers, and what the server says about wrong tokens.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use paceline::http::guard::Guard;
use paceline::http::{App, router};
use paceline::state::collection::Collection;
use serde_json::Value;
use tempfile::TempDir;
use testkit::app::app;
use testkit::programs::{Server, get_bytes, paceline, program, said, sign_in};
use tower::ServiceExt as _;

/// Made by the recipe of the guide: Base64, with a plus sign, a slash and an equals sign.
const TOKEN: &str = "q0R+Yz/8fKxw2lBvJm1tHc5uPdZ6aQeS7gNiTo3kXyE=";
const ENCODED: &str = "q0R%2BYz%2F8fKxw2lBvJm1tHc5uPdZ6aQeS7gNiTo3kXyE%3D";
const HOST: (&str, &str) = ("host", "127.0.0.1:8080");

/// The routes of a server that requires a token.
struct Guarded {
    router: Router,
    _data: TempDir,
}

impl Guarded {
    fn start() -> anyhow::Result<Self> {
        let data = tempfile::tempdir()?;
        let guard = Guard { loopback_only: true, token: Some(TOKEN.into()), ..Guard::default() };
        let app = App { guard: Arc::new(guard), ..app(data.path(), Collection::default(), None)? };
        Ok(Self { router: router(app), _data: data })
    }

    async fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> anyhow::Result<(StatusCode, HeaderMap, String)> {
        let request = Request::builder().method(method).uri(path);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let (head, body) = self.router.clone().oneshot(request.body(Body::empty())?).await?.into_parts();
        let body = String::from_utf8_lossy(&body.collect().await?.to_bytes()).into_owned();
        Ok((head.status, head.headers, body))
    }

    async fn get(
        &self,
        path: &str,
        headers: &[(&str, &str)],
    ) -> anyhow::Result<(StatusCode, HeaderMap, String)> {
        self.ask("GET", path, &[&[HOST], headers].concat()).await
    }

    /// Returns the location of a redirect, and the cookie that it sets.
    async fn redirected(
        &self,
        path: &str,
        headers: &[(&str, &str)],
    ) -> anyhow::Result<(String, Option<String>)> {
        let (status, answered, body) = self.get(path, headers).await?;
        ensure!(status == StatusCode::SEE_OTHER, "{path}: {status} {body}");
        let text = |name| {
            answered.get(name).and_then(|value: &header::HeaderValue| value.to_str().ok()).map(str::to_owned)
        };
        Ok((text(header::LOCATION).context("no location")?, text(header::SET_COOKIE)))
    }
}

/// Returns what a browser sends back of a cookie that was set.
fn kept(set: &str) -> &str {
    set.split(';').next().unwrap_or_default()
}

#[tokio::test]
async fn a_browser_signs_in_keeps_the_rest_of_the_address_and_signs_out() -> anyhow::Result<()> {
    let server = Guarded::start()?;
    for asked in [
        format!("/runs/a?steps=1..9&token={ENCODED}&rank=2"),
        format!("/runs/a?steps=1..9&rank=2&token={TOKEN}"),
    ] {
        let (page, cookie) = server.redirected(&asked, &[]).await?;
        assert_eq!(page, "/runs/a?steps=1..9&rank=2");
        let cookie = cookie.context("no cookie")?;
        assert!(cookie.starts_with("paceline_session_8080="), "{cookie}");
        assert!(
            !cookie.contains(TOKEN) && !cookie.contains(ENCODED),
            "the cookie is not the token: {cookie}"
        );
        for attribute in ["HttpOnly", "SameSite=Strict", "Max-Age=604800", "Path=/"] {
            assert!(cookie.contains(attribute), "{attribute}: {cookie}");
        }
        assert!(!cookie.contains("Secure"), "no browser sends it over http: {cookie}");
        assert_eq!(server.get("/api/v1/runs", &[("cookie", kept(&cookie))]).await?.0, StatusCode::OK);
    }

    let tls = [("x-forwarded-proto", "https")];
    let (_, cookie) = server.redirected(&format!("/?token={ENCODED}"), &tls).await?;
    let cookie = cookie.context("no cookie")?;
    assert!(cookie.contains("; Secure"), "{cookie}");
    let session = [("cookie", kept(&cookie))];

    // The token leaves the address with a session too, right or wrong, and the session stays.
    for token in [ENCODED, "another"] {
        let redirected = server.redirected(&format!("/runs?q=a&token={token}"), &session).await?;
        assert_eq!(redirected, ("/runs?q=a".into(), None));
    }
    // A session that has ended does not keep a browser from signing in.
    let stale = [("cookie", "paceline_session_8080=00ff")];
    assert_eq!(server.get("/api/v1/runs", &stale).await?.0, StatusCode::UNAUTHORIZED);
    assert!(server.redirected(&format!("/?token={ENCODED}"), &stale).await?.1.is_some());
    // The session of another port is none here.
    let elsewhere = kept(&cookie).replace("_8080=", "_8081=");
    assert_eq!(server.get("/api/v1/runs", &[("cookie", &elsewhere)]).await?.0, StatusCode::UNAUTHORIZED);
    // Programs send the token and are not redirected.
    let bearer = format!("Bearer {TOKEN}");
    let (status, headers, _) =
        server.get(&format!("/api/v1/runs?token={ENCODED}"), &[("authorization", &bearer)]).await?;
    assert_eq!((status, headers.get(header::SET_COOKIE)), (StatusCode::OK, None));

    let shown = |body: &str| serde_json::from_str::<Value>(body).map(|access| access["signed_in"].clone());
    assert_eq!(shown(&server.get("/api/v1/access", &session).await?.2)?, true);
    assert_eq!(shown(&server.get("/api/v1/access", &[("authorization", &bearer)]).await?.2)?, false);
    let foreign = [HOST, session[0], ("origin", "http://evil.example")];
    assert_eq!(server.ask("POST", "/api/v1/sign-out", &foreign).await?.0, StatusCode::FORBIDDEN);
    let (status, headers, _) = server.ask("POST", "/api/v1/sign-out", &[HOST, session[0]]).await?;
    assert_eq!(status, StatusCode::NO_CONTENT);
    let forgotten = headers[header::SET_COOKIE].to_str()?;
    assert!(
        forgotten.starts_with("paceline_session_8080=;") && forgotten.contains("Max-Age=0"),
        "{forgotten}"
    );
    assert_eq!(server.get("/api/v1/runs", &session).await?.0, StatusCode::UNAUTHORIZED);
    Ok(())
}

#[tokio::test]
async fn wrong_tokens_are_answered_late_and_right_ones_at_once_and_all_are_counted() -> anyhow::Result<()> {
    let server = Guarded::start()?;
    assert_eq!(server.get("/api/v1/runs", &[]).await?.0, StatusCode::UNAUTHORIZED);
    for path in ["/api/v1/runs", "/?token=wrong"] {
        let (status, _, body) = server.get(path, &[("authorization", "Bearer wrong")]).await?;
        assert!(
            status == StatusCode::UNAUTHORIZED && body.contains("this is not the token of this server: send"),
            "{path}: {status} {body}"
        );
    }
    assert_eq!(server.get("/?token=wrong", &[]).await?.0, StatusCode::UNAUTHORIZED);
    assert_eq!(
        server.get("/", &[("cookie", "paceline_session_8080=old")]).await?.0,
        StatusCode::UNAUTHORIZED
    );
    // Liveness checks say nothing about a token, and no session is opened there.
    for health in ["/healthz", "/healthz?token=wrong", &format!("/healthz?token={ENCODED}")] {
        let (status, headers, _) = server.get(health, &[]).await?;
        assert_eq!((status, headers.get(header::SET_COOKIE)), (StatusCode::OK, None), "{health}");
    }
    let browser = ("accept", "text/html,*/*");
    let (status, headers, body) = server.get("/api/v1/runs", &[browser]).await?;
    assert!(status == StatusCode::UNAUTHORIZED && headers[header::WWW_AUTHENTICATE] == "Bearer");
    let error: Value = serde_json::from_str(&body)?;
    assert_eq!(
        error["error"],
        "this server requires a token: send `Authorization: Bearer TOKEN`, or open /?token=TOKEN in a browser"
    );
    // Only pages sign in by their address. For other requests, the right token there counts as none.
    let (status, _, body) = server.ask("POST", &format!("/api/v1/ingest?token={ENCODED}"), &[HOST]).await?;
    assert!(status == StatusCode::UNAUTHORIZED && body.contains("requires a token"), "{body}");
    let (status, headers, page) = server.get("/", &[browser]).await?;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    assert!(
        headers[header::CONTENT_TYPE].to_str()?.starts_with("text/html") && page.contains("/?token=TOKEN"),
        "{page}"
    );

    let bearer = format!("Bearer {TOKEN}");
    let metrics = server.get("/metrics", &[("authorization", &bearer)]).await?.2;
    for (lack, number) in [("no_token", 4), ("wrong_token", 3), ("ended_session", 1)] {
        let line = format!("paceline_server_unauthorized_total{{reason=\"{lack}\"}} {number}");
        assert!(metrics.contains(&line), "no {line} in {metrics}");
    }
    let access: Value =
        serde_json::from_str(&server.get("/api/v1/access", &[("authorization", &bearer)]).await?.2)?;
    assert_eq!(
        (&access["unauthorized"]["wrong_token"], &access["unauthorized"]["no_token"]),
        (&3.into(), &4.into())
    );
    Ok(())
}

#[test]
fn a_peer_that_guesses_waits_and_the_log_says_how_often_and_from_where() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let log = data.path().join("log");
    let mut command = Server::command(&data.path().join("data"), "127.0.0.1:0");
    command.env("PACELINE_TOKEN", TOKEN).stderr(Stdio::from(std::fs::File::create(&log)?));
    let server = Server::spawn(command)?;
    let client: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let ask = |token: &str| -> anyhow::Result<(u16, Duration)> {
        let began = Instant::now();
        let answer = client
            .get(format!("{}/api/v1/runs", server.address))
            .header("authorization", format!("Bearer {token}"))
            .call()?;
        Ok((answer.status().as_u16(), began.elapsed()))
    };
    let guesses = (0..8).map(|_| ask("a-wrong-token")).collect::<anyhow::Result<Vec<_>>>()?;
    assert!(guesses.iter().all(|(status, _)| *status == 401), "{guesses:?}");
    // 10, 20, 40 ms and so on, up to a second. More only if the machine is busy.
    let waited: Duration = guesses.iter().map(|(_, took)| *took).sum();
    assert!(waited >= Duration::from_millis(2_270), "{guesses:?}");
    let (status, took) = ask(TOKEN)?;
    assert!(status == 200 && took < guesses[7].1, "a right token waits for nothing: {took:?}");

    let said = testkit::programs::wait_until("a line in the log", || {
        let said = std::fs::read_to_string(&log).ok()?;
        said.contains("refused 1 request with a wrong token").then_some(said)
    })?;
    assert!(said.contains("the newest from 127.0.0.1") && !said.contains("a-wrong-token"), "{said}");
    assert_eq!(said.matches("refused").count(), 1, "one line in ten seconds: {said}");
    Ok(())
}

#[test]
fn a_job_with_a_mistyped_token_trains_and_the_server_knows_of_it() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let server = Server::start_with_token(data.path(), TOKEN)?;
    let output = std::process::Command::new(program("paceline"))
        .args(["run", "-n", "2", "--server", &server.address, "--data"])
        .arg(data.path().join("none"))
        .args(["--", "char_lm", "--steps", "20"])
        .env("PACELINE_TOKEN", "q0R+Yz/8fKxw2lBvJm1tHc5uPdZ6aQeS7gNiTo3kXyA=")
        .output()?;
    let (printed, complaint) = said(&output);
    ensure!(output.status.success() && printed.contains("20/20"), "{printed}{complaint}");
    let access = ureq::get(format!("{}/api/v1/access", server.address))
        .header("authorization", format!("Bearer {TOKEN}"))
        .call()?
        .body_mut()
        .read_to_string()?;
    let unauthorized = &serde_json::from_str::<Value>(&access)?["unauthorized"];
    ensure!(unauthorized["wrong_token"].as_u64() >= Some(2), "one of each rank: {access}");
    ensure!(unauthorized["newest_peer"] == "127.0.0.1", "{access}");
    Ok(())
}

#[test]
fn a_token_file_that_others_can_read_has_a_warning_that_says_what_to_do() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("token");
    std::fs::write(&file, format!("{TOKEN}\n"))?;
    for (mode, warns) in [(0o644, true), (0o640, true), (0o600, false), (0o400, false)] {
        std::fs::set_permissions(&file, Permissions::from_mode(mode))?;
        let log = folder.path().join("log");
        let mut command = Server::command(&folder.path().join("data"), "127.0.0.1:0");
        command.arg("--token-file").arg(&file).stderr(Stdio::from(std::fs::File::create(&log)?));
        let server = Server::spawn(command)?;
        let cookie = sign_in(&server.address, ENCODED)?;
        let runs = ureq::get(format!("{}/api/v1/runs", server.address)).header("cookie", cookie).call()?;
        ensure!(runs.status() == 200, "{}", runs.status());
        ensure!(get_bytes(&format!("{}/api/v1/runs", server.address)).is_err(), "no token is needed");
        let said = std::fs::read_to_string(&log)?;
        let advice = format!("chmod 600 {}", file.display());
        ensure!(said.contains(&advice) == warns, "mode {mode:o}: {said}");
        server.kill()?;
    }
    Ok(())
}

#[test]
fn a_token_that_no_header_can_carry_is_refused_with_a_recipe() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    for token in ["short", "two words", "größer-als-acht"] {
        let mut command = std::process::Command::new(program("paceline"));
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(data.path())
            .env("PACELINE_TOKEN", token);
        let output = command.output()?;
        let (_, complaint) = said(&output);
        ensure!(!output.status.success() && complaint.contains("base64"), "{token:?}: {complaint}");
    }
    Ok(())
}

#[test]
fn a_server_with_tls_is_refused_before_the_job_starts() -> anyhow::Result<()> {
    for command in [
        &["run", "--server", "https://box", "--", "true"][..],
        &["stacks", "--server", "https://box"],
        &["import", "--server", "https://box", "."],
    ] {
        let output = paceline(command)?;
        let (_, complaint) = said(&output);
        ensure!(!output.status.success() && complaint.contains("no TLS"), "{command:?}: {complaint}");
    }
    Ok(())
}
