//! How a browser signs in and out: the address with the token, and the cookie of its session.

use std::time::Instant;

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Redirect, Response};
use cookie::{Cookie, CookieBuilder, SameSite};
use percent_encoding::percent_decode_str;

use super::sessions::LIFETIME;
use super::unauthorized::Lack;
use super::{Guard, Pass, port, refuse, text};

/// The name of the cookie, before the port. Cookies are sent to every port of a host, so each port has its own.
const COOKIE: &str = "paceline_session";
/// The largest number of cookies with that name that a request may show: each is compared with every session. A browser
/// sends one, or some more that were set for other paths.
const MOST_COOKIES: usize = 4;
/// The parameter of an address that signs in.
const PARAMETER: &str = "token";

/// Answers a request of `/any/page?token=TOKEN` with a redirect to the page without the token, so that neither the
/// address bar nor the history has it. A right token sets the cookie of a session; with a session, it is not needed.
/// Returns `None` for requests without that parameter and of programs, and if the token is needed and wrong.
pub(super) fn redirected(
    guard: &Guard,
    request: &Request,
    entry: Result<Pass, Lack>,
    now: Instant,
) -> Option<Response> {
    let is_page = matches!(*request.method(), Method::GET | Method::HEAD);
    let token = shown_token(request.uri()).filter(|_| is_page)?;
    match entry {
        Ok(Pass::Token) => None,
        Ok(Pass::Open | Pass::Session(_)) => Some(redirect(request.uri()).into_response()),
        Err(_) if guard.is_token(&token) => Some(signed_in(guard, request, now)),
        Err(_) => None,
    }
}

fn signed_in(guard: &Guard, request: &Request, now: Instant) -> Response {
    match guard.sessions.open(now) {
        Ok(id) => {
            ([(header::SET_COOKIE, cookie(request.headers(), id))], redirect(request.uri())).into_response()
        }
        Err(error) => refuse(
            StatusCode::INTERNAL_SERVER_ERROR,
            &format!("cannot open a session, because the system has no random numbers: {error}"),
        ),
    }
}

/// Returns the token in an address. A plus sign is one, and not a space: tokens have no spaces, but Base64 has plus signs.
pub(super) fn shown_token(address: &Uri) -> Option<String> {
    let token = parameters(address).find_map(|(name, value)| (name == PARAMETER).then_some(value))?;
    Some(percent_decode_str(token).decode_utf8_lossy().into_owned())
}

fn parameters(address: &Uri) -> impl Iterator<Item = (&str, &str)> {
    let pairs = address.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

/// Redirects to the same address without the token.
fn redirect(address: &Uri) -> impl IntoResponse + use<> {
    let pairs = address.query().unwrap_or_default().split('&');
    let is_kept = |pair: &&str| !pair.is_empty() && pair.split('=').next() != Some(PARAMETER);
    let kept: Vec<&str> = pairs.filter(is_kept).collect();
    let query = if kept.is_empty() { String::new() } else { format!("?{}", kept.join("&")) };
    // Without this header, a browser may take the redirect from its cache when the session has ended.
    let fresh = [(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))];
    (fresh, Redirect::to(&format!("{}{query}", own_path(address.path()))))
}

/// Returns `path` as a path on this server. A path that begins with two slashes, or with a slash and a backslash, would
/// name another server.
fn own_path(path: &str) -> String {
    format!("/{}", path.trim_start_matches(['/', '\\']))
}

/// Returns the ids of sessions that a request shows for the port that it was sent to.
pub(super) fn shown_ids(headers: &HeaderMap) -> impl Iterator<Item = String> {
    let name = cookie_name(headers);
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let own = cookies.flat_map(Cookie::split_parse).flatten().filter(move |cookie| cookie.name() == name);
    own.take(MOST_COOKIES).map(|cookie| cookie.value().to_owned())
}

fn cookie_name(headers: &HeaderMap) -> String {
    match port(text(headers, header::HOST).unwrap_or_default()) {
        Some(port) => format!("{COOKIE}_{port}"),
        None => COOKIE.to_owned(),
    }
}

/// Returns the cookie of a session: scripts cannot read it, and other sites cannot send it.
pub(super) fn cookie(headers: &HeaderMap, id: String) -> String {
    let lifetime = cookie::time::Duration::seconds(LIFETIME.as_secs() as i64);
    own_cookie(headers, id).max_age(lifetime).build().to_string()
}

