//! Answers of a rank that do not fit into a batch: a trace, or the reason why there is none.

use std::fs::File;
use std::io::{self, Read, Seek as _};
use std::time::Duration;

use ureq::{Agent as Client, SendBody};
use wire::ids::Step;
use wire::request::TraceRequest;

use crate::addresses::Addresses;
use crate::config::Config;
use crate::transport::{client, printable};

/// The longest time for one attempt. 64 MiB take this long at 2 Mbit/s.
const UPLOAD_LIMIT: Duration = Duration::from_secs(270);
/// The waits before further attempts, in seconds.
const RETRY_AFTER_SECONDS: [u64; 4] = [1, 2, 4, 8];
const MAX_ANSWER_BYTES: u64 = 64 << 10;

/// A trace of some steps, as the server records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traced {
    /// The first step in the trace.
    pub first: Step,
    /// The number of steps in the trace.
    pub steps: u32,
    /// How long the profiler held the training thread to start and to stop, in nanoseconds.
    pub pause_nanos: u64,
}

/// A connection to the server for answers that do not fit into a batch. Its calls block, so they belong on a thread of
/// their own.
#[derive(Clone)]
pub struct Uploads {
    client: Client,
    addresses: Addresses,
    url: String,
    rank: u32,
    authorization: Option<String>,
}

/// Why an attempt failed.
enum Failed {
    /// Another attempt may succeed.
    Now(String),
    /// The server will never accept the answer.
    ForGood(String),
}

impl Uploads {
    pub(crate) fn new(config: &Config) -> Self {
        let addresses = Addresses::default();
        Self {
            client: client(UPLOAD_LIMIT, addresses.clone()),
            addresses,
            url: format!("{}/api/v1/captures/{}", config.server, config.run),
            rank: config.rank.0,
            authorization: config.token.as_ref().map(|token| format!("Bearer {token}")),
        }
    }

    /// Sends a compressed trace, in several attempts. `stops` says whether the process ends, which ends the attempts.
    ///
    /// # Errors
    /// Returns the reason why the server does not have the trace.
    pub fn trace(
        &self,
        request: TraceRequest,
        traced: Traced,
        file: &mut File,
        stops: impl Fn() -> bool,
    ) -> Result<(), String> {
        let Traced { first, steps, pause_nanos } = traced;
        let url = format!(
            "{}/{}/{}?first={first}&steps={steps}&pause_nanos={pause_nanos}",
            self.url, request.number, self.rank
        );
        self.attempt(&stops, || {
            file.rewind().map_err(|error| Failed::ForGood(error.to_string()))?;
            let mut reader = Until { file: &mut *file, stops: &stops };
            self.send(&url, SendBody::from_reader(&mut reader))
        })
    }

    /// Sends the reason why there is no trace, in several attempts.
    ///
    /// # Errors
    /// Returns the reason why the server does not know it.
    pub fn no_trace(
        &self,
        request: TraceRequest,
        reason: &str,
        stops: impl Fn() -> bool,
    ) -> Result<(), String> {
        let url = format!("{}/{}/{}/refusal", self.url, request.number, self.rank);
        self.attempt(&stops, || {
            let mut reason = reason.as_bytes();
            self.send(&url, SendBody::from_reader(&mut reason))
        })
    }

    fn attempt(
        &self,
        stops: impl Fn() -> bool,
        mut send: impl FnMut() -> Result<(), Failed>,
    ) -> Result<(), String> {
        let mut waits = RETRY_AFTER_SECONDS.into_iter();
        loop {
            match send() {
                Ok(()) => return Ok(()),
                Err(Failed::ForGood(reason)) => return Err(reason),
                Err(Failed::Now(reason)) => {
                    self.addresses.doubt();
                    let Some(wait) = waits.next().filter(|_| !stops()) else { return Err(reason) };
                    std::thread::park_timeout(Duration::from_secs(wait));
                }
            }
        }
    }

    fn send(&self, url: &str, body: SendBody<'_>) -> Result<(), Failed> {
        let mut request = self.client.post(url).content_type("application/octet-stream");
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        let mut answer = request.send(body).map_err(|error| Failed::Now(error.to_string()))?;
        let status = answer.status();
        let text = answer.body_mut().with_config().limit(MAX_ANSWER_BYTES).read_to_string();
        let said = || format!("{status}: {}", printable(&text.unwrap_or_default()));
        match status.as_u16() {
            200..=299 => Ok(()),
            400..=499 if status.as_u16() != 429 => Err(Failed::ForGood(said())),
            _ => Err(Failed::Now(said())),
        }
    }
}

/// A file that fails to be read once the process ends: an upload must not delay its exit.
struct Until<'a, F> {
    file: &'a mut File,
    stops: F,
}

impl<F: Fn() -> bool> Read for Until<'_, F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if (self.stops)() {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the process ends"));
        }
        self.file.read(buffer)
    }
}
