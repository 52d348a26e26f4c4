//! The built programs, started as a user starts them.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use wire::batch::Batch;

/// The longest wait for anything in a test.
const PATIENCE: Duration = Duration::from_secs(120);
/// The longest wait for the answer to a batch.
const ANSWERED: Duration = Duration::from_secs(60);

/// The answer to a batch.
pub type Answer = ureq::http::Response<ureq::Body>;

/// Returns the path of a built program.
///
/// # Panics
/// Panics if the program is not built; run `cargo build` first, in the profile of the test or bench.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    let path = folder().join(name);
    assert!(path.is_file(), "{} is not built: run cargo build first, in the same profile", path.display());
    path
}

/// Returns the folder of the built programs: `target/debug`, or `target/release` for benches.
///
/// # Panics
/// Panics if this program has no file.
#[must_use]
pub fn folder() -> PathBuf {
    let here = std::env::current_exe().expect("this program has no file");
    let folder = here.parent().expect("a file is in a folder");
    // Test programs are one folder below.
    folder.parent().filter(|_| folder.ends_with("deps")).unwrap_or(folder).to_owned()
}

/// Sends a batch to the server at this address, and returns the answer, whatever its status is.
///
/// # Errors
/// Returns an error if the server does not answer within a minute.
pub fn post(address: &str, batch: &Batch) -> anyhow::Result<Answer> {
    let config = ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(ANSWERED));
    let frame = wire::codec::encode(batch)?;
    Ok(config.build().new_agent().post(format!("{address}/api/v1/ingest")).send(&frame[..])?)
}

/// Returns the standard output and the standard error of a program.
#[must_use]
pub fn said(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// Runs one of the checkers in `gpu/accept` with `arguments` and returns its output.
///
/// # Errors
/// Returns an error if the checker fails.
pub fn judged(judge: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let judge = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../gpu/accept").join(judge);
    let output = Command::new("python3").arg(judge).args(arguments).output()?;
    let (printed, complaints) = said(&output);
    ensure!(output.status.success(), "{printed}{complaints}");
    Ok(printed)
}

/// A `paceline serve` process. Dropping it kills the process.
pub struct Server {
    child: Child,
    /// The address: `http://127.0.0.1:PORT`.
    pub address: String,
    _stdout: BufReader<ChildStdout>,
}

impl Server {
    /// Starts a server on `data` and on a free port.
    ///
    /// # Errors
    /// Returns an error if the server does not print its address.
    pub fn start(data: &Path) -> anyhow::Result<Self> {
        Self::start_at(data, "127.0.0.1:0")
    }

    /// Starts a server at a given address, for instance where another server was.
    ///
    /// # Errors
    /// Returns the errors of [`Self::start`].
    pub fn start_at(data: &Path, listen: &str) -> anyhow::Result<Self> {
        Self::spawn(Self::command(data, listen))
    }

    /// Starts a server on a free port that requires a token.
    ///
    /// # Errors
    /// Returns the errors of [`Self::start`].
    pub fn start_with_token(data: &Path, token: &str) -> anyhow::Result<Self> {
        let mut command = Self::command(data, "127.0.0.1:0");
        command.env("PACELINE_TOKEN", token);
        Self::spawn(command)
    }

    /// Returns the command of a server on `data`, to which arguments of `paceline serve` may be added.
    #[must_use]
    pub fn command(data: &Path, listen: &str) -> Command {
        let mut command = Command::new(program("paceline"));
        // Starts the server as the launcher starts ranks, which die with it: a killed test or bench leaves no server
        // running.
        command
            .arg("__rank")
            .arg(program("paceline"))
            .args(["serve", "--listen", listen, "--data"])
            .arg(data);
        command.env("PACELINE_LAUNCHER_PID", std::process::id().to_string());
        command
    }

    /// Starts a server with a command that becomes the server.
    ///
    /// # Errors
    /// Returns the errors of [`Self::start`].
    pub fn spawn(mut command: Command) -> anyhow::Result<Self> {
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let mut stdout = BufReader::new(child.stdout.take().context("stdout is not piped")?);
        let mut line = String::new();
        stdout.read_line(&mut line)?;
        let address = line
            .trim()
            .strip_prefix("Dashboard: ")
            .with_context(|| format!("the server printed {line:?}"))?;
        Ok(Self { child, address: address.to_owned(), _stdout: stdout })
    }

    /// Returns the process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the address without the scheme: `127.0.0.1:PORT`.
    #[must_use]
    pub fn listen(&self) -> &str {
        self.address.trim_start_matches("http://")
    }

    /// Sends a batch. Returns the status and the text of the answer.
    ///
    /// # Errors
    /// Returns an error if the server does not answer with text.
    pub fn post(&self, batch: &Batch) -> anyhow::Result<(u16, String)> {
        let mut answer = post(&self.address, batch)?;
        Ok((answer.status().as_u16(), answer.body_mut().read_to_string()?))
    }

    /// Sends batches, which the server must store.
    ///
    /// # Errors
    /// Returns an error if the server does not store one.
    pub fn send(&self, batches: impl IntoIterator<Item = Batch>) -> anyhow::Result<()> {
        for batch in batches {
            let (status, said) = self.post(&batch)?;
            ensure!(status == 200 && said.is_empty(), "{status} {said}");
        }
        Ok(())
    }

    /// Kills the server, as a power cut would end it.
    ///
    /// # Errors
    /// Returns an error if the process cannot be killed.
    pub fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An error means that the process has already ended.
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Returns the resident memory of a process in bytes.
///
/// # Errors
/// Returns an error if /proc does not have the figure.
pub fn resident_bytes(pid: u32) -> anyhow::Result<u64> {
    memory(pid, "VmRSS:")
}

/// Returns the most resident memory that a process has had, in bytes.
///
/// # Errors
/// Returns an error if /proc does not have the figure.
pub fn most_resident_bytes(pid: u32) -> anyhow::Result<u64> {
    memory(pid, "VmHWM:")
}

fn memory(pid: u32, figure: &str) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|line| line.starts_with(figure));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    let kib: u64 = number.with_context(|| format!("{figure} is missing"))?.parse()?;
    Ok(kib * 1024)
}

