//! The command line: what can be said, and who does it.

mod burst;
mod check;
mod compare;
mod doctor;
mod export;
mod plan;
mod report;
mod run;
mod runs;
mod serve;
mod source;
mod sweep;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::export::Format;
use crate::launch::Start;
use crate::printable::printable;
use crate::settings;
use crate::store::directory;

/// Always-on observability for data-parallel training: who is late, why, and what it costs.
#[derive(Debug, Parser)]
#[command(name = "paceline", version, max_term_width = 100)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// What costs less than this share of the time is a note and not a verdict
    #[arg(long, global = true, env = "PACELINE_VERDICT_SHARE", value_name = "SHARE", default_value = "5%",
        value_parser = settings::share)]
    verdict_share: f64,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start the ranks of a job, watch them, and print a report at the end
    Run(RunArguments),
    /// Watch a job that knows nothing of Paceline: its collectives, as NCCL tells of them
    Attach(AttachArguments),
    /// Serve the dashboard, the API and /metrics until stopped
    Serve(ServeArguments),
    /// List the runs in the data directory
    Runs(RunsArguments),
    /// Print what a run's time went into, and who is to blame
    Report(ReportArguments),
    /// Write steps of a run for other tools: Perfetto, Chrome and HTA, Parquet, CSV
    Export(ExportArguments),
    /// Compare two runs, figure by figure
    Compare(compare::CompareArguments),
    /// Fail when a run is worse than a baseline: for CI
    Check(check::CheckArguments),
    /// Say how long a training will take on so many ranks
    Plan(plan::PlanArguments),
    /// Run a job with several bucket caps and say which is best
    Sweep(sweep::SweepArguments),
    /// Record every kernel of a running CUDA job for a moment, and say what its devices did
    Burst(burst::BurstArguments),
    /// Say what this machine has for observing GPU jobs, and why the rest is missing
    Doctor(doctor::DoctorArguments),
    /// Become a rank's command, tied to the launcher's life (for `run` itself)
    #[command(name = "__rank", hide = true)]
    Rank {
        #[arg(trailing_var_arg = true, required = true)]
        command: Vec<std::ffi::OsString>,
    },
}

/// Where data lie.
#[derive(Debug, Args)]
struct DataArgument {
    /// Data directory [default: $PACELINE_DATA, else $XDG_DATA_HOME/paceline, else ~/.local/share/paceline]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

impl DataArgument {
    fn path(&self) -> PathBuf {
        self.data.clone().unwrap_or_else(directory::default_path)
    }
}

/// What clients show a server. It is never an argument itself, since arguments are there for every user to see.
#[derive(Clone, Debug, Args)]
struct TokenArgument {
    /// File with the server's token, which clients show as `Authorization: Bearer TOKEN`, or once as /?token=TOKEN in a
    /// browser [default: $PACELINE_TOKEN, if it is set]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl TokenArgument {
    /// The token, if there is one.
    fn read(&self) -> anyhow::Result<Option<String>> {
        let Some(path) = &self.token_file else {
            return Ok(std::env::var("PACELINE_TOKEN").ok().filter(|token| !token.is_empty()));
        };
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the token from {}", path.display()))?;
        let token = text.trim();
        anyhow::ensure!(!token.is_empty(), "{} is empty: write the token into it", path.display());
        Ok(Some(token.to_owned()))
    }
}

#[derive(Debug, Args)]
#[command(
    after_help = "Each rank gets RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, \
    PACELINE_SERVER and PACELINE_RUN_ID.\nCMD is looked up in PATH and beside this program.\n\n\
    Example: paceline run -n 4 -- char_lm --slow-rank 2 --slow-phase input --slow-ms 30"
)]
struct RunArguments {
    /// How many ranks to start on this machine
    #[arg(short = 'n', long = "nproc", value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=4096))]
    nproc: u32,
    /// Watch ranks that know nothing of Paceline, as `attach` does
    #[arg(long)]
    attach: bool,
    #[command(flatten)]
    job: JobArguments,
}

#[derive(Debug, Args)]
#[command(
    after_help = "CMD starts the ranks itself, as torchrun does; they get PACELINE_SERVER, PACELINE_RUN_ID and what loads \
    libpaceline_agent.so into them. What will be observed and what cannot is printed first (see also `doctor`).\n\
    From NCCL 2.27 on no launcher needs to say which rank a process is, and one that drives several GPUs, as JAX does, is as \
    many.\n\n\
    NVTX ranges of the main thread count as waiting for input when DataLoader is in their name or it is one of data, \
    input, dataload, data_loading, load_data, next_batch, get_batch, batch-generator; as copying to the device when it is \
    one of h2d, to_device, copy_to_device, batch_to_device, host_to_device.\n\
    PACELINE_OVERHEAD_BUDGET: percent of a processor that being observed may take (1). Above it one step in 2, 4, ... 64 is \
    observed, the same one on every rank.\n\
    PACELINE_BURST_EVERY: how often a burst comes that nobody asked for: seconds (60), or one step in so many (500 steps) (none).\n\
    PACELINE_CUDA_DOOR_SECONDS: how long a process may use CUDA before its device is shown though it does not use NCCL \
    (10).\n\n\
    Example: paceline attach -- torchrun --nproc-per-node 8 train.py"
)]
struct AttachArguments {
    #[command(flatten)]
    job: JobArguments,
}

