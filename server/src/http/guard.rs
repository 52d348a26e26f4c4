//! The guard, which decides which requests are accepted. Host and Origin are always checked, against DNS rebinding and
//! against other pages in the same browser. A server that listens beyond loopback also requires a token, or the session
//! that a browser opened with it.

mod sessions;
mod sign_in;
mod unauthorized;

use std::net::IpAddr;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use maud::{DOCTYPE, html};
use subtle::ConstantTimeEq as _;
use wire::views::ApiError;

use super::App;
use super::connections::ConnectionPlace;
pub use sessions::Sessions;
use sessions::Use;
pub use unauthorized::Unauthorized;
use unauthorized::{Consequence, Lack};

/// The longest part of a header that an answer repeats, in characters.
const MAX_SHOWN: usize = 100;

/// The rules for accepting requests, and what is known of those who made them.
#[derive(Debug, Default)]
pub struct Guard {
    /// The accepted host names, in addition to IP addresses and `localhost`.
    pub host_names: Vec<String>,
    /// Whether the server listens on loopback only. If so, the only accepted addresses are loopback addresses.
    pub loopback_only: bool,
    /// The token that clients must send, if any.
    pub token: Option<String>,
    /// The sessions of browsers that have shown the token.
    pub sessions: Sessions,
    /// The requests without the right token.
    pub unauthorized: Unauthorized,
}

/// The reason why a request is refused, whatever its token.
#[derive(Debug, PartialEq, Eq)]
enum Refusal {
    Host(String),
    Origin(String),
}

/// Why a request is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    /// The server requires no token.
    Open,
    /// The request has the token.
    Token,
    /// The request has the cookie of a session.
    Session(Use),
}

impl Guard {
    fn check_addresses(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let host = text(headers, header::HOST).unwrap_or_default();
        if !self.is_own_host(host) {
            return Err(Refusal::Host(shown(host)));
        }
        // Browsers send the origin of the page that makes the request. The dashboard's origin has the server's host.
        // Programs send no origin.
        if let Some(origin) = text(headers, header::ORIGIN)
            && origin.split_once("://").map(|(_, rest)| rest) != Some(host)
        {
            return Err(Refusal::Origin(shown(origin)));
        }
        Ok(())
    }

    /// Checks the token of a request, or its session.
    fn check_token(&self, headers: &HeaderMap, now: Instant) -> Result<Pass, Lack> {
        let Some(own) = &self.token else { return Ok(Pass::Open) };
        let bearer = text(headers, header::AUTHORIZATION).and_then(bearer);
        if bearer.is_some_and(|token| equal(token, own)) {
            return Ok(Pass::Token);
        }
        if let Some(used) = sign_in::shown_ids(headers).find_map(|id| self.sessions.renew(&id, now)) {
            return Ok(Pass::Session(used));
        }
        Err(match bearer {
            Some(_) => Lack::WrongToken,
            None if sign_in::shown_ids(headers).next().is_some() => Lack::EndedSession,
            None => Lack::NoToken,
        })
    }

    fn is_token(&self, shown: &str) -> bool {
        self.token.as_ref().is_some_and(|own| equal(shown, own))
    }

    fn is_own_host(&self, host: &str) -> bool {
        let name = strip_port(host);
        if name.eq_ignore_ascii_case("localhost") {
            return true;
        }
        match name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            Ok(address) => address.is_loopback() || !self.loopback_only,
            Err(_) => self.host_names.iter().any(|known| known.eq_ignore_ascii_case(name)),
        }
    }

    /// Returns whether a request has a session, which it can end.
    #[must_use]
    pub fn is_signed_in(&self, headers: &HeaderMap) -> bool {
        let now = Instant::now();
        self.token.is_some() && sign_in::shown_ids(headers).any(|id| self.sessions.renew(&id, now).is_some())
    }

    /// Ends the session of a request, if it has one. Returns the cookie that makes the browser forget it.
    #[must_use]
    pub fn sign_out(&self, headers: &HeaderMap) -> String {
        sign_in::shown_ids(headers).for_each(|id| self.sessions.end(&id, Instant::now()));
        sign_in::ended_cookie(headers)
    }

    /// Waits until the person who made a request has signed out. Never returns for requests without a session.
    pub async fn signed_out(&self, headers: &HeaderMap) {
        let mut ends = self.sessions.ends();
        if self.is_signed_in(headers) {
            while ends.changed().await.is_ok() {
                if !self.is_signed_in(headers) {
                    return;
                }
            }
        }
        std::future::pending::<()>().await;
    }
}

