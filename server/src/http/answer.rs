//! Views in the form that a reader wants: JSON for anyone, frames for the page that came with this server.

use axum::Json;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use wire::live::view;

use super::error::Failure;

/// How a view is written.
#[derive(Clone, Copy, Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// JSON.
    #[default]
    Json,
    /// A frame of `paceline-wire`, readable by the page of this very version only.
    Frame,
}

/// `view` in that form.
///
/// # Errors
/// When it cannot be written in it.
pub fn answer<T: Serialize>(form: Form, view: &T) -> Result<Response, Failure> {
    match form {
        Form::Json => Ok(Json(view).into_response()),
        Form::Frame => {
            let bytes = view::encode(view).map_err(|error| Failure::Server(error.to_string()))?;
            Ok(binary(bytes))
        }
    }
}

/// Bytes as they are.
#[must_use]
pub fn binary(bytes: Vec<u8>) -> Response {
    ([(header::CONTENT_TYPE, "application/octet-stream")], bytes).into_response()
}

/// Work of some milliseconds, which must not hold up other requests.
///
/// # Errors
/// When it panics.
pub async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Failure::Server(error.to_string()))
}
