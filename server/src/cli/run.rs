//! `paceline run` and `paceline attach`, which start a job, record it and print a report.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};
use wire::attributes;
use wire::ids::RunId;
use wire::views::Report;

use super::leftovers::{self, Known};
use super::{JobArguments, complain, print, runtime, source, start_logging};
use crate::export::text;
use crate::launch::hooks::Hooks;
use crate::launch::{self, Job, Start};
use crate::run_id::new_run_id;
use crate::serve::{Options, Presentation, Server};
use crate::state::hub::Hub;
use crate::state::query::RunQuery;
use crate::store::StoreError;
use crate::store::directory::Layout;

/// The variable from which every rank reads its labels.
const LABELS: &str = "PACELINE_LABELS";
/// The time that the report waits for the last records to be analyzed.
const REPORT_WITHIN: Duration = Duration::from_secs(3);

pub(super) fn run(
    arguments: JobArguments,
    start: Start,
    attach: bool,
    presentation: Presentation,
) -> anyhow::Result<ExitCode> {
    start_logging("warn");
    // Ranks are killed when the thread that started them exits, so this thread must start them.
    runtime::run(launch_and_report(arguments, start, attach, presentation))
}

async fn launch_and_report(
    arguments: JobArguments,
    start: Start,
    attach: bool,
    presentation: Presentation,
) -> anyhow::Result<ExitCode> {
    let hooks = if attach { Some(Hooks::find()?) } else { None };
    let program = launch::find_program(&arguments.command[0])?;
    let name = match &arguments.name {
        Some(name) => name.clone(),
        None => name_of(&arguments.command),
    };
    let run = match &arguments.run_id {
        Some(id) => RunId::new(id.clone()).context("--run-id")?,
        None => new_run_id(&name)?,
    };
    let labels = labels(&arguments.labels)?;
    let token = arguments.token.read()?;
    let (own, address) = match &arguments.server {
        Some(address) => (None, address.trim_end_matches('/').to_owned()),
        None => server_for(arguments.listen, arguments.data.path(), token.clone(), presentation).await?,
    };
    print(&format!("Dashboard: {address}/runs/{run}\n"))?;
    // What an earlier attempt at this job could not send comes before what this one sends.
    leftovers::send_before_a_job(Known { address: address.clone(), token: token.clone() }).await;
    for line in hooks.iter().flat_map(|hooks| &hooks.lines) {
        print(&format!("{line}\n"))?;
    }
    let job = Job {
        program,
        arguments: arguments.command[1..].to_vec(),
        start,
        run: run.clone(),
        name,
        server: address.clone(),
        token,
        environment: hooks
            .iter()
            .flat_map(|hooks| hooks.environment.clone())
            .chain([(LABELS.into(), labels.into())])
            .collect(),
    };
    if let Some(server) = &own {
        let vitals = server.vitals.clone();
        // The job continues. Its agents hold what fits into their spool, and count the rest as dropped.
        tokio::spawn(async move { complain(&format!("recording has stopped: {}", vitals.failed().await)) });
    }
    let outcome = launch::launch(&job).await?;
    if let Some(server) = own {
        let report =
            closing_report(&server.hub, &arguments.data.path(), &run, presentation.notable_share).await;
        let has_failed = outcome != ExitCode::SUCCESS;
        print(report.as_deref().unwrap_or_else(|| no_records_reason(attach, has_failed)))?;
        if arguments.keep_serving {
            print(&format!("\nThe dashboard is at {address}/runs/{run} until Ctrl-C.\n"))?;
            wait_for_interrupt().await?;
        }
        server.stop().await;
        if report.is_some() {
            let data = arguments.data.path();
            print(&format!(
                "\nStored in {}. Print the report again: paceline report {run}\n",
                data.display()
            ))?;
        }
    } else {
        let (data, token) = (arguments.data.path(), job.token.clone());
        print(&distant_report(&job.server, &data, &job.run, token, presentation.notable_share).await)?;
    }
    Ok(outcome)
}

/// Returns the labels of the environment and those of the command line, as the ranks read them. Of two values of one
/// label, that of the command line counts.
fn labels(given: &[(String, String)]) -> anyhow::Result<String> {
    let mut labels = attributes::parse_labels(&std::env::var(LABELS).unwrap_or_default()).context(LABELS)?;
    labels.extend(given.iter().cloned());
    Ok(attributes::write_labels(&labels))
}

/// Returns the name of a job: the name of its Python script, if the command has one, or else the name of its program.
fn name_of(command: &[OsString]) -> String {
    let is_script = |word: &&OsString| Path::new(word).extension().is_some_and(|extension| extension == "py");
    let named = command.iter().find(is_script).or(command.first());
    let stem = named.and_then(|word| Path::new(word).file_stem());
    stem.map_or_else(|| "run".into(), |stem| stem.to_string_lossy().into_owned())
}

