//! The built programs, started as a user would.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

/// Nothing that a test waits for takes longer.
const PATIENCE: Duration = Duration::from_secs(120);

/// The path of a built program.
///
/// # Panics
/// When it was not built: `cargo build --release` comes first.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a file");
    let folder =
        test.ancestors().find(|folder| folder.ends_with("release")).expect("tests are built with --release");
    let path = folder.join(name);
    assert!(path.is_file(), "{} is not built: run cargo build --release first", path.display());
    path
}

/// What a program printed, and what it complained of.
#[must_use]
pub fn said(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// What one of the programs that judge on a GPU (`gpu/accept`) says of `arguments`.
///
/// # Errors
/// When it fails.
pub fn judged(judge: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let judge = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("gpu").join("accept").join(judge);
    let output = Command::new("python3").arg(judge).args(arguments).output()?;
    let (printed, complaints) = said(&output);
    ensure!(output.status.success(), "{printed}{complaints}");
    Ok(printed)
}

/// A `paceline serve` of its own; killed when dropped.
pub struct Server {
    child: Child,
    /// `http://127.0.0.1:PORT`
    pub address: String,
    _stdout: BufReader<ChildStdout>,
}

impl Server {
    /// Starts one on `data`, on a free port.
    ///
    /// # Errors
    /// When it does not say where it listens.
    pub fn start(data: &Path) -> anyhow::Result<Self> {
        Self::start_at(data, "127.0.0.1:0")
    }

    /// Starts one where another was.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_at(data: &Path, listen: &str) -> anyhow::Result<Self> {
        let mut command = Command::new(program("paceline"));
        command.args(["serve", "--listen", listen, "--data"]).arg(data);
        Self::spawn(command)
    }

    /// Starts one by a command that becomes it.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn spawn(mut command: Command) -> anyhow::Result<Self> {
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let mut stdout = BufReader::new(child.stdout.take().context("stdout is piped")?);
        let mut line = String::new();
        stdout.read_line(&mut line)?;
        let address =
            line.trim().strip_prefix("Dashboard: ").with_context(|| format!("the server said {line:?}"))?;
        Ok(Self { child, address: address.to_owned(), _stdout: stdout })
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// `127.0.0.1:PORT`
    #[must_use]
    pub fn listen(&self) -> &str {
        self.address.trim_start_matches("http://")
    }

    /// Ends it as a power cut would.
    ///
    /// # Errors
    /// When it cannot be signalled.
    pub fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Killed already, or gone: either way it is over.
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Resident memory of a process, in bytes.
///
/// # Errors
/// When /proc does not say.
pub fn resident_bytes(pid: u32) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("no VmRSS")?;
    let kib: u64 = line.split_whitespace().nth(1).context("no number")?.parse()?;
    Ok(kib * 1024)
}

/// A process under way; killed when dropped. (Ranks are tied to their `paceline run`, and die with it.)
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// A `paceline run` under way; killed, with its ranks, when dropped.
pub struct Job {
    child: Child,
    stdout: BufReader<ChildStdout>,
    /// All it has printed so far.
    pub printed: String,
}

impl Job {
    /// Starts `paceline run ARGUMENTS`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(arguments: &[&str]) -> anyhow::Result<Self> {
        let mut child = Command::new(program("paceline"))
            .arg("run")
            .args(arguments)
            .env_remove("PACELINE_SERVER")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let stdout = BufReader::new(child.stdout.take().context("stdout is piped")?);
        Ok(Self { child, stdout, printed: String::new() })
    }

    /// Reads on until a line contains `text`, and returns the line.
    ///
    /// # Errors
    /// When the job ends before.
    pub fn wait_for(&mut self, text: &str) -> anyhow::Result<String> {
        loop {
            let mut line = String::new();
            ensure!(
                self.stdout.read_line(&mut line)? > 0,
                "ended before {text:?}; it printed:\n{}",
                self.printed
            );
            self.printed.push_str(&line);
            if line.contains(text) {
                return Ok(line);
            }
        }
    }

    /// The process ids of its ranks, in order of rank.
    ///
    /// # Errors
    /// When /proc cannot be read.
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

    /// Waits for the end; returns the exit code, what it printed, and its standard error.
    ///
    /// # Errors
    /// When it does not end in time.
    pub fn finish(mut self) -> anyhow::Result<(i32, String, String)> {
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest)?;
        self.printed.push_str(&rest);
        let mut complaints = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            stderr.read_to_string(&mut complaints)?;
        }
        let deadline = Instant::now() + PATIENCE;
        // Both streams are closed: the process is ending.
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                return Ok((status.code().unwrap_or(-1), std::mem::take(&mut self.printed), complaints));
            }
            std::thread::yield_now();
        }
        bail!("the job closed its output and did not end")
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // Its ranks are tied to it and die with it.
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Runs `paceline ARGUMENTS` to its end.
///
/// # Errors
/// When it cannot be run.
pub fn paceline(arguments: &[&str]) -> anyhow::Result<Output> {
    Ok(Command::new(program("paceline")).args(arguments).env_remove("PACELINE_SERVER").output()?)
}

/// The JSON that `paceline report RUN --json` prints.
///
/// # Errors
/// When it fails or prints something else.
pub fn report(data: &Path, run: &str) -> anyhow::Result<Value> {
    let output = paceline(&["report", run, "--json", "--data", &data.to_string_lossy()])?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Sizes of the buckets of the newest step of rank 0, in bytes and in order, as `paceline export --format csv` has them.
///
/// # Errors
/// When there is no run.
pub fn bucket_sizes(data: &Path) -> anyhow::Result<Vec<u64>> {
    let file = data.join("buckets.csv");
    let (data, path) = (data.to_string_lossy(), file.to_string_lossy());
    let arguments = ["export", "latest", "--format", "csv", "--rank", "0", "--data", &data, "-o", &path];
    let output = paceline(&arguments)?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read_to_string(&file)?;
    let rows: Vec<Vec<&str>> = text.lines().skip(1).map(|line| line.split(',').collect()).collect();
    let newest = rows.last().context("no bucket was exported")?[0];
    rows.iter().filter(|row| row[0] == newest).map(|row| Ok(row[4].parse()?)).collect()
}

/// GETs JSON.
///
/// # Errors
/// When the server does not answer with JSON.
pub fn get_json(url: &str) -> anyhow::Result<Value> {
    let text = ureq::get(url).call()?.body_mut().read_to_string()?;
    Ok(serde_json::from_str(&text)?)
}

/// Asks again and again until `answer` is there, or patience ends.
///
/// # Errors
/// When it is not there in time; the error says what was waited for.
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
