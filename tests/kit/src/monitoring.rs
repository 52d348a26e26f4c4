//! The real Prometheus and Alertmanager with the shipped configuration, and a receiver for their messages.
#![allow(clippy::disallowed_methods, reason = "threads and queues of a test end with it")]

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use serde_json::Value;

use crate::programs::{Running, get_json, wait_until};

/// The names of the programs in Debian.
const PROGRAMS: [&str; 3] = ["prometheus", "prometheus-alertmanager", "promtool"];
/// The factor by which every `for` of the shipped rules is shortened: minutes become seconds.
const FASTER: u64 = 20;

/// Returns `deploy/prometheus` of this repository.
#[must_use]
pub fn shipped() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/prometheus")
}

/// Returns true if the programs are installed. Otherwise prints on standard error that the tests are skipped.
///
/// # Panics
/// Panics if programs are missing and `REQUIRE_PROMETHEUS` is set. `cargo xtask test` installs them and sets it.
#[must_use]
pub fn is_installed() -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |program: &&str| std::env::split_paths(&paths).any(|path| path.join(program).is_file());
    let missing: Vec<&str> = PROGRAMS.into_iter().filter(|program| !is_there(program)).collect();
    if missing.is_empty() {
        return true;
    }
    assert!(
        std::env::var_os("REQUIRE_PROMETHEUS").is_none(),
        "REQUIRE_PROMETHEUS is set, but these programs are not installed: {missing:?}"
    );
    // Bypasses the test harness, which shows the output of failed tests only.
    let _unheard = writeln!(
        std::io::stderr(),
        "SKIP alert tests: {} missing (packages prometheus and prometheus-alertmanager)",
        missing.join(", ")
    );
    false
}

/// An alert that Alertmanager sent.
#[derive(Clone, Debug)]
pub struct Message {
    /// The time of arrival.
    pub at: Instant,
    /// The labels, annotations and status of the alert.
    pub alert: Value,
}

impl Message {
    /// Returns the value of a label, or an empty string if the alert does not have it.
    #[must_use]
    pub fn label(&self, name: &str) -> &str {
        self.alert["labels"][name].as_str().unwrap_or_default()
    }
}

/// The speed of alerts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    /// The intervals and the `for`s of the shipped files.
    AsShipped,
    /// Short intervals, and seconds in place of minutes.
    Hurried,
}

/// Prometheus, Alertmanager and a webhook that monitor one Paceline server.
pub struct Monitoring {
    prometheus: String,
    messages: Receiver<Message>,
    _programs: [Running; 2],
    _receiver: tokio::runtime::Runtime,
    _folder: tempfile::TempDir,
}

impl Monitoring {
    /// Starts the programs with the shipped files, with their addresses replaced. `server` is `127.0.0.1:PORT`.
    ///
    /// # Errors
    /// Returns an error if a program does not start, or if a shipped file lacks a text to be replaced.
    pub fn start_as_shipped(server: &str) -> anyhow::Result<Self> {
        Self::start_with(server, Pace::AsShipped)
    }

    /// Starts the programs with short intervals, so that they scrape, evaluate and send almost at once.
    ///
    /// # Errors
    /// Returns the errors of [`Self::start_as_shipped`].
    pub fn start(server: &str) -> anyhow::Result<Self> {
        Self::start_with(server, Pace::Hurried)
    }