/// Returns the token in an `Authorization` header. The name of the scheme may be written in any case (RFC 9110, 11.1).
fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim_start_matches(' '))
}

/// Returns the text of a header, if it is there and ASCII.
fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Returns the part of a header that an answer repeats. A header may be as long as the head of a request.
fn shown(text: &str) -> String {
    text.chars().take(MAX_SHOWN).collect()
}

fn strip_port(host: &str) -> &str {
    port(host).map_or(host, |port| &host[..host.len() - port.len() - 1])
}

/// Returns the port of a Host header, if it names one.
fn port(host: &str) -> Option<&str> {
    let (name, port) = host.rsplit_once(':')?;
    (!name.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())).then_some(port)
}

/// Compares two texts in a time that does not depend on where they differ. A token therefore cannot be guessed
/// character by character.
fn equal(a: &str, b: &str) -> bool {
    a.as_bytes().ct_eq(b.as_bytes()).into()
}

/// The middleware that refuses requests against the rules.
pub async fn check(State(app): State<App>, request: Request, next: Next) -> Response {
    match app.guard.check_addresses(request.headers()) {
        Ok(()) => admit(app, request, next).await,
        Err(Refusal::Host(host)) => refuse(
            StatusCode::MISDIRECTED_REQUEST,
            &format!("the Host header {host:?} is not a name of this server: allow it with --host-name"),
        ),
        Err(Refusal::Origin(origin)) => {
            refuse(StatusCode::FORBIDDEN, &format!("pages of {origin:?} may not call this server"))
        }
    }
}

/// Answers a request that has the right addresses.
async fn admit(app: App, request: Request, next: Next) -> Response {
    // Liveness checks need no token. A token that is shown there is not looked at, so that the answer says nothing about it.
    if request.uri().path() == "/healthz" {
        return next.run(request).await;
    }
    let now = Instant::now();
    let entry = app.guard.check_token(request.headers(), now);
    if let Some(response) = sign_in::redirected(&app.guard, &request, entry, now) {
        return response;
    }
    match entry {
        Ok(pass) => {
            if let Some(place) = request.extensions().get::<ConnectionPlace>() {
                place.admit();
            }
            let renewed = renewed_cookie(&app.guard, request.headers(), pass);
            let mut response = next.run(request).await;
            response.headers_mut().extend(renewed.map(|cookie| (header::SET_COOKIE, cookie)));
            response
        }
        Err(lack) => {
            let shown = sign_in::shown_token(request.uri()).filter(|shown| !app.guard.is_token(shown));
            let lack = if shown.is_some() { Lack::WrongToken } else { lack };
            let peer = request.extensions().get::<ConnectionPlace>().map(ConnectionPlace::peer);
            let kinds = text(request.headers(), header::ACCEPT).unwrap_or_default();
            let is_page = kinds.contains("text/html") && !request.uri().path().starts_with("/api/");
            let refusal = if is_page { sign_in_page() } else { token_refusal(lack) };
            record(&app, lack, peer).await;
            refusal
        }
    }
}

/// Returns the cookie of a session that lasts longer now.
fn renewed_cookie(guard: &Guard, headers: &HeaderMap, pass: Pass) -> Option<HeaderValue> {
    let Pass::Session(Use::Renewed) = pass else { return None };
    let now = Instant::now();
    let id = sign_in::shown_ids(headers).find(|id| guard.sessions.renew(id, now).is_some())?;
    sign_in::cookie(headers, id).parse().ok()
}

/// Counts an unauthorized request and says so in the log now and then. Waits if its token is wrong, so that tokens cannot
/// be tried quickly.
async fn record(app: &App, lack: Lack, peer: Option<IpAddr>) {
    app.metrics.server.unauthorized(lack.name());
    let Consequence { delay, say_after } = app.guard.unauthorized.note(lack, peer, Instant::now());
    if let Some(wait) = say_after {
        let guard = app.guard.clone();
        tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            tracing::warn!("{}", guard.unauthorized.line(Instant::now()));
        });
    }
    tokio::time::sleep(delay).await;
}