/// What is watched, and where its records go.
#[derive(Debug, Args)]
struct JobArguments {
    /// Name of the run; runs of one name are compared with each other [default: the command's name]
    #[arg(long)]
    name: Option<String>,
    /// Id of the run, for a job whose ranks are started by several commands, such as one per host [default: a new id]
    #[arg(long, env = "PACELINE_RUN_ID", value_name = "ID")]
    run_id: Option<String>,
    /// Send to this server instead of starting one
    #[arg(long, env = "PACELINE_SERVER", value_name = "URL")]
    server: Option<String>,
    /// Address of the server to start; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    listen: SocketAddr,
    #[command(flatten)]
    data: DataArgument,
    #[command(flatten)]
    token: TokenArgument,
    /// Go on serving the dashboard after the job ended, until Ctrl-C
    #[arg(long)]
    keep_serving: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<std::ffi::OsString>,
}

#[derive(Debug, Args)]
struct ServeArguments {
    /// Address to listen on; beyond loopback a token is needed
    #[arg(long, default_value = "127.0.0.1:8080", value_name = "ADDRESS")]
    listen: SocketAddr,
    #[command(flatten)]
    data: DataArgument,
    #[command(flatten)]
    token: TokenArgument,
    /// A name, beside IP addresses and localhost, under which the server may be called (repeatable)
    #[arg(long = "host-name", value_name = "NAME")]
    host_names: Vec<String>,
}

#[derive(Debug, Args)]
struct RunsArguments {
    #[command(flatten)]
    data: DataArgument,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ReportFormat {
    /// For a terminal
    Text,
    /// Every figure, for programs
    Json,
    /// With tables, for a ticket or a chat
    Markdown,
    /// One file to attach: no scripts, nothing fetched
    Html,
}

#[derive(Debug, Args)]
struct ReportArguments {
    /// A run's id, `latest`, or a report's .json file
    #[arg(default_value = "latest")]
    run: String,
    #[command(flatten)]
    data: DataArgument,
    /// The format
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    format: ReportFormat,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// The file to write, instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Every step that is on disk can be exported, and no number of them is too many: they are read and \
    written one by one.\n\n\
    Chrome traces: FILE is a directory of rank-N.json.gz, which HolisticTraceAnalysis opens; where its name ends in \
    .json or .json.gz it is one file with all ranks, for chrome://tracing. The training thread is shown as a compute \
    stream, the communication thread as a communication stream; times are whole microseconds.\n\n\
    Columns of csv and parquet: step, rank, bucket, sequence, size_bytes; ready_unix_ns, launch_unix_ns, \
    start_unix_ns, end_unix_ns on the server's clock, each off by at most clock_error_bound_ns; wait_ns by these \
    clocks and wait_clock_free_ns by durations alone; transfer_ns, the rest of the duration; hidden_ns and \
    exposed_ns, its parts behind compute and in the open. Unknown is empty or null.\n\n\
    Any FILE that ends in .gz is compressed (parquet is compressed as it is)."
)]
struct ExportArguments {
    /// A run's id, or `latest`
    run: String,
    /// The format
    #[arg(long, value_enum, default_value_t = Format::Perfetto)]
    format: Format,
    /// Steps A..B, both ends included [default: the newest 50]
    #[arg(long, value_name = "A..B")]
    steps: Option<String>,
    /// Only this rank [default: all]
    #[arg(long)]
    rank: Option<u32>,
    /// The file to write; for chrome, a directory or a file
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    data: DataArgument,
}

/// Runs the command; the exit code is its outcome.
#[must_use]
pub fn main(arguments: Arguments) -> ExitCode {
    settings::set_notable_share(arguments.verdict_share);
    let outcome = match arguments.command {
        Command::Run(arguments) => run::run(arguments.job, Start::Ranks(arguments.nproc), arguments.attach),
        Command::Attach(arguments) => run::run(arguments.job, Start::Launcher, true),
        Command::Serve(arguments) => serve::serve(arguments).map(|()| ExitCode::SUCCESS),
        Command::Runs(arguments) => runs::runs(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Report(arguments) => report::report(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Export(arguments) => export::export(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Compare(arguments) => compare::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Check(arguments) => check::run(&arguments),
        Command::Plan(arguments) => plan::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Sweep(arguments) => sweep::sweep(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Burst(arguments) => burst::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Doctor(arguments) => doctor::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Rank { command } => {
            crate::launch::rank::become_command(&command).map(|never| match never {})
        }
    };
    outcome.unwrap_or_else(|error| {
        complain(&format!("{error:#}"));
        ExitCode::FAILURE
    })
}

fn complain(text: &str) {
    use std::io::Write as _;
    // `eprintln!` panics when its reader is gone or the disk behind it is full.
    let _unread = writeln!(LossyStderr, "paceline: {}", printable(text));
}

/// Standard error that swallows its own failures: a log line that cannot be written must not end the thread that logs.
struct LossyStderr;

impl std::io::Write for LossyStderr {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let _lost = std::io::stderr().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Prints a command's result, in which a terminal obeys nothing that came from outside. A reader that has seen enough (`| head`) is no error.
fn print(text: &str) -> anyhow::Result<()> {
    use std::io::Write as _;
    match std::io::stdout().lock().write_all(printable(text).as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// A runtime for servers and launchers.
fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("paceline-server")
        .enable_all()
        .build()?)
}

/// Log lines go to standard error; `RUST_LOG` chooses what.
fn start_logging(default: &str) {
    use tracing_subscriber::EnvFilter;
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    // A second start in one process (in tests) keeps the first.
    let _already_started = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| LossyStderr)
        .log_internal_errors(false)
        .without_time()
        .try_init();
}
