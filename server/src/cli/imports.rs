//! `paceline import`, which reads traces of other tools and stores them as a run.

mod like;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use bytes::Bytes;
use clap::Args;
use import::job::Round;
use wire::ids::RunId;

use super::client::Client;
use super::run::{closing_report, distant_report, server_for};
use super::{DataArgument, TokenArgument, print, progress, runtime, start_logging};
use crate::imports::storing::{self, NotStored, NotTaken};
use crate::imports::{Files, Read, paths, summary};
use crate::run_id::new_run_id;
use crate::serve::Presentation;
use crate::settings;

/// The arguments of `paceline import`.
#[derive(Debug, Args)]
#[command(
    after_help = "Reads traces by PyTorch's profiler (Kineto), dumps of PyTorch's flight recorder (pickle or JSON), logs of NCCL \
    Inspector, tables of StragglerAnalysis (Parquet), timelines of Horovod, and execution traces with times: plain or compressed, one file per rank or one for the job, in any order. \
    What a file holds decides its format. A file that ends early gives what it holds. What is not in the files is missing from the \
    report, with the reason.\n\n\
    The files of one import are of one format, and of the same steps of one job. A rank without a file is counted and never \
    blamed. Of a job that hung, the flight recorder's dumps say which ranks are behind, and in which collective.\n\n\
    Examples:\n  \
    paceline import traces/\n  \
    paceline import 'logs/*.pt.trace.json.gz' --name resnet\n  \
    paceline import /tmp/nccl_trace_rank_*"
)]
pub(super) struct ImportArguments {
    /// Files, folders with them, or patterns such as 'logs/*.json.gz'
    #[arg(required = true, value_name = "FILE|DIR|GLOB")]
    paths: Vec<PathBuf>,
    /// Name of the run; runs of the same name are compared with each other [default: the name of the folder]
    #[arg(long)]
    name: Option<String>,
    /// Only print figures of each file as this tool defines them, and store nothing
    #[arg(long, value_name = "TOOL", conflicts_with_all = ["name", "server"])]
    like: Option<like::Tool>,
    /// With --like, print a list in JSON with exact times in nanoseconds
    #[arg(long, requires = "like")]
    json: bool,
    /// Server to send the run to [default: the data directory, or the server that uses it]
    #[arg(long, env = "PACELINE_SERVER", value_name = "URL", value_parser = settings::server)]
    server: Option<String>,
    #[command(flatten)]
    data: DataArgument,
    #[command(flatten)]
    token: TokenArgument,
}

pub(super) fn run(arguments: &ImportArguments, notable_share: f64) -> anyhow::Result<()> {
    start_logging("warn");
    let found = paths::find(&arguments.paths)?;
    if let Some(tool) = arguments.like {
        return like::show(tool, &found, arguments.json);
    }
    let name = arguments.name.clone().unwrap_or_else(|| paths::name(&found));
    let run = new_run_id(&name)?;
    let Read { imported, rounds } = read(&found).join(&run, &name)?;
    print(&summary(&imported))?;
    runtime::run(store(arguments, &run, rounds, notable_share))
}

fn read(found: &[PathBuf]) -> Files {
    let bar = progress::bar("reading", paths::size(found));
    let files = paths::read(found, |bytes| bar.inc(bytes as u64));
    bar.finish_and_clear();
    files
}

/// Sends the batches to the server, or to one that is started for it, and prints the report.
async fn store(
    arguments: &ImportArguments,
    run: &RunId,
    rounds: Vec<Round>,
    notable_share: f64,
) -> anyhow::Result<()> {
    let token = arguments.token.read()?;
    // An empty variable counts as none.
    let (own, address) = match arguments.server.as_ref().filter(|address| !address.is_empty()) {
        Some(address) => (None, address.trim_end_matches('/').to_owned()),
        None => {
            // This server only stores, so it needs no page.
            let presentation = Presentation { page: &[], notable_share };
            let listen = (std::net::Ipv4Addr::LOCALHOST, 0).into();
            server_for(listen, arguments.data.path(), token.clone(), presentation).await?
        }
    };
    let client = Client::with_token(&address, token.as_deref());
    send(client, run, rounds).await?;
    let data = arguments.data.path();
    let Some(server) = own else {
        return print(&distant_report(&address, &data, run, token, notable_share).await);
    };
    let report = closing_report(&server.hub, &data, run, notable_share).await;
    let report =
        report.with_context(|| format!("run {run} is in {}, but it cannot be read", data.display()))?;
    print(&report)?;
    server.stop().await;
    print(&format!("\nStored in {}. Look at it: paceline serve, and /runs/{run}\n", data.display()))
}

async fn send(client: Client, run: &RunId, rounds: Vec<Round>) -> anyhow::Result<()> {
    let bar = progress::bar("storing", rounds.iter().flatten().map(|frame| frame.len() as u64).sum());
    let stored = storing::store(&Distant(Arc::new(client)), run, rounds, |bytes| bar.inc(bytes as u64)).await;
    stored.map_err(|error| match error {
        NotStored::Nothing(error) => error,
        NotStored::Partly { .. } => anyhow::anyhow!("{error}"),
    })?;
    bar.finish_and_clear();
    Ok(())
}

/// A server that is reached over HTTP.
#[derive(Clone)]
struct Distant(Arc<Client>);

impl storing::Store for Distant {
    type Error = anyhow::Error;

    async fn offer(&self, frame: Bytes) -> Result<(), NotTaken<anyhow::Error>> {
        let client = self.0.clone();
        let offered = tokio::task::spawn_blocking(move || client.offer(&frame)).await;
        offered.unwrap_or_else(|error| Err(NotTaken::Refused(error.into())))
    }
}
