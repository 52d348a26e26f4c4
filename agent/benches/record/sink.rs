//! A server that acknowledges every batch at once, counts what came, and can be told to hold its answers.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A handle; the server's threads live as long as the program.
pub struct Sink {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Locked by who wants answers to wait, and for each answer.
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
                // An agent that hung up comes again on another connection.
                std::thread::spawn(move || drop(server.serve(&connection)));
            }
        });
        Ok(Self { address, shared })
    }

    /// `http://127.0.0.1:PORT`
    pub fn address(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Answers nobody while `body` runs. Waits first until the agent has surely asked.
    pub fn hold(&self, body: impl FnOnce()) {
        let _closed = self.shared.gate.lock().unwrap_or_else(PoisonError::into_inner);
        // It asks for the time twice a second.
        std::thread::sleep(std::time::Duration::from_millis(700));
        body();
    }

    /// Records that came.
    pub fn came(&self) -> u64 {
        self.shared.came.load(Ordering::Relaxed)
    }

    /// Records that the agent says it lost.
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

    /// Counts a batch; gives the header that acknowledges it.
    fn count(&self, frame: &[u8]) -> String {
        let batch = wire::codec::decode(frame).expect("an agent sends good batches");
        self.came.fetch_add(batch.events.len() as u64, Ordering::Relaxed);
        self.lost.store(batch.drops.iter().map(|drop| drop.count).sum(), Ordering::Relaxed);
        format!("{}: {}\r\n", wire::batch::RECEIPT_HEADER, batch.receipt())
    }
}

/// Reads up to the empty line; gives the length of the body, `None` when the agent hung up.
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

/// Good for both: an acknowledgement, and the server's time.
fn answer(mut connection: &TcpStream, receipt: &str) -> io::Result<()> {
    let body = r#"{"received_nanos":1,"sent_nanos":1}"#;
    write!(connection, "HTTP/1.1 200 OK\r\n{receipt}content-length: {}\r\n\r\n{body}", body.len())
}
