//! The HTTP transport: sends a batch on a persistent connection, and translates the answer into what to do next.

use std::time::Duration;

use serde_json::Value;
use ureq::http::Response;
use ureq::unversioned::transport::DefaultConnector;
use ureq::{Agent as Client, Body};
use wire::batch::RECEIPT_HEADER;
use wire::clock::{Probe, ServerNanos};
use wire::request::Requests;

use crate::addresses::Addresses;
use crate::clock;

/// The outcome of sending a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// The batch is on the server's disk. Holds what the server asks for.
    Acknowledged(Requests),
    /// The server has no room now. Try again after this long.
    Later(Duration),
    /// The server will never accept the batch, for this reason.
    Refused(String),
    /// The batch contradicts what the server has of its run, for this reason. A later one may not.
    Contradicted(String),
    /// The server accepts nothing from this client until someone changes something, for this reason: the token is wrong.
    Denied(String),
    /// There was no answer, or no certain one.
    Unreachable,
    /// The answer is not from a Paceline server, or does not prove that this batch is stored. The batch stays in the
    /// spool.
    Unproven(String),
}

/// The longest reason that is printed, in characters. A proxy's error page may be long.
const MAX_REASON_CHARS: usize = 300;
const MAX_ANSWER_BYTES: u64 = 64 << 10;

/// A connection to the server.
pub(crate) struct Transport {
    client: Client,
    addresses: Addresses,
    ingest_url: String,
    clock_url: String,
    authorization: Option<String>,
}

const ANSWER_LIMIT: Duration = Duration::from_secs(2);
const CONNECT_LIMIT: Duration = Duration::from_secs(1);
const DEFAULT_RETRY: Duration = Duration::from_millis(200);

impl Transport {
    pub(crate) fn new(server: &str, token: Option<&str>) -> Self {
        Self::with_addresses(server, token, Addresses::default())
    }

    fn with_addresses(server: &str, token: Option<&str>, addresses: Addresses) -> Self {
        Self {
            client: client(ANSWER_LIMIT, addresses.clone()),
            addresses,
            ingest_url: format!("{server}/api/v1/ingest"),
            clock_url: format!("{server}/api/v1/clock"),
            authorization: token.map(|token| format!("Bearer {token}")),
        }
    }

    /// Sends a frame. `receipt` proves that the server has stored it. Takes at most `limit`.
    pub(crate) fn deliver(&self, frame: &[u8], receipt: &str, limit: Duration) -> Delivery {
        let mut request = self.client.post(&self.ingest_url).content_type("application/vnd.paceline.batch");
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        let limit = limit.min(ANSWER_LIMIT);
        match request.config().timeout_global(Some(limit)).build().send(frame) {
            Ok(response) => judge(response, receipt, self.authorization.is_some()),
            Err(_) => {
                self.addresses.doubt();
                Delivery::Unreachable
            }
        }
    }

    /// Exchanges time stamps with the server; `None` if that fails.
    pub(crate) fn probe(&self) -> Option<Probe> {
        let mut request = self.client.get(&self.clock_url);
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        let sent = clock::now();
        let answer = request.call().inspect_err(|_| self.addresses.doubt());
        let mut response = answer.ok().filter(|response| response.status().is_success())?;
        let received = clock::now();
        let times: Value = serde_json::from_str(&response.body_mut().read_to_string().ok()?).ok()?;
        let server = |name: &str| times.get(name).and_then(Value::as_i64).map(ServerNanos);
        Some(Probe {
            sent,
            server_received: server("received_nanos")?,
            server_sent: server("sent_nanos")?,
            received,
        })
    }
}

/// Returns a client whose requests take at most `limit`.
pub(crate) fn client(limit: Duration, addresses: Addresses) -> Client {
    let config = Client::config_builder()
        .timeout_global(Some(limit))
        .timeout_connect(Some(CONNECT_LIMIT))
        .http_status_as_error(false)
        // A server that redirects has stored nothing.
        .max_redirects(0)
        // A proxy meant for the internet must neither see nor swallow the records of a local job.
        .proxy(None)
        .build();
    Client::with_parts(config, DefaultConnector::default(), addresses)
}

