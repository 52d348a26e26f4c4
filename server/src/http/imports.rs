//! Imports: receives the files of a job, reads them while they arrive, and stores what they hold as a run.

mod upload;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Query, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use import::job::Round;
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use utoipa::{IntoParams, ToSchema};
use wire::ids::RunId;
use wire::views::ApiError;
use wire::views::imports::ImportedRun;

use self::upload::Upload;
use super::App;
use super::answer::aside;
use super::error::Failure;
use crate::imports::{AT_ONCE, Files, NotImported, OFFER_AGAIN, OFFERS, Read, summary};
use crate::ingest::RefusalKind;
use crate::run_id::new_run_id;

/// The number of imports at the same time. Each holds what the device ran in memory ([`upload::MAX_HELD`]).
const PLACES: usize = 1;
/// The longest time for all files to arrive: 64 GiB at 20 MB/s.
const IMPORT_WITHIN: Duration = Duration::from_secs(3_600);
/// The longest name of a run, in characters.
const MAX_NAME_CHARS: usize = 200;

/// The places for imports, with what those who find none free are told.
#[derive(Clone)]
pub struct Places {
    free: Arc<Semaphore>,
    progress: Arc<watch::Sender<Progress>>,
}

/// How far the import in progress is.
#[derive(Clone, Debug)]
struct Progress {
    began: Instant,
    /// The size of what has arrived, in bytes.
    bytes: u64,
    /// The file that arrives; `None` before the first and after the last.
    file: Option<String>,
}

impl Progress {
    fn begin() -> Self {
        Self { began: Instant::now(), bytes: 0, file: None }
    }

    fn sentence(&self) -> String {
        let seconds = self.began.elapsed().as_secs();
        let now = match &self.file {
            Some(file) => format!("{file} arrives"),
            None if self.bytes > 0 => "its files have arrived and are read".into(),
            None => "its first file is to come".into(),
        };
        format!(
            "another import is in progress, and this server makes {PLACES} at a time: it began {seconds} s ago, {} of it have \
             arrived, and now {now}. Try again when it is done",
            units::bytes(self.bytes)
        )
    }
}

/// A place for an import. It becomes free when it is dropped.
struct Place {
    _taken: OwnedSemaphorePermit,
    progress: Arc<watch::Sender<Progress>>,
}

impl Place {
    /// Notes that this many bytes more have arrived.
    fn arrive(&self, bytes: usize) {
        self.progress.send_modify(|progress| progress.bytes += bytes as u64);
    }

    /// Notes the file that arrives now.
    fn begin_file(&self, file: Option<&str>) {
        self.progress.send_modify(|progress| progress.file = file.map(str::to_owned));
    }
}

impl Default for Places {
    fn default() -> Self {
        let progress = Arc::new(watch::Sender::new(Progress::begin()));
        Self { free: Arc::new(Semaphore::new(PLACES)), progress }
    }
}

impl Places {
    fn take(&self) -> Result<Place, Failure> {
        let Ok(taken) = self.free.clone().try_acquire_owned() else {
            return Err(Failure::Busy(self.progress.borrow().sentence()));
        };
        self.progress.send_replace(Progress::begin());
        Ok(Place { _taken: taken, progress: self.progress.clone() })
    }
}

/// How to import.
#[derive(Debug, Deserialize, IntoParams)]
pub struct ImportQuery {
    /// The name of the run. Runs of one name are compared with each other. Default: what the names of the files have in
    /// common.
    name: Option<String>,
    /// The format of the answer. Default: JSON.
    #[serde(default)]
    #[param(inline)]
    form: Form,
}

/// The format of the answer.
#[derive(Clone, Copy, Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// JSON.
    #[default]
    Json,
    /// Plain text, as `paceline import` prints it.
    Text,
}

