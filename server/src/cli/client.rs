//! The client of commands that ask a running server.

use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use serde::de::DeserializeOwned;
use ureq::http::StatusCode;
use wire::views::{ApiError, RunSummary};

use super::TokenArgument;
use crate::imports::storing::NotTaken;
use crate::settings;

/// The longest time for one request.
const TIMEOUT: Duration = Duration::from_secs(8);
/// The longest time for a request for a file.
const FILE_TIMEOUT: Duration = Duration::from_secs(120);
/// The largest file, in bytes.
const MAX_FILE_BYTES: u64 = 256 << 20;

type Answer = Result<ureq::http::Response<ureq::Body>, ureq::Error>;

/// The arguments of a command on a run of a running server.
#[derive(Debug, Args)]
pub(super) struct RunOnServer {
    /// Run: an id, or `latest`
    #[arg(default_value = "latest")]
    run: String,
    /// Server that the job sends its records to
    #[arg(long, env = "PACELINE_SERVER", value_name = "URL", default_value = "http://127.0.0.1:8080",
        value_parser = settings::server)]
    server: String,
    #[command(flatten)]
    token: TokenArgument,
}

impl RunOnServer {
    /// Returns a client of the server, and the id of the run.
    pub(super) fn connect(&self) -> anyhow::Result<(Client, String)> {
        let client = Client::new(&self.server, &self.token)?;
        let run = client.run(&self.run)?;
        Ok((client, run))
    }
}

/// A client of the server's API.
pub(super) struct Client {
    client: ureq::Agent,
    server: String,
    authorization: Option<String>,
}

impl Client {
    /// Creates a client of the server at an address.
    fn new(server: &str, token: &TokenArgument) -> anyhow::Result<Self> {
        Ok(Self::with_token(server, token.read()?.as_deref()))
    }

    /// Creates a client of the server at an address, with the server's token if it has one.
    pub(super) fn with_token(server: &str, token: Option<&str>) -> Self {
        let config = ureq::Agent::config_builder().timeout_global(Some(TIMEOUT)).proxy(None);
        Self {
            client: config.http_status_as_error(false).build().new_agent(),
            server: server.trim_end_matches('/').to_owned(),
            authorization: token.map(|token| format!("Bearer {token}")),
        }
    }

    /// Offers a batch once.
    pub(super) fn offer(&self, frame: &[u8]) -> Result<(), NotTaken<anyhow::Error>> {
        let mut request = self.client.post(self.address("/api/v1/ingest"));
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        let answer = request.send(frame);
        let is_busy = matches!(&answer, Ok(answer) if answer.status() == StatusCode::SERVICE_UNAVAILABLE);
        let not_taken = if is_busy { NotTaken::Busy } else { NotTaken::Refused };
        self.answered(answer).map(drop).map_err(not_taken)
    }

    pub(super) fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let mut request = self.client.get(format!("{}{path}", self.server));
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        self.read(request.call())
    }

    /// Returns the URL of a path on the server.
    pub(super) fn address(&self, path: &str) -> String {
        format!("{}{path}", self.server)
    }

    /// Returns an answer that is a file.
    pub(super) fn bytes(&self, path: &str) -> anyhow::Result<Vec<u8>> {
        let mut request =
            self.client.get(self.address(path)).config().timeout_global(Some(FILE_TIMEOUT)).build();
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        let mut answer = self.answered(request.call())?;
        Ok(answer.body_mut().with_config().limit(MAX_FILE_BYTES).read_to_vec()?)
    }

    /// Gets an answer that takes the server longer than usual.
    pub(super) fn get_slowly<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        Ok(serde_json::from_slice(&self.bytes(path)?)?)
    }

    pub(super) fn post<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let mut request = self.client.post(format!("{}{path}", self.server));
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        self.read(request.send_empty())
    }

    fn read<T: DeserializeOwned>(&self, answer: Answer) -> anyhow::Result<T> {
        Ok(serde_json::from_str(&self.answered(answer)?.body_mut().read_to_string()?)?)
    }

    /// Returns the answer if the server has answered with success.
    fn answered(&self, answer: Answer) -> anyhow::Result<ureq::http::Response<ureq::Body>> {
        let mut answer = answer.with_context(|| {
            format!("no server answers at {}: set its address with --server URL", self.server)
        })?;
        if !answer.status().is_success() {
            let text = answer.body_mut().read_to_string()?;
            let error: Result<ApiError, _> = serde_json::from_str(&text);
            bail!("{}", error.map_or_else(|_| format!("{}: {text}", answer.status()), |error| error.error));
        }
        Ok(answer)
    }

    /// Returns the id of a run, which may be named `latest`.
    fn run(&self, named: &str) -> anyhow::Result<String> {
        if named != "latest" {
            return Ok(named.to_owned());
        }
        let runs: Vec<RunSummary> = self.get("/api/v1/runs")?;
        runs.first().map(|run| run.run.to_string()).context("the server has no runs yet")
    }
}
