//! Imports over HTTP: receives the files of a job as a form, and answers with what became of them.

mod upload;

use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Query, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use tokio::time::timeout;
use utoipa::{IntoParams, ToSchema};
use wire::views::ApiError;
use wire::views::imports::ImportedRun;

use self::upload::Upload;
use super::App;
use super::answer::aside;
use super::error::Failure;
use crate::imports::arriving::TooLarge;
use crate::imports::places::{NoPlace, Place};
use crate::imports::storing::{self, NotStored, NotTaken};
use crate::imports::{Files, NotImported, Read, summary};
use crate::ingest::{Intake, RefusalKind};
use crate::run_id::new_run_id;

/// The longest time for all files to arrive: 64 GiB at 20 MB/s.
const IMPORT_WITHIN: Duration = Duration::from_secs(3_600);
/// The longest name of a run, in characters.
const MAX_NAME_CHARS: usize = 200;

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
    let id = imported.run.clone();
    // Not ended by a client that leaves now, which would leave a part of a run. The place is free again after it.
    tokio::spawn(async move {
        let stored = storing::store(&app.intake, &id, rounds, |_| ()).await;
        drop(place);
        stored
    })
    .await??;
    let location = [(header::LOCATION, format!("/runs/{}", imported.run))];
    Ok(match wanted.form {
        Form::Json => (StatusCode::CREATED, location, Json(imported)).into_response(),
        Form::Text => (StatusCode::CREATED, location, summary(&imported)).into_response(),
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

impl storing::Store for Intake {
    type Error = Failure;

    async fn offer(&self, frame: Bytes) -> Result<(), NotTaken<Failure>> {
        match self.accept(frame).await {
            Ok(_) => Ok(()),
            Err(refusal) if refusal.kind() == RefusalKind::Busy => Err(NotTaken::Busy(refusal.into())),
            Err(refusal) => Err(NotTaken::Refused(refusal.into())),
        }
    }
}

impl From<NotStored<Self>> for Failure {
    fn from(error: NotStored<Self>) -> Self {
        match error {
            NotStored::Nothing(failure) => failure,
            NotStored::Partly { .. } => Self::Server(error.to_string()),
        }
    }
}

impl From<NotImported> for Failure {
    fn from(error: NotImported) -> Self {
        Self::BadRequest(error.to_string())
    }
}

impl From<TooLarge> for Failure {
    fn from(error: TooLarge) -> Self {
        Self::TooLarge(error.to_string())
    }
}

impl From<NoPlace> for Failure {
    fn from(error: NoPlace) -> Self {
        Self::Busy(error.to_string())
    }
}
