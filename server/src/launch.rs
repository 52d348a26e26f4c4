//! Starts the ranks of a job and sees them through: output, signals, failures.

pub mod doors;
mod epitaph;
mod output;
pub mod rank;

use std::ffi::{OsStr, OsString};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use wire::ids::RunId;

pub(crate) use epitaph::client;
use output::{Output, Tail};

/// When one rank fails, the others get this long to end by themselves and say why.
const GRACE: Duration = Duration::from_secs(8);
/// Then SIGTERM, and after this SIGKILL.
const TERM_GRACE: Duration = Duration::from_secs(5);

/// What to start.
pub struct Job {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// How many of it.
    pub start: Start,
    /// The run.
    pub run: RunId,
    /// Its name.
    pub name: String,
    /// Where records go.
    pub server: String,
    /// The server's token.
    pub token: Option<String>,
    /// Variables beside those that every rank gets.
    pub environment: Vec<(OsString, OsString)>,
}

/// What a program is to its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// So many ranks, each with torchrun's variables, their output told apart.
    Ranks(u32),
    /// It starts the ranks itself, as torchrun does; it keeps the terminal.
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

/// Finds a command as a shell would, and beside this program.
///
/// # Errors
/// When it is nowhere; the error says where it was looked for.
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
            "there is no program {:?} in PATH or beside paceline; give its path",
            path.display().to_string()
        )
    })
}

fn is_executable(path: &std::path::Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// Starts all ranks and waits until they have ended. The exit code is that of the first rank to fail, 128 plus
/// the signal's number where a signal ended it.
///
/// # Errors
/// When a rank cannot be started; those started before are ended.
pub async fn launch(job: &Job) -> anyhow::Result<ExitCode> {
    let port = free_port()?;
    let output = Output::new(job.start.processes());
    let mut ranks = Ranks::default();
    for rank in 0..job.start.processes() {
        ranks.start(job, rank, port, &output)?;
    }
    let failure = ranks.wait().await?;
    output.finish().await;
    let Some((rank, status)) = failure else { return Ok(ExitCode::SUCCESS) };
    if let Start::Ranks(of) = job.start {
        epitaph::send(job, of, &ranks.failed).await;
        output.say(&describe_failure(rank, status, &ranks.tails));
    }
    Ok(ExitCode::from(exit_code(status)))
}

/// A port that is free now. The job binds it a moment later; a port taken in between is the job's error to
/// report, as with torchrun.
fn free_port() -> anyhow::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port on 127.0.0.1")?;
    Ok(listener.local_addr()?.port())
}

#[derive(Default)]
struct Ranks {
    groups: Vec<Pid>,
    waits: JoinSet<(u32, std::io::Result<ExitStatus>)>,
    failed: Vec<(u32, ExitStatus)>,
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

    /// Waits for all; returns the first failure. Signals to the launcher go on to the ranks.
    async fn wait(&mut self) -> anyhow::Result<Option<(u32, ExitStatus)>> {
        let mut signals = [
            (signal(SignalKind::interrupt())?, Signal::INT),
            (signal(SignalKind::terminate())?, Signal::TERM),
            (signal(SignalKind::hangup())?, Signal::HUP),
        ];
        let [(interrupt, _), (terminate, _), (hangup, _)] = &mut signals;
        let mut failure = None;
        let mut next = NextStep::None;
        loop {
            let pressure = next.clone();
            tokio::select! {
                ended = self.waits.join_next() => match ended {
                    None => return Ok(failure),
                    Some(ended) => {
                        let (rank, status) = ended.context("waiting for a rank failed")?;
                        let status = status.with_context(|| format!("waiting for rank {rank} failed"))?;
                        if !status.success() {
                            self.failed.push((rank, status));
                        }
                        if !status.success() && failure.is_none() {
                            failure = Some((rank, status));
                            next = NextStep::after(GRACE, Signal::TERM);
                        }
                    }
                },
                signal = pressure.due() => {
                    self.signal_all(signal);
                    next = NextStep::after(TERM_GRACE, Signal::KILL);
                }
                _ = interrupt.recv() => self.signal_all(Signal::INT),
                _ = terminate.recv() => self.signal_all(Signal::TERM),
                _ = hangup.recv() => self.signal_all(Signal::HUP),
            }
        }
    }

    fn signal_all(&self, signal: Signal) {
        for &group in &self.groups {
            // A group that has ended cannot be signalled, and need not be.
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

/// The next measure against ranks that do not end.
#[derive(Clone)]
enum NextStep {
    None,
    At(tokio::time::Instant, Signal),
}

impl NextStep {
    fn after(delay: Duration, signal: Signal) -> Self {
        Self::At(tokio::time::Instant::now() + delay, signal)
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
        // A group of its own: Ctrl-C reaches the launcher alone, which passes it on once.
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
    // A process of another group that reads the terminal is stopped.
    command.stdin(Stdio::null());
    if let Some(token) = &job.token {
        command.env("PACELINE_TOKEN", token);
    }
    // As torchrun: several ranks with a thread per core each would fight over the cores.
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
        if lines.is_empty() { "It had printed nothing.".into() } else { format!("Its last lines:\n{lines}") };
    format!("rank {rank} {how}; it was the first to fail. {said}")
}
