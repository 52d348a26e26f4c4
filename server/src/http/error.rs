//! The API's errors: a status, and a sentence that says what is wrong, where, and how to fix it.

use axum::Json;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use tokio::task::JoinError;
use wire::ids::RunIdError;
use wire::views::ApiError;

use crate::state::hub::Stopped;
use crate::state::recall::not_shown::NotShown;

/// An error of a handler, with its sentence.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The request is invalid.
    #[error("{0}")]
    BadRequest(String),
    /// The requested item does not exist.
    #[error("{0}")]
    NotFound(String),
    /// The request contradicts the server's state.
    #[error("{0}")]
    Conflict(String),
    /// The request or its answer is larger than allowed.
    #[error("{0}")]
    TooLarge(String),
    /// The server is busy. The client may try again after a second.
    #[error("{0}")]
    Busy(String),
    /// The server failed.
    #[error("{0}")]
    Server(String),
}

impl Failure {
    fn status(&self) -> StatusCode {
        match self {
            Self::BadRequest(_) => StatusCode::BAD_REQUEST,
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::Conflict(_) => StatusCode::CONFLICT,
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Busy(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Server(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl From<Stopped> for Failure {
    fn from(stopped: Stopped) -> Self {
        Self::Busy(stopped.to_string())
    }
}

impl From<NotShown> for Failure {
    fn from(error: NotShown) -> Self {
        let sentence = error.to_string();
        match error {
            NotShown::NoRun(_) | NotShown::Gone(_) | NotShown::NotYet(_) => Self::NotFound(sentence),
            NotShown::TooLarge(_) => Self::TooLarge(sentence),
            NotShown::Busy(_) => Self::Busy(sentence),
        }
    }
}

impl From<RunIdError> for Failure {
    fn from(error: RunIdError) -> Self {
        Self::BadRequest(error.to_string())
    }
}

/// A task panicked.
impl From<JoinError> for Failure {
    fn from(error: JoinError) -> Self {
        Self::Server(error.to_string())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = (self.status(), Json(ApiError { error: self.to_string() })).into_response();
        if matches!(self, Self::Busy(_)) {
            response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
        }
        response
    }
}
