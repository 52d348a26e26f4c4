//! The command line: its arguments, and the functions that run each command.

mod burst;
mod check;
mod client;
mod compare;
mod doctor;
mod export;
mod imports;
mod leftovers;
mod plan;
mod progress;
mod report;
mod run;
mod runs;
mod runtime;
mod scale;
mod serve;
mod source;
mod stacks;
mod sweep;
mod trace;
mod trials;
mod what_if;

use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand, ValueEnum};
use wire::attributes;

use crate::export::Format;
use crate::http::assets::Page;
use crate::launch::Start;
use crate::launch::launcher::starts_its_ranks;
use crate::printable::printable;
use crate::serve::Presentation;
use crate::settings;
use crate::store::directory;

/// Always-on observability for data-parallel training: which rank is late, why, and what it costs
#[derive(Debug, Parser)]
#[command(name = "paceline", version, max_term_width = 100)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// Smallest cost of a verdict, as a share of the time; a smaller effect is a note
    #[arg(long, global = true, env = "PACELINE_VERDICT_SHARE", value_name = "SHARE", default_value = "5%",
        value_parser = settings::share)]
    verdict_share: f64,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start the ranks of a job, observe them, and print a report at the end
    Run(RunArguments),
    /// Observe an unmodified job: NCCL on GPUs, PyTorch's hooks on CPUs
    Attach(AttachArguments),
    /// Serve the dashboard, the API and /metrics until stopped
    Serve(ServeArguments),
    /// List the runs in the data directory
    Runs(RunsArguments),
    /// Print a run's verdicts, what-ifs and step ledger
    Report(ReportArguments),
    /// Write steps of a run for other tools: Perfetto, Chrome, HolisticTraceAnalysis, Parquet, CSV
    Export(ExportArguments),
    /// Read traces that PyTorch's profiler wrote, and show them as a run
    Import(imports::ImportArguments),
    /// Compare two runs figure by figure, with what chance alone explains
    Compare(compare::CompareArguments),
    /// Fail if a run is worse than a baseline, for CI
    Check(check::CheckArguments),
    /// Estimate the days that a training takes on a number of ranks
    Plan(plan::PlanArguments),
    /// Predict the step of a run with another network, other buckets or another number of ranks
    WhatIf(what_if::WhatIfArguments),
    /// Run a job on several world sizes, and measure its scaling efficiency
    Scale(scale::ScaleArguments),
    /// Run a job once per bucket cap and say which cap is best
    Sweep(sweep::SweepArguments),
    /// Record every kernel of a running CUDA job for a short time
    Burst(burst::BurstArguments),
    /// Show in which lines of code the ranks of a running job spend their time
    Stacks(stacks::StacksArguments),
    /// Record a few steps of some ranks of a running PyTorch job with PyTorch's profiler
    Trace(trace::TraceArguments),
    /// Say what can be observed on this machine, and why the rest cannot
    Doctor(doctor::DoctorArguments),
    /// Replace this process by a rank's command, which dies with the launcher (used by `run` itself)
    #[command(name = "__rank", hide = true)]
    Rank {
        #[arg(trailing_var_arg = true, required = true)]
        command: Vec<std::ffi::OsString>,
    },
}

/// The argument that names the data directory.
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

/// The permissions of a file's group and of all other users.
const OF_OTHERS: u32 = 0o077;

/// The argument that names the file of the server's token. The token itself is never an argument, because every user of
/// a machine can see the arguments of its processes.
#[derive(Clone, Debug, Args)]
struct TokenArgument {
    /// File with the server's token; clients send it as `Authorization: Bearer TOKEN`, browsers once as /?token=TOKEN
    /// [default: the token in $PACELINE_TOKEN, if set]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl TokenArgument {
    /// Returns the token, if one is set. Warns if others can read its file.
    fn read(&self) -> anyhow::Result<Option<String>> {
        let Some(path) = &self.token_file else {
            // A secret of Kubernetes often ends with a line break, which no header may have.
            let token = std::env::var("PACELINE_TOKEN").ok().map(|token| token.trim().to_owned());
            return Ok(token.filter(|token| !token.is_empty()));
        };
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the token from {}", path.display()))?;
        let token = text.trim();
        anyhow::ensure!(!token.is_empty(), "{} is empty: it must contain the token", path.display());
        if let Ok(file) = std::fs::metadata(path)
            && file.mode() & OF_OTHERS != 0
        {
            complain(&format!(
                "warning: other users of this machine may read or change the token in {path}: chmod 600 {path}",
                path = path.display()
            ));
        }
        Ok(Some(token.to_owned()))
    }
}

