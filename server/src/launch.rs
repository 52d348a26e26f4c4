//! The launcher: starts the ranks of a job, shows their output, passes signals on, and ends the job if a rank fails.

mod bye;
mod ends;
pub mod hooks;
pub mod launcher;
mod output;
mod processes;
pub mod python;
pub mod rank;

use std::ffi::{OsStr, OsString};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus, Stdio};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use wire::ids::RunId;

pub(crate) use bye::client;
use output::{Output, Tail};

/// The time after the failure of a rank in which the others may end and report an error. They then get SIGTERM.
const GRACE: Duration = Duration::from_secs(8);
/// The time after a second Ctrl-C in which ranks may end. One that ignores the first may be writing a checkpoint.
const INTERRUPT_GRACE: Duration = Duration::from_secs(8);
/// The time from SIGTERM to SIGKILL.
const TERM_GRACE: Duration = Duration::from_secs(5);

/// A job to start.
pub struct Job {
    pub program: PathBuf,
    /// The arguments of the program.
    pub arguments: Vec<OsString>,
    /// The processes to start.
    pub start: Start,
    pub run: RunId,
    /// The name of the run.
    pub name: String,
    /// The address of the server that records go to.
    pub server: String,
    /// The server's token, if it requires one.
    pub token: Option<String>,
    /// Environment variables, in addition to those that every rank gets.
    pub environment: Vec<(OsString, OsString)>,
}

/// The processes of a job that this launcher starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// This number of ranks, each with torchrun's variables. Each line of their output is prefixed with the rank.
    Ranks(u32),
    /// One process that starts the ranks itself, as torchrun does. It writes to the terminal directly.
    Launcher,
}

impl Start {
    fn processes(self) -> u32 {
        match self {
            Self::Ranks(ranks) => ranks,
            Self::Launcher => 1,
        }
    }
}

/// Finds a command in `PATH`, as a shell would, or in the directory of this program.
///
/// # Errors
/// Returns an error that names the searched places if the command is not found.
pub fn find_program(command: &OsStr) -> anyhow::Result<PathBuf> {
    let path = PathBuf::from(command);
    if path.components().count() > 1 {
        return if path.is_file() { Ok(path) } else { bail!("there is no program {}", path.display()) };
    }
    let own = std::env::current_exe().ok().and_then(|exe| exe.parent().map(PathBuf::from));
    let searched = std::env::var_os("PATH").map(|paths| std::env::split_paths(&paths).collect::<Vec<_>>());
    let folders = searched.unwrap_or_default().into_iter().chain(own);
    let mut candidates = folders.map(|folder| folder.join(&path));
    candidates.find(|candidate| is_executable(candidate)).with_context(|| {
        format!(
            "there is no program {:?} in PATH or in the directory of paceline: give its path",
            path.display().to_string()
        )
    })
}

fn is_executable(path: &std::path::Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// Starts all ranks and waits until they have ended. Returns the exit code of the first rank that failed, or 128 plus
/// the signal number if a signal killed it.
///
/// # Errors
/// Returns an error if a rank cannot be started. Ranks that were already started are killed.
pub async fn launch(job: &Job) -> anyhow::Result<ExitCode> {
    let port = free_port()?;
    let output = Output::new(job.start.processes());
    let mut ranks = Ranks::default();
    let ends = (job.start == Start::Launcher).then(|| ends::Watch::start(job.run.clone()));
    for rank in 0..job.start.processes() {
        ranks.start(job, rank, port, &output)?;
    }
    let failure = ranks.wait().await?;
    output.finish().await;
    let Some((rank, status)) = failure else { return Ok(ExitCode::SUCCESS) };
    match job.start {
        Start::Ranks(count) => {
            bye::send(job, count, &ranks.failed).await;
            output.say(&describe_failure(rank, status, &ranks.tails));
        }
        Start::Launcher => {
            let ends = ends.map(ends::Watch::finish).unwrap_or_default();
            bye::send_for_launcher(job, ends, ranks.were_interrupted).await;
        }
    }
    Ok(ExitCode::from(exit_code(status)))
}

/// Returns a port that is free now. The job binds the port a moment later, and reports an error if another process has
/// bound it in between, as with torchrun.
fn free_port() -> anyhow::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port on 127.0.0.1")?;
    Ok(listener.local_addr()?.port())
}

/// The end of a rank that failed.
struct Failed {
    rank: u32,
    status: ExitStatus,
    at: SystemTime,
}

#[derive(Default)]
struct Ranks {
    groups: Vec<Pid>,
    waits: JoinSet<(u32, std::io::Result<ExitStatus>)>,
    /// The ranks that failed by themselves, before the launcher ended the others.
    failed: Vec<Failed>,
    /// Whether this program got a signal that ends jobs, and passed it on.
    were_interrupted: bool,
    tails: Vec<Tail>,
}

impl Ranks {
    fn start(&mut self, job: &Job, rank: u32, port: u16, output: &Output) -> anyhow::Result<()> {
        let mut child = command(job, rank, port)?
            .spawn()
            .with_context(|| format!("rank {rank}: cannot start {}", job.program.display()))?;
        let pid = child.id().and_then(|pid| Pid::from_raw(pid as i32));
        self.groups.extend(pid);
        if job.start != Start::Launcher {
            self.tails.push(output.follow(rank, &mut child));
        }
        self.waits.spawn(wait_for(rank, child));
        Ok(())
    }