    fn start_with(server: &str, pace: Pace) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let (sender, messages) = channel();
        let (receiver, webhook) = listen(sender)?;
        let mut manager = vec![("127.0.0.1:9095", webhook.as_str())];
        if pace == Pace::Hurried {
            manager.extend([
                ("group_wait: 10s", "group_wait: 0s"),
                ("group_interval: 1m", "group_interval: 1s"),
            ]);
        }
        write(folder.path(), "alertmanager.yml", &manager)?;
        let arguments = ["--storage.path=alertmanager", "--cluster.listen-address="];
        let (alertmanager, address) =
            start(folder.path(), "prometheus-alertmanager", "alertmanager.yml", &arguments)?;
        write(folder.path(), "recording.yml", &[])?;
        write(folder.path(), "alerts.yml", &[])?;
        let mut scraper = vec![("127.0.0.1:8080", server), ("127.0.0.1:9093", &address)];
        if pace == Pace::Hurried {
            hurry(&folder.path().join("alerts.yml"))?;
            scraper.extend([
                ("scrape_interval: 5s", "scrape_interval: 1s"),
                ("evaluation_interval: 5s", "evaluation_interval: 1s"),
            ]);
        }
        write(folder.path(), "prometheus.yml", &scraper)?;
        let (prometheus, address) =
            start(folder.path(), "prometheus", "prometheus.yml", &["--storage.tsdb.path=tsdb"])?;
        let monitoring = Self {
            prometheus: format!("http://{address}"),
            messages,
            _programs: [prometheus, alertmanager],
            _receiver: receiver,
            _folder: folder,
        };
        wait_until("the first scrape", || monitoring.query("up == 1").ok().filter(|up| !up.is_empty()))?;
        Ok(monitoring)
    }

    /// Returns the result of an instant query, one value per series.
    ///
    /// # Errors
    /// Returns an error if Prometheus does not answer or rejects the query.
    pub fn query(&self, expression: &str) -> anyhow::Result<Vec<Value>> {
        let query: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let answer = get_json(&format!("{}/api/v1/query?query={query}", self.prometheus))?;
        Ok(answer["data"]["result"].as_array().context("no result")?.clone())
    }

    /// Waits for a message that `is` accepts.
    ///
    /// # Errors
    /// Returns an error that lists all other messages if none arrives in time.
    pub fn wait_for(
        &self,
        what: &str,
        limit: Duration,
        is: impl Fn(&Message) -> bool,
    ) -> anyhow::Result<Message> {
        let deadline = Instant::now() + limit;
        let mut others = Vec::new();
        while let Ok(message) = self.messages.recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            if is(&message) {
                return Ok(message);
            }
            others.push(message);
        }
        anyhow::bail!("no {what} within {limit:?}; received {others:#?}")
    }

    /// Returns all received messages that were not waited for.
    #[must_use]
    pub fn received(&self) -> Vec<Message> {
        self.messages.try_iter().collect()
    }
}

/// Copies a shipped file with replacements. Every replaced text must occur in the file.
fn write(folder: &Path, name: &str, replaced: &[(&str, &str)]) -> anyhow::Result<()> {
    let mut text = fs::read_to_string(shipped().join(name))?;
    for (from, to) in replaced {
        ensure!(text.contains(from), "{name} has no {from:?}");
        text = text.replace(from, to);
    }
    Ok(fs::write(folder.join(name), text)?)
}

/// Shortens every `for:` in a copied file of rules, so that a test does not have to wait for minutes.
fn hurry(path: &Path) -> anyhow::Result<()> {
    let text = fs::read_to_string(path)?;
    let minutes =
        |line: &str| line.trim_start().strip_prefix("for: ")?.strip_suffix('m')?.parse::<u64>().ok();
    let hurried = text.lines().map(|line| match minutes(line) {
        Some(minutes) => format!("        for: {}s\n", minutes * 60 / FASTER),
        None => format!("{line}\n"),
    });
    Ok(fs::write(path, hurried.collect::<String>())?)
}

/// Starts a program on a free port. Returns it with its address, which it logs.
fn start(
    folder: &Path,
    program: &str,
    configuration: &str,
    more: &[&str],
) -> anyhow::Result<(Running, String)> {
    let child = Command::new(program)
        .current_dir(folder)
        .arg(format!("--config.file={configuration}"))
        .arg("--web.listen-address=127.0.0.1:0")
        .args(more)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {program}"))?;
    let mut running = Running(child);
    let mut log = BufReader::new(running.0.stderr.take().context("stderr is not piped")?);
    let mut said = String::new();
    loop {
        let before = said.len();
        ensure!(log.read_line(&mut said)? > 0, "{program} exited before it listened; its log:\n{said}");
        let line = &said[before..];
        if let Some((_, address)) = line.split_once("msg=\"Listening on\" address=") {
            let address = address.trim().to_owned();
            // The log must be read to the end: a full pipe would block the program.
            std::thread::Builder::new().name(format!("log of {program}")).spawn(move || {
                let _end = std::io::copy(&mut log, &mut std::io::sink());
            })?;
            return Ok((running, address));
        }
    }
}

/// Starts a receiver for Alertmanager's webhook and returns its address.
fn listen(sender: Sender<Message>) -> anyhow::Result<(tokio::runtime::Runtime, String)> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))?;
    let address = listener.local_addr()?.to_string();
    let router = Router::new().route("/alerts", post(take)).with_state(sender);
    runtime.spawn(async move { axum::serve(listener, router).await });
    Ok((runtime, address))
}

async fn take(State(sender): State<Sender<Message>>, Json(group): Json<Value>) {
    for alert in group["alerts"].as_array().into_iter().flatten() {
        // An error means that the test has ended and no longer receives messages.
        let _gone = sender.send(Message { at: Instant::now(), alert: alert.clone() });
    }
}
