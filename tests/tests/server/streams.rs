//! Tests of live streams whose clients read nothing.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use paceline::http::live::Streams;
use paceline::http::{App, connections, router};
use paceline::state::collection::Collection;
use testkit::app::app;
use tokio::net::TcpListener;

const SILENT_WITHIN: Duration = Duration::from_millis(1_500);
const MOST: usize = 8;

/// Opens a live stream, and returns its connection with the status of the answer.
fn open(at: SocketAddr) -> anyhow::Result<(TcpStream, String)> {
    let mut stream = TcpStream::connect(at)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(
        stream,
        "GET /api/v1/live HTTP/1.1\r\nhost: {at}\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )?;
    let mut status = [0; 12];
    stream.read_exact(&mut status)?;
    Ok((stream, String::from_utf8_lossy(&status).into_owned()))
}

fn streams(app: &App) -> i64 {
    app.metrics.server.live_clients.get()
}

async fn wait_for(app: &App, count: i64, limit: Duration) -> anyhow::Result<Duration> {
    let began = Instant::now();
    while streams(app) != count {
        ensure!(began.elapsed() < limit, "{} streams are open instead of {count}", streams(app));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(began.elapsed())
}

/// Reads what arrives, and answers pings, until the stream has been open for `length`.
fn read_for(mut stream: TcpStream, length: Duration) -> anyhow::Result<()> {
    let began = Instant::now();
    stream.set_read_timeout(Some(Duration::from_millis(100)))?;
    let mut bytes = [0; 4_096];
    while began.elapsed() < length {
        match stream.read(&mut bytes) {
            Ok(0) => anyhow::bail!("the stream ended after {:?}", began.elapsed()),
            // A masked pong without a payload, whether a ping is among the bytes or not.
            Ok(_) => stream.write_all(&[0x8a, 0x80, 0, 0, 0, 0])?,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_that_no_one_reads_end_and_their_number_is_bounded() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let streams = Streams::new(MOST, SILENT_WITHIN);
    let app = App { streams, ..app(data.path(), Collection::default(), None)? };
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let at = listener.local_addr()?;
    let (stop, stopping) = tokio::sync::watch::channel(false);
    let serving = tokio::spawn(connections::serve(listener, router(app.clone()), 1_024, stopping));
    let silent = (0..MOST).map(|_| open(at)).collect::<anyhow::Result<Vec<_>>>()?;
    ensure!(silent.iter().all(|(_, status)| status == "HTTP/1.1 101"), "{silent:?}");
    let (mut refused, status) = open(at)?;
    ensure!(status == "HTTP/1.1 503", "{status}");
    let mut answer = vec![0; 2_048];
    let length = refused.read(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer[..length]).into_owned();
    ensure!(answer.contains("8 live streams are open, which is the limit of this server"), "{answer}");
    wait_for(&app, MOST as i64, Duration::from_secs(5)).await?;
    // None of them reads or answers, and none closes its connection.
    let ended = wait_for(&app, 0, 4 * SILENT_WITHIN).await?;
    ensure!(ended > SILENT_WITHIN / 2, "they ended after {ended:?}");
    drop(silent);
    let (reading, status) = open(at)?;
    ensure!(status == "HTTP/1.1 101", "the places are not free again: {status}");
    tokio::task::spawn_blocking(move || read_for(reading, 3 * SILENT_WITHIN))
        .await
        .context("the reader")??;
    stop.send_replace(true);
    drop(serving.await);
    Ok(())
}