/// Imports files as one run: the traces of one job, of the same steps, one part of the form per file, in any order.
///
/// A file is read while it arrives. A file that cannot be read is skipped, with a reason in the answer. Nothing is stored
/// unless all files arrived: a client cancels an import by closing the connection. An import takes at most 4,096 files, 64
/// GiB and an hour, and at least 64 KiB arrive in 10 s. The server makes one import at a time.
#[utoipa::path(
    post,
    path = "/api/v1/imports",
    params(ImportQuery),
    request_body(content = Vec<u8>, content_type = "multipart/form-data"),
    responses(
        (status = 201, description = "The run is stored. `location` is its page.", body = ImportedRun),
        (status = 400, description = "The files are not a job. The error says why.", body = ApiError),
        (status = 413, description = "There are more files or more bytes than allowed.", body = ApiError),
        (status = 503, description = "Another import is in progress, or the server is busy. The error says how far it is. Try again \
            after Retry-After.", body = ApiError)
    )
)]
pub async fn import(
    State(app): State<App>,
    Query(wanted): Query<ImportQuery>,
    request: Request,
) -> Result<Response, Failure> {
    let mut upload = Upload::new(request).await?;
    let received = receive(&app, &mut upload).await;
    if received.is_err() {
        upload.discard().await;
    }
    let (files, place) = received?;
    let name = named(wanted.name, &files)?;
    let run = new_run_id(&name)?;
    let Read { imported, rounds } = aside(move || files.join(&run, &name)).await??;
    // Not ended by a client that leaves now, which would leave a part of a run.
    let stored = tokio::spawn(store(app, imported.run.clone(), rounds, place)).await;
    stored.map_err(|error| Failure::Server(error.to_string()))??;
    let place = [(header::LOCATION, format!("/runs/{}", imported.run))];
    Ok(match wanted.form {
        Form::Json => (StatusCode::CREATED, place, Json(imported)).into_response(),
        Form::Text => (StatusCode::CREATED, place, summary(&imported)).into_response(),
    })
}

async fn receive(app: &App, upload: &mut Upload) -> Result<(Files, Place), Failure> {
    let place = app.imports.take()?;
    let late = |_| {
        let minutes = IMPORT_WITHIN.as_secs() / 60;
        Failure::BadRequest(format!("the files did not arrive within {minutes} minutes: nothing is imported"))
    };
    let files = timeout(IMPORT_WITHIN, upload.read(&place)).await.map_err(late)??;
    Ok((files, place))
}

fn named(asked: Option<String>, files: &Files) -> Result<String, Failure> {
    let name = asked.filter(|name| !name.is_empty()).unwrap_or_else(|| files.name());
    if name.chars().count() > MAX_NAME_CHARS {
        return Err(Failure::BadRequest(format!(
            "the name of a run has at most {MAX_NAME_CHARS} characters"
        )));
    }
    Ok(name)
}

/// Stores the batches as those of agents are. The place is free again after that.
async fn store(app: App, run: RunId, rounds: Vec<Round>, _place: Place) -> Result<(), Failure> {
    let count: usize = rounds.iter().map(Vec::len).sum();
    let mut done = 0;
    for round in rounds {
        let mut frames = round.into_iter();
        let mut offers = JoinSet::new();
        loop {
            let more = frames.by_ref().take(AT_ONCE - offers.len());
            more.for_each(|frame| drop(offers.spawn(offer(app.clone(), frame.into()))));
            let Some(offered) = offers.join_next().await else { break };
            let stored = offered.map_err(|error| Failure::Server(error.to_string())).flatten();
            stored.map_err(|failure| match done {
                0 => failure,
                _ => Failure::Server(format!(
                    "run {run} is incomplete, because {done} of its {count} batches are stored: {failure}"
                )),
            })?;
            done += 1;
        }
    }
    Ok(())
}

/// Stores a batch, with patience while the server is busy.
async fn offer(app: App, frame: Bytes) -> Result<(), Failure> {
    for _ in 1..OFFERS {
        match app.intake.accept(frame.clone()).await {
            Err(refusal) if refusal.kind() == RefusalKind::Busy => sleep(OFFER_AGAIN).await,
            answered => return answered.map(drop).map_err(Failure::from),
        }
    }
    app.intake.accept(frame).await.map(drop).map_err(Failure::from)
}

impl From<NotImported> for Failure {
    fn from(error: NotImported) -> Self {
        Self::BadRequest(error.to_string())
    }
}