fn judge(mut response: Response<Body>, receipt: &str, has_token: bool) -> Delivery {
    let status = response.status();
    let retry_after = response
        .headers()
        .get("retry-after")
        .and_then(|value| value.to_str().ok()?.parse().ok())
        .map_or(DEFAULT_RETRY, Duration::from_secs);
    let headers = response.headers();
    let requests = Requests::from_headers(|name| headers.get(name)?.to_str().ok());
    let is_proven =
        response.headers().get(RECEIPT_HEADER).is_some_and(|shown| shown.as_bytes() == receipt.as_bytes());
    // Reading the body to its end keeps the connection open.
    let body = response.body_mut().with_config().limit(MAX_ANSWER_BYTES).read_to_string().unwrap_or_default();
    match status.as_u16() {
        200..=299 if is_proven => Delivery::Acknowledged(requests),
        200..=399 => Delivery::Unproven(format!("{status} without a receipt")),
        429 | 503 => Delivery::Later(retry_after),
        // A proxy may limit sizes too. It will not take this batch either.
        413 => Delivery::Refused(format!("{status}: {}", printable(&said(&body).unwrap_or(body)))),
        400..=499 => match said(&body) {
            Some(reason) if status == 400 => Delivery::Refused(printable(&reason)),
            Some(reason) if status == 409 => Delivery::Contradicted(printable(&reason)),
            Some(_) if status == 401 && has_token => {
                Delivery::Denied("it does not accept PACELINE_TOKEN".into())
            }
            Some(_) if status == 401 => Delivery::Denied("it requires a token: set PACELINE_TOKEN".into()),
            Some(reason) => Delivery::Denied(printable(&reason)),
            None => Delivery::Unproven(status.to_string()),
        },
        _ => Delivery::Unreachable,
    }
}

/// Returns the sentence of a Paceline server's error; `None` if another server, such as a proxy, answers.
fn said(body: &str) -> Option<String> {
    serde_json::from_str::<Value>(body).ok()?.get("error")?.as_str().map(str::to_owned)
}

/// Returns a server's message, shortened and without control characters, which a terminal would obey.
pub(crate) fn printable(text: &str) -> String {
    let visible = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().take(MAX_REASON_CHARS).map(visible).collect()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::{SocketAddr, TcpListener};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Instant;

    use ureq::Error;
    use ureq::http::Uri;
    use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
    use ureq::unversioned::transport::NextTimeout;

    use super::*;

    /// Finds one address for every name, and counts the lookups.
    #[derive(Clone, Debug)]
    struct Names {
        address: SocketAddr,
        lookups: Arc<AtomicUsize>,
    }

    impl Resolver for Names {
        fn resolve(
            &self,
            _: &Uri,
            _: &ureq::config::Config,
            _: NextTimeout,
        ) -> Result<ResolvedSocketAddrs, Error> {
            self.lookups.fetch_add(1, Ordering::Relaxed);
            let mut addresses = self.empty();
            addresses.push(self.address);
            Ok(addresses)
        }
    }

    #[test]
    fn the_server_is_looked_up_once_for_many_requests_and_again_once_it_is_gone() {
        const PROBES: usize = 20;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let names = Names { address: listener.local_addr().unwrap(), lookups: Arc::default() };
        let serve = move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            for _ in 0..PROBES {
                lines.find(String::is_empty).expect("a request has a head");
                let times = r#"{"received_nanos":1,"sent_nanos":1}"#;
                write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{times}", times.len()).unwrap();
            }
        };
        let transport =
            Transport::with_addresses("http://paceline.example:8080", None, Addresses::new(names.clone()));
        let server = std::thread::Builder::new().spawn(serve).unwrap();
        assert!((0..PROBES).all(|_| transport.probe().is_some()));
        server.join().unwrap();
        assert_eq!(names.lookups.load(Ordering::Relaxed), 1);
        let deadline = Instant::now() + Duration::from_secs(30);
        while names.lookups.load(Ordering::Relaxed) == 1 && Instant::now() < deadline {
            assert_eq!(transport.deliver(&[], "", Duration::MAX), Delivery::Unreachable);
        }
        assert_eq!(names.lookups.load(Ordering::Relaxed), 2);
    }
}
