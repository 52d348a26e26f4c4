//! A server that acknowledges every batch immediately, counts the records, and can delay its answers.
#![allow(clippy::disallowed_methods, reason = "threads and queues of a test end with it")]

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A handle of the server. Its threads live as long as the program.
pub struct Sink {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// The lock that delays answers: held by [`Sink::hold`], and taken for each answer.
    gate: Mutex<()>,
    came: AtomicU64,
    lost: AtomicU64,
}

impl Sink {
    /// Listens on a free port.
    pub fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let (address, shared) = (listener.local_addr()?, Arc::new(Shared::default()));
        let server = shared.clone();
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let server = server.clone();
                // An agent that closed its connection opens another one.
                std::thread::spawn(move || drop(server.serve(&connection)));
            }
        });
        Ok(Self { address, shared })
    }

    /// Returns the address, `http://127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sends no answer while `body` runs. Waits first until the agent has surely sent a request.
    pub fn hold(&self, body: impl FnOnce()) {
        let _closed = self.shared.gate.lock().unwrap_or_else(PoisonError::into_inner);
        // The agent probes the clock twice per second.
        std::thread::sleep(std::time::Duration::from_millis(700));
        body();
    }

    /// Returns the number of records that arrived.
    pub fn came(&self) -> u64 {
        self.shared.came.load(Ordering::Relaxed)
    }

    /// Returns the number of records that the agent reports as lost.
    pub fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn serve(&self, connection: &TcpStream) -> io::Result<()> {
        let mut input = BufReader::new(connection);
        loop {
            let Some(length) = read_head(&mut input)? else { return Ok(()) };
            let mut body = vec![0; length];
            input.read_exact(&mut body)?;
            drop(self.gate.lock().unwrap_or_else(PoisonError::into_inner));
            let receipt = if length > 0 { self.count(&body) } else { String::new() };
            answer(connection, &receipt)?;
        }
    }

    /// Counts a batch and returns the header that acknowledges it.
    fn count(&self, frame: &[u8]) -> String {
        let batch = wire::codec::decode(frame).expect("an agent sends good batches");
        self.came.fetch_add(batch.events.len() as u64, Ordering::Relaxed);
        self.lost.store(batch.drops.iter().map(|drop| drop.count).sum(), Ordering::Relaxed);
        format!("{}: {}\r\n", wire::batch::RECEIPT_HEADER, batch.receipt())
    }
}

/// Reads up to the empty line and returns the length of the body; `None` if the agent closed the connection.
fn read_head(input: &mut impl io::BufRead) -> io::Result<Option<usize>> {
    let mut length = 0;
    for line in input.lines() {
        let line = line?.to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
        if line.is_empty() {
            return Ok(Some(length));
        }
    }
    Ok(None)
}

/// Sends an answer that serves both as an acknowledgment and as the server's time.
fn answer(mut connection: &TcpStream, receipt: &str) -> io::Result<()> {
    let body = r#"{"received_nanos":1,"sent_nanos":1}"#;
    write!(connection, "HTTP/1.1 200 OK\r\n{receipt}content-length: {}\r\n\r\n{body}", body.len())
}
