//! Serves the dashboard's files, which the program embeds as they are and compressed.
//!
//! Files under `/assets/` have their hash in their name, and browsers may cache them for a year. Every other path
//! outside the API is a view of the dashboard, and all views are the same document.

use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use wire::views::ApiError;

use super::App;
use crate::printable::one_line;

/// A file as built, and its compressed forms.
#[derive(Debug)]
pub struct Asset {
    /// The path in an address, without the slash at its beginning.
    pub path: &'static str,
    /// The content.
    pub plain: &'static [u8],
    /// The content, compressed by Brotli.
    pub br: Option<&'static [u8]>,
    /// The content, compressed by gzip.
    pub gz: Option<&'static [u8]>,
}

/// All files of the dashboard; none in a server that was built without it.
pub type Page = &'static [Asset];

/// The longest path that an error repeats, in characters.
const MAX_SHOWN: usize = 300;

const YEAR: &str = "public, max-age=31536000, immutable";
const NO_BUNDLE: &str = "<!doctype html><meta charset=utf-8><title>Paceline</title>\
    <p>This server was built without its dashboard. Run <code>cargo xtask web</code>, then build the server again. \
    The API, /metrics and the command line work without the dashboard.";

/// Answers requests that match no other route: a file, a view of the dashboard, or 404.
pub async fn asset(
    State(App { page, .. }): State<App>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let path = uri.path().trim_start_matches('/');
    if path.starts_with("api/") {
        return nothing_at(path);
    }
    if method != Method::GET && method != Method::HEAD {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    if let Some(found) = page.iter().find(|asset| asset.path == path && path != "index.html") {
        return serve(found, &headers, if path.starts_with("assets/") { YEAR } else { "no-cache" });
    }
    if path.starts_with("assets/") {
        return nothing_at(path);
    }
    match page.iter().find(|asset| asset.path == "index.html") {
        Some(index) => serve(index, &headers, "no-cache"),
        None => {
            let html = [(header::CONTENT_TYPE, "text/html; charset=utf-8")];
            (StatusCode::SERVICE_UNAVAILABLE, html, NO_BUNDLE).into_response()
        }
    }
}

fn nothing_at(path: &str) -> Response {
    let hint = if path.starts_with("api/") { ": GET /api/v1/openapi.json lists what there is" } else { "" };
    let path: String = one_line(path).chars().take(MAX_SHOWN).collect();
    let error = ApiError { error: format!("there is nothing at /{path}{hint}") };
    (StatusCode::NOT_FOUND, axum::Json(error)).into_response()
}

fn serve(asset: &'static Asset, headers: &HeaderMap, cache: &'static str) -> Response {
    let text = |name| headers.get(name).and_then(|value: &header::HeaderValue| value.to_str().ok());
    let tag = format!("W/\"{:08x}\"", crc32fast::hash(asset.plain));
    let fixed = [
        (header::CONTENT_TYPE, content_type(asset.path).to_owned()),
        (header::CACHE_CONTROL, cache.to_owned()),
        (header::VARY, "accept-encoding".to_owned()),
        (header::ETAG, tag.clone()),
    ];
    if text(header::IF_NONE_MATCH) == Some(tag.as_str()) {
        return (StatusCode::NOT_MODIFIED, fixed).into_response();
    }
    let accepted = text(header::ACCEPT_ENCODING).unwrap_or_default();
    match (asset.br, asset.gz) {
        (Some(br), _) if accepts(accepted, "br") => {
            (fixed, [(header::CONTENT_ENCODING, "br")], br).into_response()
        }
        (_, Some(gz)) if accepts(accepted, "gzip") => {
            (fixed, [(header::CONTENT_ENCODING, "gzip")], gz).into_response()
        }
        _ => (fixed, asset.plain).into_response(),
    }
}

/// Returns true if an Accept-Encoding header names `coding` with a weight other than zero.
fn accepts(header: &str, coding: &str) -> bool {
    header.split(',').any(|item| {
        let mut pieces = item.split(';').map(str::trim);
        let named = pieces.next().is_some_and(|name| name.eq_ignore_ascii_case(coding));
        let refused = pieces
            .filter_map(|piece| piece.strip_prefix("q="))
            .any(|weight| weight.parse::<f32>().is_ok_and(|weight| weight == 0.0));
        named && !refused
    })
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map(|(_, extension)| extension) {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("wasm") => "application/wasm",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("json" | "webmanifest") => "application/json",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoding_is_used_if_the_client_names_it_with_a_positive_weight() {
        assert!(accepts("gzip, deflate, br", "br"));
        assert!(accepts("br;q=0.5", "br"));
        assert!(!accepts("br;q=0, gzip", "br"));
        assert!(!accepts("", "gzip"));
    }
}