/// A child process. Dropping it kills the process. (Ranks die with their `paceline run`.)
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// A `paceline run` process. Dropping it kills the process with its ranks.
pub struct Job {
    child: Child,
    stdout: BufReader<ChildStdout>,
    /// The output so far.
    pub printed: String,
}

impl Job {
    /// Starts `paceline run ARGUMENTS`.
    ///
    /// # Errors
    /// Returns an error if the program cannot be started.
    pub fn start(arguments: &[&str]) -> anyhow::Result<Self> {
        let mut child = Command::new(program("paceline"))
            .arg("run")
            .args(arguments)
            .env_remove("PACELINE_SERVER")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let stdout = BufReader::new(child.stdout.take().context("stdout is not piped")?);
        Ok(Self { child, stdout, printed: String::new() })
    }

    /// Reads output until a line contains `text`, and returns that line.
    ///
    /// # Errors
    /// Returns an error if the job ends before that.
    pub fn wait_for(&mut self, text: &str) -> anyhow::Result<String> {
        loop {
            let mut line = String::new();
            ensure!(
                self.stdout.read_line(&mut line)? > 0,
                "the job ended before {text:?}; it printed:\n{}",
                self.printed
            );
            self.printed.push_str(&line);
            if line.contains(text) {
                return Ok(line);
            }
        }
    }

    /// Returns the process ids of the ranks, in order of rank.
    ///
    /// # Errors
    /// Returns an error if /proc cannot be read.
    pub fn rank_pids(&self) -> anyhow::Result<Vec<u32>> {
        let path = format!("/proc/{0}/task/{0}/children", self.child.id());
        let children = std::fs::read_to_string(path)?;
        let mut ranks = Vec::new();
        for pid in children.split_whitespace() {
            let environment = std::fs::read(format!("/proc/{pid}/environ"))?;
            let rank = environment.split(|&byte| byte == 0).find_map(|entry| entry.strip_prefix(b"RANK="));
            if let Some(rank) = rank {
                ranks.push((String::from_utf8_lossy(rank).parse::<u32>()?, pid.parse()?));
            }
        }
        ranks.sort_unstable();
        Ok(ranks.into_iter().map(|(_, pid)| pid).collect())
    }

    /// Sends SIGINT to the launcher, as Ctrl-C does.
    ///
    /// # Errors
    /// Returns an error if the launcher has ended.
    pub fn interrupt(&self) -> anyhow::Result<()> {
        let pid = Pid::from_raw(self.child.id() as i32).context("a pid is positive")?;
        Ok(kill_process(pid, Signal::INT)?)
    }