#[derive(Debug, Args)]
#[command(
    after_help = "Each rank gets RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, \
    PACELINE_SERVER and PACELINE_RUN_ID.\nCMD is looked up in PATH, then in the directory of this program.\n\n\
    CMD may also be a launcher, such as torchrun, mpirun or `accelerate launch`. Without -n, it is started once, and the \
    unmodified ranks that it starts are observed as under `attach`.\n\n\
    Examples:\n  \
    paceline run torchrun --nproc-per-node=4 train.py\n  \
    paceline run -n 4 char_lm --slow-rank 2 --slow-phase input --slow-ms 30"
)]
struct RunArguments {
    /// Number of ranks to start on this machine [default: those that CMD starts if it is a launcher or a script, else 1]
    #[arg(short = 'n', long = "nproc", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    nproc: Option<u32>,
    /// Observe unmodified ranks, as `attach` does
    #[arg(long)]
    attach: bool,
    #[command(flatten)]
    job: JobArguments,
}

#[derive(Debug, Args)]
#[command(
    after_help = "CMD starts the ranks itself, as torchrun does. The ranks get PACELINE_SERVER, PACELINE_RUN_ID and \
    the variables that load libpaceline_attach.so into them. What will be observed, and what cannot be, is printed \
    first (see also `doctor`).\n\
    From NCCL 2.27 on, the launcher need not tell processes their rank, and a process that drives several GPUs, as \
    in JAX, counts as several ranks.\n\n\
    NVTX ranges of the main thread count as input if their name contains DataLoader, or is data, input, dataload, \
    data_loading, load_data, next_batch, get_batch or batch-generator. They count as h2d (copy to the device) if their \
    name is h2d, to_device, copy_to_device, batch_to_device or host_to_device.\n\n\
    PACELINE_OVERHEAD_BUDGET: what observing may cost per rank, in percent of a processor [default: 1]. Above it, one \
    step in 2, 4, ... 64 is observed, the same step on every rank.\n\
    PACELINE_BURST_EVERY: interval of automatic bursts, in seconds (60) or steps (500 steps) [default: no bursts].\n\
    PACELINE_CUDA_HOOK_SECONDS: how long a process must use CUDA without NCCL before its device is sampled, in seconds \
    [default: 10].\n\n\
    Example: paceline attach torchrun --nproc-per-node 8 train.py"
)]
struct AttachArguments {
    #[command(flatten)]
    job: JobArguments,
}

impl RunArguments {
    /// Returns how to start the job, and whether its ranks are observed unmodified.
    fn start(&self) -> (Start, bool) {
        match self.nproc {
            None if starts_its_ranks(&self.job.command) => (Start::Launcher, true),
            ranks => (Start::Ranks(ranks.unwrap_or(1)), self.attach),
        }
    }
}

/// The arguments of `run` and `attach`: the job, and where its records go.
#[derive(Debug, Args)]
struct JobArguments {
    /// Name of the run; runs of the same name are compared with each other [default: the command's name]
    #[arg(long)]
    name: Option<String>,
    /// Label of the run (repeatable); a host adds its own with PACELINE_LABELS=KEY=VALUE,...
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = attributes::parse_label)]
    labels: Vec<(String, String)>,
    /// Id of the run, for a job that is started by several commands, such as one per host [default: a new id]
    #[arg(long, env = "PACELINE_RUN_ID", value_name = "ID")]
    run_id: Option<String>,
    /// Server to send records to [default: start a server]
    #[arg(long, env = "PACELINE_SERVER", value_name = "URL", value_parser = settings::server)]
    server: Option<String>,
    /// Address of the server to start; port 0 selects a free port
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    listen: SocketAddr,
    #[command(flatten)]
    data: DataArgument,
    #[command(flatten)]
    token: TokenArgument,
    /// Keep serving the dashboard after the job has ended, until Ctrl-C
    #[arg(long)]
    keep_serving: bool,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    command: Vec<std::ffi::OsString>,
}

#[derive(Debug, Args)]
struct ServeArguments {
    /// Address to listen on; beyond loopback a token is required
    #[arg(long, default_value = "127.0.0.1:8080", value_name = "ADDRESS")]
    listen: SocketAddr,
    #[command(flatten)]
    data: DataArgument,
    #[command(flatten)]
    token: TokenArgument,
    /// Host name to accept, in addition to IP addresses and localhost (repeatable)
    #[arg(long = "host-name", value_name = "NAME")]
    host_names: Vec<String>,
    /// Trace 3 steps of a PyTorch job with its profiler, once for each rank that computes slowly; these steps take longer
    #[arg(long)]
    auto_traces: bool,
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
    /// Plain text for a terminal
    Text,
    /// All figures, for programs
    Json,
    /// Tables, for a ticket or a chat
    Markdown,
    /// One file to attach to a ticket, without scripts or external resources
    Html,
}

