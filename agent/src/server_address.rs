//! The address of a server, as a person writes it: `http://HOST` or `http://HOST:PORT`. It is checked before anything is sent, because
//! a part that is wrong would be left out and the token sent elsewhere: a client takes port 80 for one above 65535.

use thiserror::Error;
use ureq::http::Uri;

/// The reason why a text is not an address of a server.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum AddressError {
    /// It begins with `https://`.
    #[error(
        "agents and this program have no TLS: give the server's own http:// address within a trusted network, or the near end \
         of a tunnel; a proxy with TLS is for browsers only"
    )]
    Tls,
    /// It does not begin with `http://`.
    #[error("it does not start with http:// (for instance http://127.0.0.1:8080)")]
    Scheme,
    /// It has a user name or a password.
    #[error("it has a user name: a server has no users, and its token is in PACELINE_TOKEN")]
    User,
    /// It has more than a host and a port.
    #[error("it has a path: give the host and the port alone, as in http://127.0.0.1:8080")]
    Path,
    /// The port is not a number up to 65535.
    #[error("its port is not a number from 1 to 65535")]
    Port,
    /// The host is missing or has characters that no name has. IPv6 addresses are written in brackets.
    #[error("it has no valid host (an IPv6 address is written in brackets, as in http://[::1]:8080)")]
    Host,
}

/// Returns an address in the form `http://HOST:PORT`. Spaces around it and a slash at its end are left out.
///
/// # Errors
/// Returns an error if the text is not an address of a server.
pub fn parse(text: &str) -> Result<String, AddressError> {
    let text = text.trim();
    let (scheme, rest) = text.split_once("://").ok_or(AddressError::Scheme)?;
    match scheme.to_ascii_lowercase().as_str() {
        "http" => {}
        "https" => return Err(AddressError::Tls),
        _ => return Err(AddressError::Scheme),
    }
    let place = rest.trim_end_matches('/');
    if place.contains('@') {
        return Err(AddressError::User);
    }
    if place.contains(['/', '?', '#']) {
        return Err(AddressError::Path);
    }
    let rest_of_host = place.rsplit_once(']').map_or(place, |(_, rest)| rest);
    if let Some((_, port)) = rest_of_host.split_once(':')
        && !port.parse::<u16>().is_ok_and(|port| port > 0)
    {
        // `::1` without brackets has a colon in the host.
        return Err(if port.contains(':') { AddressError::Host } else { AddressError::Port });
    }
    let address = format!("http://{place}");
    let has_host = |uri: Uri| uri.host().is_some_and(|host| !host.is_empty() && host != "[]");
    if address.parse().is_ok_and(has_host) { Ok(address) } else { Err(AddressError::Host) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port() {
        for (text, address) in [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            (" HTTP://box/ \n", "http://box"),
            ("http://[::1]:8080", "http://[::1]:8080"),
            ("http://[fe80::1]", "http://[fe80::1]"),
        ] {
            assert_eq!(parse(text).as_deref(), Ok(address), "{text}");
        }
        for (text, error) in [
            ("https://box", AddressError::Tls),
            ("HTTPS://box", AddressError::Tls),
            ("box:8080", AddressError::Scheme),
            ("ftp://box", AddressError::Scheme),
            ("http://user:secret@box:8080", AddressError::User),
            ("http://box/paceline", AddressError::Path),
            ("http://box?x=1", AddressError::Path),
            ("http://127.0.0.1:99999", AddressError::Port),
            ("http://box:", AddressError::Port),
            ("http://box:0", AddressError::Port),
            ("http://box:http", AddressError::Port),
            ("http://[::1]:99999", AddressError::Port),
            ("http://::1:9", AddressError::Host),
            ("http://", AddressError::Host),
            ("http://h h", AddressError::Host),
            ("http://:80", AddressError::Host),
        ] {
            assert_eq!(parse(text), Err(error), "{text}");
        }
    }
}
