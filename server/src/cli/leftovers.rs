//! Sends the batches that earlier jobs could not send before they ended.

use std::net::{SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::time::{Duration, Instant};

use agent::leftovers::{Leftovers, RefusedBatches, Sent};
use axum::http::Uri;

use super::complain;
use crate::store::directory::Layout;

/// The time for which a command that a person waits for sends leftovers. What is left then is sent by the next one.
const WHILE_WAITED_FOR: Duration = Duration::from_secs(5);

/// A server whose token this command knows.
pub(super) struct Known {
    /// The address, `http://127.0.0.1:8080`.
    pub(super) address: String,
    /// The token, if it requires one.
    pub(super) token: Option<String>,
}

impl Known {
    /// Returns the server that the environment names, or the one that serves a data directory.
    pub(super) fn from_environment(layout: &Layout) -> Option<Self> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let address = variable("PACELINE_SERVER").or_else(|| layout.serving())?;
        Some(Self { address, token: variable("PACELINE_TOKEN") })
    }

    /// Returns the token of the server with this address. Any other server must not see it.
    fn token_of(&self, address: &str) -> Option<String> {
        self.token.clone().filter(|_| is_same(&self.address, address))
    }
}

/// Sends the leftovers of this user for some seconds, each to its server, and says what became of them.
pub(super) fn send(known: Option<&Known>) {
    send_until(known, Some(Instant::now() + WHILE_WAITED_FOR));
}

/// Sends leftovers before a job starts, and what takes longer beside it.
pub(super) async fn send_before_a_job(known: Known) {
    let sending = tokio::spawn(send_aside(known));
    let _goes_on = tokio::time::timeout(WHILE_WAITED_FOR, sending).await;
}

/// Sends all leftovers on another thread, beside a server.
pub(super) async fn send_aside(known: Known) {
    let _panicked = tokio::task::spawn_blocking(move || send_until(Some(&known), None)).await;
}

fn send_until(known: Option<&Known>, deadline: Option<Instant>) {
    let Some(leftovers) = Leftovers::from_environment() else { return };
    let token = |address: &str| known?.token_of(address);
    leftovers.send(token, deadline).iter().map(said).for_each(|line| complain(&line));
}

/// Returns whether two addresses are of one server. Jobs may name a server of this host by another name than it does itself.
fn is_same(a: &str, b: &str) -> bool {
    let parts = |address: &str| {
        let uri: Uri = address.parse().ok()?;
        Some((uri.host()?.trim_matches(['[', ']']).to_lowercase(), uri.port_u16().unwrap_or(80)))
    };
    let (Some((host_a, port_a)), Some((host_b, port_b))) = (parts(a), parts(b)) else { return false };
    port_a == port_b && (host_a == host_b || (is_this_host(&host_a) && is_this_host(&host_b)))
}

/// Returns whether all addresses of a name are of this host: a socket can be bound to them.
fn is_this_host(name: &str) -> bool {
    let addresses: Vec<SocketAddr> = (name, 0).to_socket_addrs().into_iter().flatten().collect();
    !addresses.is_empty() && addresses.iter().all(|address| UdpSocket::bind(address).is_ok())
}

fn said(sent: &Sent) -> String {
    let Sent { path, server, stored, refused, left, is_given_up } = sent;
    if server.is_empty() {
        let reason = left.as_deref().unwrap_or_default();
        return format!("what earlier jobs left in {} is not sent: {reason}", path.display());
    }
    let batches = |count: u64| if count == 1 { "1 batch".to_owned() } else { format!("{count} batches") };
    let mut line = format!("{} of an earlier job", path.display());
    if *stored > 0 {
        line += &format!(": {} sent to {server}", batches(*stored));
    }
    if let Some(RefusedBatches { count, reason }) = refused {
        line += &format!("; {server} refuses {}: {reason}", batches(*count));
    }
    if let Some(left) = left {
        let what =
            if *is_given_up { "is removed, because it is 30 days old and" } else { "is kept, because" };
        line += &format!(" {what} {left}");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_has_a_line_that_says_what_became_of_it() {
        let sent = |stored, refused: Option<(u64, &str)>, left: Option<&str>| Sent {
            path: "/s/r-rank-0.spool".into(),
            server: "http://h:1".into(),
            stored,
            refused: refused.map(|(count, reason)| RefusedBatches { count, reason: reason.to_owned() }),
            left: left.map(str::to_owned),
            is_given_up: false,
        };
        assert_eq!(
            said(&sent(2, None, None)),
            "/s/r-rank-0.spool of an earlier job: 2 batches sent to http://h:1"
        );
        assert_eq!(
            said(&sent(0, Some((1, "409: taken")), None)),
            "/s/r-rank-0.spool of an earlier job; http://h:1 refuses 1 batch: 409: taken"
        );
        assert_eq!(
            said(&sent(0, None, Some("the server does not answer"))),
            "/s/r-rank-0.spool of an earlier job is kept, because the server does not answer"
        );
        let old = Sent { is_given_up: true, ..sent(0, None, Some("the server does not answer")) };
        assert!(said(&old).ends_with("is removed, because it is 30 days old and the server does not answer"));
        let folder = Sent { path: "/s".into(), left: Some("it is not a folder".into()), ..Sent::default() };
        assert_eq!(said(&folder), "what earlier jobs left in /s is not sent: it is not a folder");
    }

    #[test]
    fn a_token_is_only_for_its_server() {
        let known = Known { address: "http://127.0.0.1:8080".into(), token: Some("t".into()) };
        for same in ["http://127.0.0.1:8080", "http://localhost:8080", "http://[::1]:8080"] {
            assert!(known.token_of(same).is_some(), "{same}");
        }
        // The last address is for documentation, and no host has it.
        for other in ["http://127.0.0.1:8081", "http://192.0.2.1:8080", "http://h", "", "http://"] {
            assert!(known.token_of(other).is_none(), "{other}");
        }
        let remote = Known { address: "http://Box".into(), token: Some("t".into()) };
        assert!(remote.token_of("http://box:80").is_some() && remote.token_of("http://localhost").is_none());
    }
}
