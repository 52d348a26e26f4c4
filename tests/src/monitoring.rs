//! The real Prometheus and Alertmanager with the shipped configuration, and a receiver of its messages.

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

/// The programs, as Debian names them.
const PROGRAMS: [&str; 3] = ["prometheus", "prometheus-alertmanager", "promtool"];
/// Every `for` of the shipped rules passes so many times faster: minutes become seconds.
const FASTER: u64 = 20;

/// `deploy/prometheus` of this repository.
#[must_use]
pub fn shipped() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("deploy").join("prometheus")
}

/// Whether the programs are there; says so on standard error where they are not, and fails where they must be.
///
/// # Panics
/// When they are missing and `REQUIRE_PROMETHEUS` is set, as `cargo xtask test` does after installing them.
#[must_use]
pub fn is_installed() -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |program: &&str| std::env::split_paths(&paths).any(|path| path.join(program).is_file());
    let missing: Vec<&str> = PROGRAMS.into_iter().filter(|program| !is_there(program)).collect();
    if missing.is_empty() {
        return true;
    }
    assert!(std::env::var_os("REQUIRE_PROMETHEUS").is_none(), "not installed: {missing:?}");
    // Past the harness, which shows what a test prints only when it fails.
    let _unheard = writeln!(
        std::io::stderr(),
        "SKIP alert tests: {} missing (packages prometheus and prometheus-alertmanager)",
        missing.join(", ")
    );
    false
}

/// One alert as Alertmanager sent it.
#[derive(Clone, Debug)]
pub struct Message {
    /// When it came.
    pub at: Instant,
    /// Its labels, annotations and status.
    pub alert: Value,
}

impl Message {
    /// A label's value; empty where it has none of that name.
    #[must_use]
    pub fn label(&self, name: &str) -> &str {
        self.alert["labels"][name].as_str().unwrap_or_default()
    }
}

/// How long alerts take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    /// With the intervals and the `for`s of the shipped files.
    AsShipped,
    /// Minutes become seconds.
    Hurried,
}

/// Prometheus, Alertmanager and a webhook that watch one Paceline server.
pub struct Monitoring {
    prometheus: String,
    messages: Receiver<Message>,
    _programs: [Running; 2],
    _receiver: tokio::runtime::Runtime,
    _folder: tempfile::TempDir,
}

impl Monitoring {
    /// Starts them with the shipped files, in which addresses are replaced. `server` is `127.0.0.1:PORT`.
    ///
    /// # Errors
    /// When a program does not start, or the shipped files do not have what is to be replaced.
    pub fn start_as_shipped(server: &str) -> anyhow::Result<Self> {
        Self::start_with(server, Pace::AsShipped)
    }

    /// Starts them so that they scrape, judge and send without delay.
    ///
    /// # Errors
    /// As [`Self::start_as_shipped`].
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

    /// The result of an instant query, one value a series.
    ///
    /// # Errors
    /// When Prometheus does not answer, or refuses the query.
    pub fn query(&self, expression: &str) -> anyhow::Result<Vec<Value>> {
        let query: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let answer = get_json(&format!("{}/api/v1/query?query={query}", self.prometheus))?;
        Ok(answer["data"]["result"].as_array().context("no result")?.clone())
    }

    /// Waits for a message that `is` the one.
    ///
    /// # Errors
    /// When it does not come in time; the error lists those that came.
    pub fn wait_for(
        &self,
        what: &str,
        within: Duration,
        is: impl Fn(&Message) -> bool,
    ) -> anyhow::Result<Message> {
        let deadline = Instant::now() + within;
        let mut others = Vec::new();
        while let Ok(message) = self.messages.recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            if is(&message) {
                return Ok(message);
            }
            others.push(message);
        }
        anyhow::bail!("no {what} within {within:?}; what came was {others:#?}")
    }

    /// All messages that have come and were not waited for.
    #[must_use]
    pub fn received(&self) -> Vec<Message> {
        self.messages.try_iter().collect()
    }
}

/// Copies a shipped file, each text that is to be replaced being there.
fn write(folder: &Path, name: &str, replaced: &[(&str, &str)]) -> anyhow::Result<()> {
    let mut text = fs::read_to_string(shipped().join(name))?;
    for (from, to) in replaced {
        ensure!(text.contains(from), "{name} has no {from:?}");
        text = text.replace(from, to);
    }
    Ok(fs::write(folder.join(name), text)?)
}

/// Makes every `for:` of a copied file of rules pass faster, so that a test need not wait for minutes.
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

/// Starts a program on a free port; returns it with its address, which it logs.
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
    let mut log = BufReader::new(running.0.stderr.take().context("stderr is piped")?);
    let mut said = String::new();
    loop {
        let before = said.len();
        ensure!(log.read_line(&mut said)? > 0, "{program} ended before it listened; it said:\n{said}");
        let line = &said[before..];
        if let Some((_, address)) = line.split_once("msg=\"Listening on\" address=") {
            let address = address.trim().to_owned();
            // A pipe that nobody reads would fill up and stop the program.
            std::thread::Builder::new().name(format!("log of {program}")).spawn(move || {
                let _end = std::io::copy(&mut log, &mut std::io::sink());
            })?;
            return Ok((running, address));
        }
    }
}

/// Listens for Alertmanager's webhook; returns the address as well.
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
        // A test that has seen enough no longer listens.
        let _gone = sender.send(Message { at: Instant::now(), alert: alert.clone() });
    }
}