/// Returns what a program gets without the right token.
fn token_refusal(lack: Lack) -> Response {
    let what = match lack {
        Lack::WrongToken => "this is not the token of this server",
        Lack::NoToken => "this server requires a token",
        Lack::EndedSession => "this session has ended",
    };
    let reason = format!("{what}: send `Authorization: Bearer TOKEN`, or open /?token=TOKEN in a browser");
    let scheme = [(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))];
    (scheme, refuse(StatusCode::UNAUTHORIZED, &reason)).into_response()
}

/// Returns what a browser shows without a session.
fn sign_in_page() -> Response {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head { meta charset="utf-8"; title { "Paceline" } }
            body {
                h1 { "You are not signed in" }
                p { "Open " code { "/?token=TOKEN" } " on this server, with the token that it was started with." }
            }
        }
    };
    let kind = [(header::CONTENT_TYPE, "text/html; charset=utf-8"), (header::CACHE_CONTROL, "no-store")];
    (StatusCode::UNAUTHORIZED, kind, page.into_string()).into_response()
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
            assert_eq!(local().check_addresses(&headers(&[("host", host)])), Ok(()), "{host}");
        }
        for host in ["", "evil.example", "127.0.0.1.evil.example:80", "10.0.0.1:8080"] {
            assert!(
                matches!(local().check_addresses(&headers(&[("host", host)])), Err(Refusal::Host(_))),
                "{host}"
            );
        }
        let open = Guard { host_names: vec!["box".into()], ..Guard::default() };
        assert_eq!(open.check_addresses(&headers(&[("host", "10.0.0.1:8080")])), Ok(()));
        assert_eq!(open.check_addresses(&headers(&[("host", "box:8080")])), Ok(()));

        let host = ("host", "127.0.0.1:8080");
        assert_eq!(local().check_addresses(&headers(&[host, ("origin", "http://127.0.0.1:8080")])), Ok(()));
        for origin in ["http://evil.example", "null", "http://127.0.0.1:9"] {
            let refused = local().check_addresses(&headers(&[host, ("origin", origin)]));
            assert!(matches!(refused, Err(Refusal::Origin(_))), "{origin}");
        }
    }

    #[test]
    fn the_token_is_read_from_the_header_and_must_match_and_a_cookie_is_no_token() {
        let guard = Guard { token: Some("s3cret+/=".into()), ..local() };
        let (now, host) = (Instant::now(), ("host", "localhost"));
        let check =
            |pairs: &[(&'static str, &str)]| guard.check_token(&headers(&[&[host], pairs].concat()), now);
        assert_eq!(check(&[]), Err(Lack::NoToken));
        assert_eq!(check(&[("authorization", "Basic abc")]), Err(Lack::NoToken));
        assert_eq!(check(&[("authorization", "Bearer s3cre")]), Err(Lack::WrongToken));
        for right in ["Bearer s3cret+/=", "bearer s3cret+/=", "BEARER  s3cret+/="] {
            assert_eq!(check(&[("authorization", right)]), Ok(Pass::Token), "{right}");
        }
        assert_eq!(check(&[("cookie", "paceline_token=s3cret+/=")]), Err(Lack::NoToken));
        assert_eq!(check(&[("cookie", "paceline_session=s3cret+/=")]), Err(Lack::EndedSession));
        let id = guard.sessions.open(now).unwrap();
        let cookie = format!("a=b; paceline_session={id}");
        assert_eq!(check(&[("cookie", &cookie)]), Ok(Pass::Session(Use::Plain)));
        // An old cookie of another path comes first. It does not hide the session.
        let both = format!("paceline_session=old; paceline_session={id}");
        assert_eq!(check(&[("cookie", &both)]), Ok(Pass::Session(Use::Plain)));
        assert_eq!(
            check(&[("authorization", "Bearer wrong"), ("cookie", &cookie)]),
            Ok(Pass::Session(Use::Plain))
        );
        assert!(guard.is_signed_in(&headers(&[host, ("cookie", &cookie)])));
        let _cookie = guard.sign_out(&headers(&[host, ("cookie", &cookie)]));
        assert_eq!(check(&[("cookie", &cookie)]), Err(Lack::EndedSession));
    }
}