/// Starts a server and returns it with its address. If a server already runs on the same data directory, returns that
/// server's address only.
pub(super) async fn server_for(
    listen: SocketAddr,
    data: PathBuf,
    token: Option<String>,
    presentation: Presentation,
) -> anyhow::Result<(Option<Server>, String)> {
    let options = Options { listen, data, token, host_names: Vec::new(), auto_traces: false, presentation };
    match Server::start(options).await {
        Ok(server) => {
            let address = server.address.clone();
            Ok((Some(server), address))
        }
        Err(error) => match error.downcast_ref::<StoreError>() {
            Some(StoreError::InUse { address: Some(address), .. }) => Ok((None, address.clone())),
            _ => Err(error.context("cannot start a server (--server URL uses a running one)")),
        },
    }
}

/// Returns the report of a run whose records this process stores in `data`, as text; `None` if the run sent no records. If its
/// server has failed, the report is read from disk.
pub(super) async fn closing_report(
    hub: &Hub,
    data: &Path,
    run: &RunId,
    notable_share: f64,
) -> Option<String> {
    let report = match ended_report(hub, run, usize::MAX).await {
        None => stored_report(data, run, notable_share).await,
        report => report,
    };
    Some(format!("\n{}", text::report(&report?)))
}

/// Says why a run may have sent no records, and what to do.
fn no_records_reason(attached: bool, has_failed: bool) -> &'static str {
    match (attached, has_failed) {
        (_, true) => "\nThe job failed before it sent any records: see its own output above.\n",
        (true, false) => {
            "\nNo collective was observed. Check that the job uses NCCL, or PyTorch 2.4 or later, on more than one \
            rank. Before NCCL 2.27, each process also needs RANK and WORLD_SIZE, as torchrun sets them, or the \
            variables of mpirun or srun.\n"
        }
        (false, false) => "\nThe job sent no records. Check that it uses the reducer or an agent.\n",
    }
}

/// Waits for a run to end, and returns the report over its `newest` steps, or `None` if the run sent no records. Waits
/// at most [`REPORT_WITHIN`].
pub(super) async fn ended_report(hub: &Hub, run: &RunId, newest: usize) -> Option<Report> {
    let mut snapshots = hub.subscribe();
    let ended = snapshots
        .wait_for(|snapshot| snapshot.runs.get(run).is_some_and(|run| run.summary.state.has_ended()));
    // A job that has not sent all its records in time is reported without them.
    let _in_time = tokio::time::timeout(REPORT_WITHIN, ended).await;
    let query = |reply| RunQuery::Report { newest, reply };
    let work = hub.query(run.clone(), query).await.ok().flatten()?;
    let others = hub.snapshot();
    tokio::task::spawn_blocking(move || others.measure(work.report_with_past_faults())).await.ok()
}

/// Returns the report of a run from the data directory; `None` if it has no records there that can be read.
async fn stored_report(data: &Path, run: &RunId, notable_share: f64) -> Option<Report> {
    let (layout, run) = (Layout::new(data.to_owned()), run.clone());
    let work = move || source::report(&layout, run.as_str(), notable_share).ok();
    tokio::task::spawn_blocking(work).await.ok().flatten()
}

/// Returns the report of a run whose records went to another server, as text. If that server does not answer, because it was
/// stopped or killed, the report is read from `data`: a server on this data directory has stored what it acknowledged.
pub(super) async fn distant_report(
    server: &str,
    data: &Path,
    run: &RunId,
    token: Option<String>,
    notable_share: f64,
) -> String {
    let url = format!("{server}/api/v1/runs/{run}?window=all");
    let page = format!("{server}/runs/{run}");
    let work = move || -> anyhow::Result<Report> {
        let mut request = launch::client().get(url);
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        Ok(serde_json::from_str(&request.call()?.body_mut().read_to_string()?)?)
    };
    let work = move || work().map_err(|error| no_report_reason(&error));
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(report)) => format!("\n{}\nStored by the server: {page}\n", text::report(&report)),
        Ok(Err(error)) => match stored_report(data, run, notable_share).await {
            Some(report) => format!(
                "\n{}\nThe server at {server} {error}. This report is of what it had stored in {}. Print it \
                again: paceline report {run}\n",
                text::report(&report),
                data.display()
            ),
            None => format!(
                "\nCannot get the report: the server at {server} {error}, and {} has no records of this run. Later, see {page}, \
                 or run `paceline report {run}` where the server's data directory is.\n",
                data.display()
            ),
        },
        Err(_) => format!("\nSee {page}\n"),
    }
}

/// Says how a server failed to send a report, after its address.
fn no_report_reason(error: &anyhow::Error) -> String {
    match error.downcast_ref::<ureq::Error>() {
        Some(ureq::Error::StatusCode(401)) => "refuses the token (--token-file, PACELINE_TOKEN)".into(),
        Some(ureq::Error::StatusCode(404)) => "has no records of this run".into(),
        _ => format!("does not answer ({error})"),
    }
}

async fn wait_for_interrupt() -> anyhow::Result<()> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}
