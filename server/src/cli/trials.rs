//! The runs of a job that a command starts several times, with a placeholder in its arguments.

use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;

use anyhow::{Context as _, ensure};
use wire::views::{Report, RunState};

use super::{DataArgument, print, run};
use crate::launch::{self, Job, Start};
use crate::run_id::new_run_id;
use crate::serve::{Options, Presentation, Server};

/// One run of a job.
pub(super) struct Trial<'a> {
    /// The command and its arguments.
    pub(super) command: &'a [OsString],
    /// The command that starts the runs, which begins the name of each.
    pub(super) starter: &'static str,
    /// The number of ranks.
    pub(super) ranks: u32,
    /// The placeholder in the arguments, and the text that replaces it.
    pub(super) placeholder: (&'static str, String),
    /// More variables of the job.
    pub(super) environment: Vec<(OsString, OsString)>,
    /// What distinguishes the run, for an error: `a cap of 4 MiB`.
    pub(super) what: String,
}

/// Starts the server of the runs and prints its address.
pub(super) async fn serve(
    listen: SocketAddr,
    data: &DataArgument,
    presentation: Presentation,
) -> anyhow::Result<Server> {
    let options = Options {
        listen,
        data: data.path(),
        token: None,
        host_names: Vec::new(),
        auto_traces: false,
        presentation,
    };
    let server = Server::start(options).await?;
    print(&format!("Dashboard: {}\n", server.address))?;
    Ok(server)
}

impl Trial<'_> {
    /// Runs the job to its end, and returns the report over the newest `most` steps.
    pub(super) async fn run(self, server: &Server, most: usize) -> anyhow::Result<Report> {
        let program = launch::find_program(&self.command[0])?;
        let name = format!("{}-{}", self.starter, program.file_stem().unwrap_or_default().to_string_lossy());
        let id = new_run_id(&name)?;
        let (placeholder, text) = &self.placeholder;
        let job = Job {
            arguments: self.command[1..]
                .iter()
                .map(|argument| replaced(argument, placeholder, text))
                .collect(),
            program,
            start: Start::Ranks(self.ranks),
            run: id.clone(),
            name,
            server: server.address.clone(),
            token: None,
            environment: self.environment,
        };
        launch::launch(&job).await?;
        let report = run::ended_report(&server.hub, &id, most)
            .await
            .context("the job sent no records: check that it uses the reducer or an agent")?;
        ensure!(report.state == RunState::Completed, "the job failed with {}", self.what);
        Ok(report)
    }
}

fn replaced(argument: &OsStr, placeholder: &str, text: &str) -> OsString {
    match argument.to_str() {
        Some(argument) => argument.replace(placeholder, text).into(),
        None => argument.into(),
    }
}