#[derive(Debug, Args)]
struct ReportArguments {
    /// Run: an id, `latest`, or the .json file of a report
    #[arg(default_value = "latest")]
    run: String,
    #[command(flatten)]
    data: DataArgument,
    /// Format of the report
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    format: ReportFormat,
    /// Print JSON, as with --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// File to write [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "All steps on disk can be exported. Steps are read and written one by one, so their number is not \
    limited.\n\n\
    Chrome traces: FILE is a directory of rank-N.json.gz files, which HolisticTraceAnalysis opens. If FILE ends in \
    .json or .json.gz, or with --rank, it is one file, for chrome://tracing. The training thread is shown as a compute \
    stream, and the communication thread as a communication stream. Times are whole microseconds.\n\n\
    Columns of csv and parquet:\n  \
    step, rank, bucket, sequence, size_bytes\n  \
    ready_unix_ns, launch_unix_ns, start_unix_ns, end_unix_ns: on the server's clock\n  \
    clock_error_bound_ns: largest error of these times\n  \
    wait_ns: by the aligned clocks; wait_clock_free_ns: by durations alone\n  \
    transfer_ns: the rest of the duration\n  \
    hidden_ns, exposed_ns: the parts of the duration while the rank computes, and while it does not\n\
    A value that is not known is empty or null.\n\n\
    Columns with --utilization, one row per sample, rank and measure:\n  \
    end_unix_ns, seconds: the end and the length of the interval; a minute or more before the newest hour\n  \
    rank, measure, unit, value\n\n\
    A FILE that ends in .gz is compressed. Parquet has its own compression."
)]
struct ExportArguments {
    /// Run: an id, or `latest`
    run: String,
    /// Format of the file
    #[arg(long, value_enum, default_value_t = Format::Perfetto)]
    format: Format,
    /// Steps to export, both ends included [default: the newest 50]
    #[arg(long, value_name = "A..B")]
    steps: Option<String>,
    /// Rank to export [default: all]
    #[arg(long)]
    rank: Option<u32>,
    /// Export how devices and hosts were used over time, instead of steps; as csv or parquet
    #[arg(long, conflicts_with = "steps")]
    utilization: bool,
    /// File to write; for chrome, a directory or a file
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    data: DataArgument,
}

/// Runs the command and returns its exit code.
#[must_use]
pub fn main(arguments: Arguments, page: Page) -> ExitCode {
    let notable_share = arguments.verdict_share;
    let presentation = Presentation { page, notable_share };
    let outcome = match arguments.command {
        Command::Run(arguments) => {
            let (start, attach) = arguments.start();
            run::run(arguments.job, start, attach, presentation)
        }
        Command::Attach(arguments) => run::run(arguments.job, Start::Launcher, true, presentation),
        Command::Serve(arguments) => serve::serve(arguments, presentation).map(|()| ExitCode::SUCCESS),
        Command::Runs(arguments) => runs::runs(&arguments, notable_share).map(|()| ExitCode::SUCCESS),
        Command::Report(arguments) => report::report(&arguments, notable_share).map(|()| ExitCode::SUCCESS),
        Command::Export(arguments) => export::export(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Import(arguments) => imports::run(&arguments, notable_share).map(|()| ExitCode::SUCCESS),
        Command::Compare(arguments) => compare::run(&arguments, notable_share).map(|()| ExitCode::SUCCESS),
        Command::Check(arguments) => check::run(&arguments, notable_share),
        Command::Plan(arguments) => plan::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::WhatIf(arguments) => what_if::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Scale(arguments) => scale::scale(&arguments, presentation).map(|()| ExitCode::SUCCESS),
        Command::Sweep(arguments) => sweep::sweep(&arguments, presentation).map(|()| ExitCode::SUCCESS),
        Command::Burst(arguments) => burst::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Stacks(arguments) => stacks::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Trace(arguments) => trace::run(&arguments).map(|()| ExitCode::SUCCESS),
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
    // `eprintln!` panics if its reader is gone or its disk is full.
    let _unread = writeln!(LossyStderr, "paceline: {}", printable(text));
}

/// Standard error without write errors. A log line that cannot be written is lost, but must not end the thread that
/// logs.
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

/// Prints a command's result, without control characters that a terminal would obey. A reader that stops early
/// (`| head`) is not an error.
fn print(text: &str) -> anyhow::Result<()> {
    use std::io::Write as _;
    match std::io::stdout().lock().write_all(printable(text).as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Starts logging to standard error. `RUST_LOG` selects what is logged, and `default` applies if it is not set.
fn start_logging(default: &str) {
    use tracing_subscriber::EnvFilter;
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    // Only the first start in a process has an effect. Tests start logging several times.
    let _already_started = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| LossyStderr)
        .log_internal_errors(false)
        .without_time()
        .try_init();
}
