//! Sentences for answers that no handler wrote. The router, its extractors and its layers refuse requests in plain text or
//! without a word. Every error of the API has the same form, JSON with a sentence, so these get it here.

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use wire::views::ApiError;

use super::ANSWER_WITHIN;
use crate::printable::one_line;

/// The longest text of an answer that is read, in bytes. Those of extractors have a line.
const MAX_SAID_BYTES: usize = 16 << 10;
/// The longest part of that text that a sentence repeats, in characters. It may quote the request.
const MAX_SAID_CHARS: usize = 300;

/// The middleware that gives errors of the API their form.
pub async fn write(request: Request, next: Next) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let response = next.run(request).await;
    if !path.starts_with("/api/") || !is_bare(&response) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let said = to_bytes(body, MAX_SAID_BYTES).await.unwrap_or_default();
    let said = shown(String::from_utf8_lossy(&said).trim());
    let error = sentence(parts.status, &shown(method.as_str()), &shown(&path), &said);
    // An error with one text can be written.
    let body = serde_json::to_vec(&ApiError { error }).unwrap_or_default();
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Response::from_parts(parts, Body::from(body))
}

/// Returns the part of a text that a sentence repeats.
fn shown(text: &str) -> String {
    one_line(text).chars().take(MAX_SAID_CHARS).collect()
}

/// Returns true if an answer is an error without the form of one.
fn is_bare(response: &Response) -> bool {
    let is_error = response.status().is_client_error() || response.status().is_server_error();
    let form = response.headers().get(header::CONTENT_TYPE).and_then(|form| form.to_str().ok());
    is_error && !form.is_some_and(|form| form.starts_with("application/json"))
}

/// Returns what is wrong, where, and what to do. `said` is what the answer said so far.
fn sentence(status: StatusCode, method: &str, path: &str, said: &str) -> String {
    let document = "GET /api/v1/openapi.json says what each request takes";
    match status {
        // The router adds the header behind all layers.
        StatusCode::METHOD_NOT_ALLOWED => {
            format!(
                "{path} does not take the method {method}: the header `allow` has those that it takes; {document}"
            )
        }
        StatusCode::REQUEST_TIMEOUT => format!(
            "the answer was not ready within {} s: try again, or ask for fewer steps or ranks",
            ANSWER_WITHIN.as_secs()
        ),
        StatusCode::PAYLOAD_TOO_LARGE => format!("the body of this request is larger than {path} takes"),
        _ if path == "/api/v1/live" => {
            format!("/api/v1/live is a WebSocket, and this request does not open one: {said}")
        }
        _ if said.is_empty() => {
            let reason = status.canonical_reason().unwrap_or("an error");
            format!("{method} {path} was refused ({}, {reason}); {document}", status.as_u16())
        }
        _ => format!("{}; {document}", explained(said)),
    }
}

/// Returns a sentence for the text of an extractor, which says what it did and not what is wrong.
fn explained(said: &str) -> String {
    let parts = [
        ("Failed to deserialize query string: ", "the query of this request is not valid"),
        ("Invalid URL: ", "the path of this request is not valid"),
    ];
    let found = parts.iter().find_map(|(prefix, what)| Some((what, said.strip_prefix(prefix)?)));
    found.map_or_else(|| said.to_owned(), |(what, why)| format!("{what}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_is_wrong_and_what_is_possible() {
        let answer = |status, said: &str| sentence(status, "PUT", "/api/v1/runs", said);
        assert_eq!(
            answer(StatusCode::BAD_REQUEST, "Failed to deserialize query string: missing field `a`"),
            "the query of this request is not valid: missing field `a`; GET /api/v1/openapi.json says what each request \
             takes"
        );
        let error = answer(StatusCode::METHOD_NOT_ALLOWED, "");
        assert!(
            error.starts_with("/api/v1/runs does not take the method PUT: the header `allow` has"),
            "{error}"
        );
        let error = answer(StatusCode::REQUEST_TIMEOUT, "");
        assert!(error.starts_with("the answer was not ready within 30 s"), "{error}");
    }
}