/// Returns the cookie that makes the browser forget its session.
pub(super) fn ended_cookie(headers: &HeaderMap) -> String {
    own_cookie(headers, String::new()).max_age(cookie::time::Duration::ZERO).build().to_string()
}

fn own_cookie(headers: &HeaderMap, value: String) -> CookieBuilder<'static> {
    // A proxy that has TLS says so. A client that says so itself only restricts its own cookie.
    let scheme = text(headers, header::HeaderName::from_static("x-forwarded-proto")).unwrap_or_default();
    let is_secure = scheme.split(',').next().is_some_and(|first| first.trim().eq_ignore_ascii_case("https"));
    Cookie::build((cookie_name(headers), value))
        .http_only(true)
        .same_site(SameSite::Strict)
        .secure(is_secure)
        .path("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_in_redirects_to_this_server_and_keeps_the_rest_of_the_query() {
        for (asked, page) in [
            ("/runs/a?token=x", "/runs/a"),
            ("/?token=x", "/"),
            ("//evil.example/?token=x", "/evil.example/"),
            ("/\\evil?token=x", "/evil"),
            ("/runs/a?steps=1..9&token=x&rank=2", "/runs/a?steps=1..9&rank=2"),
            ("/?token=x&token=y&q=token%3Dz&tokens=1", "/?q=token%3Dz&tokens=1"),
            ("/?&token&a=b=c", "/?a=b=c"),
        ] {
            let answer = redirect(&asked.parse().unwrap()).into_response();
            assert_eq!(answer.headers()[header::LOCATION], page, "{asked}");
        }
    }

    #[test]
    fn no_address_redirects_to_another_server_or_keeps_a_token() {
        let corpus = fuzz::Corpus::default()
            .with("page", "/runs/a?steps=1..9&token=secret&rank=2")
            .with("host", "//evil.example/\\evil?token=secret")
            .words(&["/", "\\", "?", "&", "&&", "token", "token=", "=", "%2f", "%5c", "@", "evil.example"]);
        corpus.check("sign_in", 20_000, |bytes, _| {
            let address = std::str::from_utf8(bytes).ok().and_then(|text| text.parse::<Uri>().ok());
            let Some(answer) = address.map(|address| redirect(&address).into_response()) else {
                return Ok(());
            };
            let target = answer.headers().get(header::LOCATION).ok_or("the answer has no location")?;
            let target = String::from_utf8_lossy(target.as_bytes());
            let is_own = target.starts_with('/') && !target.starts_with("//") && !target.starts_with("/\\");
            let (_, query) = target.split_once('?').unwrap_or_default();
            let is_clean = query.split('&').all(|pair| pair.split('=').next() != Some(PARAMETER));
            if is_own && is_clean { Ok(()) } else { Err(format!("redirects to {target}")) }
        });
    }

    #[test]
    fn a_token_in_an_address_may_be_encoded_and_a_plus_is_a_plus() {
        for (address, token) in [
            ("/?token=ab%2Bc%2Fd%3D", "ab+c/d="),
            ("/?token=ab+c/d=", "ab+c/d="),
            ("/?q=1&token=a%26b%25", "a&b%"),
            ("/?token=%zz", "%zz"),
        ] {
            assert_eq!(shown_token(&address.parse().unwrap()).as_deref(), Some(token), "{address}");
        }
        assert_eq!(shown_token(&"/?tokens=a".parse().unwrap()), None);
    }

    #[test]
    fn the_cookie_is_named_after_the_port_and_is_secure_behind_tls() {
        let headers = |pairs: &[(&'static str, &str)]| -> HeaderMap {
            pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
        };
        let plain = cookie(&headers(&[("host", "box:8080")]), "id".into());
        assert_eq!(plain, "paceline_session_8080=id; HttpOnly; SameSite=Strict; Path=/; Max-Age=604800");
        let proxied = headers(&[("host", "box"), ("x-forwarded-proto", "https, http")]);
        let secure = cookie(&proxied, "id".into());
        assert_eq!(secure, "paceline_session=id; HttpOnly; SameSite=Strict; Secure; Path=/; Max-Age=604800");
        let sent = headers(&[("host", "[::1]:9"), ("cookie", "paceline_session_8=a; paceline_session_9=b")]);
        assert_eq!(shown_ids(&sent).collect::<Vec<_>>(), ["b"]);
        assert!(
            ended_cookie(&sent).contains("paceline_session_9=;") && ended_cookie(&sent).contains("Max-Age=0")
        );
    }
}
