//! Answers in the requested format: JSON for any client, binary frames for the dashboard of this server.

use axum::Json;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use wire::live::view;

use super::error::Failure;

/// The format of an answer.
#[derive(Clone, Copy, Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// JSON.
    #[default]
    Json,
    /// A frame of the `paceline-wire` crate. Only the dashboard of the same version can read it.
    Frame,
}

/// Encodes `view` in the format `form`.
///
/// # Errors
/// Returns an error if the view cannot be encoded.
pub fn answer<T: Serialize>(form: Form, view: &T) -> Result<Response, Failure> {
    match form {
        Form::Json => Ok(Json(view).into_response()),
        Form::Frame => {
            let bytes = view::encode(view).map_err(|error| Failure::Server(error.to_string()))?;
            Ok(binary(bytes))
        }
    }
}

/// Returns an answer with a binary body.
#[must_use]
pub fn binary(bytes: Vec<u8>) -> Response {
    ([(header::CONTENT_TYPE, "application/octet-stream")], bytes).into_response()
}

/// Runs `work` on a thread that may block, so work of some milliseconds does not delay other requests.
///
/// # Errors
/// Returns an error if `work` panics.
pub async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Failure> {
    Ok(tokio::task::spawn_blocking(work).await?)
}
