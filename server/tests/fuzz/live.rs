//! Fuzzes messages of live stream clients. The server expects none: after any message the stream continues or ends, and
//! nothing of it remains.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use fuzz::{Corpus, Verdict};
use paceline::http::connections;
use tokio::net::TcpListener;

use super::server::Tried;
use super::{CORPUS, ensure};

/// The longest time until an answer, on a busy machine.
const WITHIN: Duration = Duration::from_secs(10);
/// The largest amount that a stream sends in this test, in bytes: the report and the steps of a run of 40 steps, and
/// both again after a while.
const MAX_SENT: usize = 4 << 20;

struct Served {
    tried: Tried,
    address: SocketAddr,
}

impl Served {
    fn start() -> Self {
        let tried = Tried::with_runs();
        let listener = tried.runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a free port");
        let address = listener.local_addr().expect("the listener is bound");
        let (router, stopping) = (tried.router.clone(), tried.app.stopping.clone());
        tried.runtime.spawn(connections::serve(listener, router, 1_024, stopping));
        Self { tried, address }
    }

    fn connect(&self) -> Result<TcpStream, String> {
        let connected = TcpStream::connect_timeout(&self.address, WITHIN).and_then(|stream| {
            stream.set_read_timeout(Some(Duration::from_millis(20)))?;
            stream.set_nodelay(true)?;
            Ok(stream)
        });
        connected.map_err(|error| format!("cannot connect: {error}"))
    }

    /// Opens a live stream and returns it after the upgrade.
    fn upgraded(&self, path: &str) -> Result<TcpStream, String> {
        let mut stream = self.connect()?;
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            self.address
        );
        stream.write_all(request.as_bytes()).map_err(|error| error.to_string())?;
        let mut answer = Vec::new();
        let began = Instant::now();
        while !answer.windows(4).any(|end| end == b"\r\n\r\n") {
            ensure(began.elapsed() < WITHIN, || "no answer to an upgrade".into())?;
            read(&mut stream, &mut answer)?;
        }
        ensure(answer.starts_with(b"HTTP/1.1 101"), || String::from_utf8_lossy(&answer).into_owned())?;
        Ok(stream)
    }

    /// Waits until all streams have ended.
    fn is_empty(&self) -> Verdict {
        let began = Instant::now();
        while self.tried.app.metrics.server.live_clients.get() != 0 {
            ensure(began.elapsed() < WITHIN, || "the stream of a disconnected client continues".into())?;
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

/// Reads the available bytes. Returns false once the other end has closed.
fn read(stream: &mut TcpStream, received: &mut Vec<u8>) -> Result<bool, String> {
    let mut bytes = [0; 16_384];
    match stream.read(&mut bytes) {
        Ok(0) => Ok(false),
        Ok(count) => {
            received.extend_from_slice(&bytes[..count]);
            Ok(true)
        }
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(true),
        Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(false),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn any_client_message_leaves_the_server_working() {
    let served = Served::start();
    let corpus = Corpus::folder(format!("{CORPUS}/live"));
    corpus.check("live-client", 150, |bytes, choice| {
        let path = ["/api/v1/live", "/api/v1/live?run=one", "/api/v1/live?run=none"][choice as usize % 3];
        let mut stream = served.upgraded(path)?;
        // The server may close during the write.
        let _closed = stream.write_all(bytes);
        let (mut said, began) = (Vec::new(), Instant::now());
        while began.elapsed() < Duration::from_millis(10) && read(&mut stream, &mut said)? {}
        ensure(said.len() < MAX_SENT, || format!("the stream sent {} bytes", said.len()))?;
        drop(stream);
        served.is_empty()?;
        served.tried.trouble().map_or(Ok(()), Err)
    });
}

/// A message or a frame that is longer than the limit ends the stream before it is read.
#[test]
fn a_message_that_is_too_long_ends_the_stream() {
    let served = Served::start();
    let too_long = [
        // 2^62 bytes of binary; 4,097 bytes of text; and parts that exceed the limit together.
        vec![[&b"\x82\xff\x3f\xff\xff\xff\xff\xff\xff\xff"[..], b"mask"].concat()],
        vec![[&b"\x81\xfe\x10\x01"[..], b"mask", &[0; 4_097]].concat()],
        vec![[&b"\x01\xfe\x10\x00"[..], b"mask", &[0; 4_096]].concat(), b"\x80\x81mask\0".to_vec()],
    ];
    for frames in too_long {
        let mut stream = served.upgraded("/api/v1/live?run=none").expect("the stream is upgraded");
        for frame in &frames {
            stream.write_all(frame).expect("the server reads");
        }
        let (mut said, began) = (Vec::new(), Instant::now());
        while read(&mut stream, &mut said).expect("the stream ends without an error") {
            assert!(began.elapsed() < WITHIN, "the stream continues");
        }
    }
    served.is_empty().expect("no stream remains");
}

/// A stopping server ends its streams, whatever their clients do.
#[test]
fn a_stopping_server_ends_its_streams() {
    let served = Served::start();
    let _stream = served.upgraded("/api/v1/live").expect("the stream is upgraded");
    served.tried.stop.send_replace(true);
    served.is_empty().expect("the stream ends");
}