    /// Waits for all ranks and returns the first failure. Passes the launcher's signals on to the ranks.
    async fn wait(&mut self) -> anyhow::Result<Option<(u32, ExitStatus)>> {
        let mut signals = [
            (signal(SignalKind::interrupt())?, Signal::INT),
            (signal(SignalKind::terminate())?, Signal::TERM),
            (signal(SignalKind::hangup())?, Signal::HUP),
        ];
        let [(interrupt, _), (terminate, _), (hangup, _)] = &mut signals;
        let (mut failure, mut interrupts) = (None, 0_u32);
        let (mut next, mut has_ended_others) = (NextStep::None, false);
        loop {
            let pressure = next.clone();
            tokio::select! {
                ended = self.waits.join_next() => match ended {
                    None => return Ok(failure),
                    Some(ended) => {
                        let (rank, status) = ended.context("cannot wait for a rank")?;
                        let status = status.with_context(|| format!("cannot wait for rank {rank}"))?;
                        if !status.success() && !has_ended_others {
                            self.failed.push(Failed { rank, status, at: SystemTime::now() });
                        }
                        if !status.success() && failure.is_none() {
                            failure = Some((rank, status));
                            next = NextStep::delayed(GRACE, Signal::TERM);
                        }
                    }
                },
                signal = pressure.due() => {
                    has_ended_others = true;
                    self.signal_all(signal);
                    next = NextStep::delayed(TERM_GRACE, Signal::KILL);
                }
                _ = interrupt.recv() => {
                    self.pass_on(Signal::INT);
                    interrupts += 1;
                    if interrupts == 2 {
                        next = next.or(NextStep::delayed(INTERRUPT_GRACE, Signal::TERM));
                    }
                }
                _ = terminate.recv() => self.pass_on(Signal::TERM),
                _ = hangup.recv() => self.pass_on(Signal::HUP),
            }
        }
    }

    /// Passes a signal that this program got on to all ranks.
    fn pass_on(&mut self, signal: Signal) {
        self.were_interrupted = true;
        self.signal_all(signal);
    }

    fn signal_all(&self, signal: Signal) {
        for &group in &self.groups {
            // A group that has already ended needs no signal.
            let _ended = kill_process_group(group, signal);
        }
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        if !self.waits.is_empty() {
            self.signal_all(Signal::KILL);
        }
    }
}

/// The next signal to ranks that do not end.
#[derive(Clone)]
enum NextStep {
    None,
    At(tokio::time::Instant, Signal),
}

impl NextStep {
    fn delayed(delay: Duration, signal: Signal) -> Self {
        Self::At(tokio::time::Instant::now() + delay, signal)
    }

    /// Returns this step, or another one if there is none.
    fn or(self, other: Self) -> Self {
        if matches!(self, Self::None) { other } else { self }
    }

    async fn due(self) -> Signal {
        match self {
            Self::None => std::future::pending().await,
            Self::At(when, signal) => {
                tokio::time::sleep_until(when).await;
                signal
            }
        }
    }
}

async fn wait_for(rank: u32, mut child: Child) -> (u32, std::io::Result<ExitStatus>) {
    (rank, child.wait().await)
}

fn command(job: &Job, rank: u32, port: u16) -> anyhow::Result<Command> {
    let own = std::env::current_exe().context("cannot find this program's own file")?;
    let mut command = Command::new(own);
    command
        .arg("__rank")
        .arg(&job.program)
        .args(&job.arguments)
        .env("PACELINE_SERVER", &job.server)
        .env("PACELINE_RUN_ID", job.run.as_str())
        .env("PACELINE_RUN_NAME", &job.name)
        .envs(job.environment.iter().map(|(name, value)| (name, value)))
        .env(rank::PARENT, std::process::id().to_string())
        // Each rank is a process group. Ctrl-C therefore reaches only the launcher, which passes it on once.
        .process_group(0)
        .kill_on_drop(true);
    if let Start::Ranks(ranks) = job.start {
        command
            .env("RANK", rank.to_string())
            .env("LOCAL_RANK", rank.to_string())
            .env("WORLD_SIZE", ranks.to_string())
            .env("LOCAL_WORLD_SIZE", ranks.to_string())
            .env("MASTER_ADDR", "127.0.0.1")
            .env("MASTER_PORT", port.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
    }
    // A process that reads the terminal from another process group would be stopped.
    command.stdin(Stdio::null());
    if let Some(token) = &job.token {
        command.env("PACELINE_TOKEN", token);
    }
    // As in torchrun: several ranks with one thread per core each would compete for the cores.
    for variable in ["OMP_NUM_THREADS", "RAYON_NUM_THREADS"] {
        if job.start.processes() > 1 && std::env::var_os(variable).is_none() {
            command.env(variable, "1");
        }
    }
    Ok(command)
}

fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}

fn how_it_ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".into(),
    }
}

fn describe_failure(rank: u32, status: ExitStatus, tails: &[Tail]) -> String {
    let how = how_it_ended(status);
    let lines = tails.get(rank as usize).map(Tail::lines).unwrap_or_default();
    let said =
        if lines.is_empty() { "It printed nothing.".into() } else { format!("Its last lines:\n{lines}") };
    format!("rank {rank} was the first to fail: it {how}. {said}")
}
