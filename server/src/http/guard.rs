//! The guard, which decides which requests are accepted. Host and Origin are always checked, against DNS rebinding and
//! against other pages in the same browser. A server that listens beyond loopback also requires a token.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use cookie::{Cookie, SameSite};
use subtle::ConstantTimeEq as _;
use wire::views::ApiError;

use super::connections::ConnectionPlace;

const COOKIE: &str = "paceline_token";
/// The longest part of a header that an answer repeats, in characters.
const MAX_SHOWN: usize = 100;

/// The rules for accepting requests.
#[derive(Clone, Debug, Default)]
pub struct Guard {
    /// The accepted host names, in addition to IP addresses and `localhost`.
    pub host_names: Vec<String>,
    /// Whether the server listens on loopback only. If so, the only accepted addresses are loopback addresses.
    pub loopback_only: bool,
    /// The token that clients must send, if any.
    pub token: Option<String>,
}

/// The reason why a request is refused.
#[derive(Debug, PartialEq, Eq)]
enum Refusal {
    Host(String),
    Origin(String),
    Token,
}

impl Guard {
    fn check(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let text = |name| headers.get(name).and_then(|value: &header::HeaderValue| value.to_str().ok());
        let host = text(header::HOST).unwrap_or_default();
        if !self.is_own_host(host) {
            return Err(Refusal::Host(shown(host)));
        }
        // Browsers send the origin of the page that makes the request. The dashboard's origin has the server's host.
        // Programs send no origin.
        if let Some(origin) = text(header::ORIGIN)
            && origin.split_once("://").map(|(_, rest)| rest) != Some(host)
        {
            return Err(Refusal::Origin(shown(origin)));
        }
        match &self.token {
            Some(token) if !shown_tokens(headers).any(|shown| equal(shown, token)) => Err(Refusal::Token),
            _ => Ok(()),
        }
    }

    fn is_own_host(&self, host: &str) -> bool {
        let name = without_port(host);
        if name.eq_ignore_ascii_case("localhost") {
            return true;
        }
        match name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            Ok(address) => address.is_loopback() || !self.loopback_only,
            Err(_) => self.host_names.iter().any(|known| known.eq_ignore_ascii_case(name)),
        }
    }
}

/// Returns the part of a header that an answer repeats. A header may be as long as the head of a request.
fn shown(text: &str) -> String {
    text.chars().take(MAX_SHOWN).collect()
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !name.is_empty() => name,
        _ => host,
    }
}

fn shown_tokens(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let bearer =
        headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let own = cookies.flat_map(Cookie::split_parse).flatten().filter(|cookie| cookie.name() == COOKIE);
    bearer.into_iter().chain(own.filter_map(|cookie| cookie.value_raw()))
}

/// Compares two texts in a time that does not depend on where they differ. A token therefore cannot be guessed
/// character by character.
fn equal(a: &str, b: &str) -> bool {
    a.as_bytes().ct_eq(b.as_bytes()).into()
}

/// The middleware that refuses requests against the rules.
pub async fn check(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    match guard.check(request.headers()) {
        Ok(()) => {
            if let Some(place) = request.extensions().get::<ConnectionPlace>() {
                place.admit();
            }
            next.run(request).await
        }
        Err(Refusal::Token) => match sign_in(&guard, &request) {
            Some(response) => response,
            // Liveness checks need no token. The answer reveals nothing else.
            None if request.uri().path() == "/healthz" => next.run(request).await,
            None => refuse(
                StatusCode::UNAUTHORIZED,
                "this server requires a token: send `Authorization: Bearer TOKEN`, or open /?token=TOKEN in a browser",
            ),
        },
        Err(Refusal::Host(host)) => refuse(
            StatusCode::MISDIRECTED_REQUEST,
            &format!("the Host header {host:?} is not a name of this server: allow it with --host-name"),
        ),
        Err(Refusal::Origin(origin)) => {
            refuse(StatusCode::FORBIDDEN, &format!("pages of {origin:?} may not call this server"))
        }
    }
}

/// Answers a request of `/any/page?token=TOKEN`: sets a cookie that scripts cannot read and other sites cannot send,
/// and redirects to the page, which removes the token from the address bar. Returns `None` if the token is missing or
/// wrong.
fn sign_in(guard: &Guard, request: &Request) -> Option<Response> {
    let query = request.uri().query()?;
    let token = query.split('&').find_map(|pair| pair.strip_prefix("token="))?;
    if !equal(token, guard.token.as_deref()?) {
        return None;
    }
    let cookie = Cookie::build((COOKIE, token)).http_only(true).same_site(SameSite::Strict).path("/").build();
    Some(
        ([(header::SET_COOKIE, cookie.to_string())], Redirect::to(&own_path(request.uri().path())))
            .into_response(),
    )
}

/// Returns `path` as a path on this server. A path that begins with two slashes, or with a slash and a backslash, would
/// name another server.
fn own_path(path: &str) -> String {
    format!("/{}", path.trim_start_matches(['/', '\\']))
}

fn refuse(status: StatusCode, reason: &str) -> Response {
    (status, axum::Json(ApiError { error: reason.to_owned() })).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    fn local() -> Guard {
        Guard { loopback_only: true, ..Guard::default() }
    }

    #[test]
    fn only_the_servers_own_hosts_and_origins_are_accepted() {
        for host in ["127.0.0.1:8080", "localhost", "[::1]:8080", "LOCALHOST:1"] {
            assert_eq!(local().check(&headers(&[("host", host)])), Ok(()), "{host}");
        }
        for host in ["", "evil.example", "127.0.0.1.evil.example:80", "10.0.0.1:8080"] {
            assert!(matches!(local().check(&headers(&[("host", host)])), Err(Refusal::Host(_))), "{host}");
        }
        let open = Guard { host_names: vec!["box".into()], ..Guard::default() };
        assert_eq!(open.check(&headers(&[("host", "10.0.0.1:8080")])), Ok(()));
        assert_eq!(open.check(&headers(&[("host", "box:8080")])), Ok(()));

        let host = ("host", "127.0.0.1:8080");
        assert_eq!(local().check(&headers(&[host, ("origin", "http://127.0.0.1:8080")])), Ok(()));
        for origin in ["http://evil.example", "null", "http://127.0.0.1:9"] {
            let refused = local().check(&headers(&[host, ("origin", origin)]));
            assert!(matches!(refused, Err(Refusal::Origin(_))), "{origin}");
        }
    }

    #[test]
    fn a_sign_in_redirects_to_this_server() {
        for (asked, page) in
            [("/runs/a", "/runs/a"), ("/", "/"), ("//evil.example/", "/evil.example/"), ("/\\evil", "/evil")]
        {
            assert_eq!(own_path(asked), page);
        }
    }

    #[test]
    fn the_token_is_read_from_the_header_or_the_cookie_and_must_match() {
        let guard = Guard { token: Some("s3cret".into()), ..local() };
        let host = ("host", "localhost");
        assert_eq!(guard.check(&headers(&[host])), Err(Refusal::Token));
        assert_eq!(guard.check(&headers(&[host, ("authorization", "Bearer s3cre")])), Err(Refusal::Token));
        assert_eq!(guard.check(&headers(&[host, ("authorization", "Bearer s3cret")])), Ok(()));
        assert_eq!(guard.check(&headers(&[host, ("cookie", "a=b; paceline_token=s3cret")])), Ok(()));
    }
}