    /// Waits for the end of the job. Returns the exit code, the standard output and the standard error.
    ///
    /// # Errors
    /// Returns an error if the job does not end in time.
    pub fn finish(mut self) -> anyhow::Result<(i32, String, String)> {
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest)?;
        self.printed.push_str(&rest);
        let mut complaints = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            stderr.read_to_string(&mut complaints)?;
        }
        let deadline = Instant::now() + PATIENCE;
        // Both streams are closed, so the process is ending.
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                return Ok((status.code().unwrap_or(-1), std::mem::take(&mut self.printed), complaints));
            }
            std::thread::yield_now();
        }
        bail!("the job closed its output but did not end")
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // The ranks die with `paceline run`.
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Runs `paceline ARGUMENTS` to its end.
///
/// # Errors
/// Returns an error if the program cannot be run.
pub fn paceline(arguments: &[&str]) -> anyhow::Result<Output> {
    Ok(Command::new(program("paceline")).args(arguments).env_remove("PACELINE_SERVER").output()?)
}

/// Returns the JSON of `paceline report RUN --json`.
///
/// # Errors
/// Returns an error if the command fails or prints something else.
pub fn report(data: &Path, run: &str) -> anyhow::Result<Value> {
    let output = paceline(&["report", run, "--json", "--data", &data.to_string_lossy()])?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Returns the sentence on a gap of a report, by kind.
#[must_use]
pub fn gap<'a>(report: &'a Value, kind: &str) -> Option<&'a str> {
    report["gaps"].as_array()?.iter().find(|gap| gap["kind"] == kind)?["sentence"].as_str()
}

/// Returns the sizes in bytes of the buckets in the newest step of rank 0, in order, from `paceline export --format
/// csv`.
///
/// # Errors
/// Returns an error if there is no run.
pub fn bucket_sizes(data: &Path) -> anyhow::Result<Vec<u64>> {
    let file = data.join("buckets.csv");
    let (data, path) = (data.to_string_lossy(), file.to_string_lossy());
    let arguments = ["export", "latest", "--format", "csv", "--rank", "0", "--data", &data, "-o", &path];
    let output = paceline(&arguments)?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read_to_string(&file)?;
    let rows: Vec<Vec<&str>> = text.lines().skip(1).map(|line| line.split(',').collect()).collect();
    let newest = rows.last().context("the export has no buckets")?[0];
    rows.iter().filter(|row| row[0] == newest).map(|row| Ok(row[4].parse()?)).collect()
}

/// Sends a GET request and parses the answer as JSON.
///
/// # Errors
/// Returns an error if the server does not answer with JSON.
pub fn get_json(url: &str) -> anyhow::Result<Value> {
    let text = ureq::get(url).call()?.body_mut().read_to_string()?;
    Ok(serde_json::from_str(&text)?)
}

/// Sends a GET request. Returns the status and the text of the answer, which may be an error.
///
/// # Errors
/// Returns an error if the server does not answer with text.
pub fn get(url: &str) -> anyhow::Result<(u16, String)> {
    let client = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
    let mut answer = client.get(url).call()?;
    Ok((answer.status().as_u16(), answer.body_mut().read_to_string()?))
}

/// Sends a GET request and returns the body of the answer.
///
/// # Errors
/// Returns an error if the server does not answer, or with an error.
pub fn get_bytes(url: &str) -> anyhow::Result<Vec<u8>> {
    Ok(ureq::get(url).call()?.body_mut().read_to_vec()?)
}

/// Signs in with a token, as a browser does, and returns the cookie that it would send from then on: `NAME=ID`.
///
/// # Errors
/// Returns an error if the server does not redirect with a cookie.
pub fn sign_in(address: &str, token: &str) -> anyhow::Result<String> {
    let client: ureq::Agent = ureq::Agent::config_builder().max_redirects(0).build().into();
    let answer = client.get(format!("{address}/?token={token}")).call()?;
    let cookie = answer.headers().get("set-cookie").and_then(|cookie| cookie.to_str().ok());
    let cookie = cookie.with_context(|| format!("{} without a cookie", answer.status()))?;
    Ok(cookie.split(';').next().unwrap_or_default().to_owned())
}

/// Calls `answer` repeatedly until it returns a value.
///
/// # Errors
/// Returns an error that names `what` if there is no value in time.
pub fn wait_until<T>(what: &str, mut answer: impl FnMut() -> Option<T>) -> anyhow::Result<T> {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Some(found) = answer() {
            return Ok(found);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    bail!("waited {PATIENCE:?} for {what}")
}
