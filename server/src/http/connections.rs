//! Connections: their number, the time a request may take to arrive, and their end when the server stops.
//!
//! A connection is a stranger until one of its requests passes the [guard](super::guard); then it is a guest. Strangers
//! share a small number of places. If all are in use, a new stranger replaces the oldest one. Silent connections
//! therefore cannot block other clients, no matter how many there are.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::net::sockopt::set_tcp_user_timeout;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tower::ServiceExt as _;

/// The time limit for a request's head, from the connection or from the previous answer. Agents send every two seconds.
const HEAD_WITHIN: Duration = Duration::from_secs(20);
/// The time in which a client must take more of an answer. The kernel then ends the connection, and the answer leaves memory.
const READ_WITHIN_MILLIS: u32 = 30_000;
/// The largest buffer of a connection, in bytes. Browsers send heads of 2 KB. In practice the connection of an agent
/// takes about 10 KB.
const BUFFER_BYTES: usize = 64 << 10;
/// The number of places for strangers. Their buffers take at most 512 x 64 KB = 32 MB.
const MAX_STRANGERS: usize = 512;
/// The number of places for guests. A run of 16,384 ranks has as many connections, and dashboards need some more.
const MAX_GUESTS: usize = 20_000;
/// The number of open files to reserve for other uses: logs (at most 128) and segments. If the process may open few
/// files, half of them are reserved.
const OTHER_FILES: usize = 256;
/// The pause after a failure to accept a connection, for instance because no file descriptor is left.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

struct Places {
    most_strangers: usize,
    strangers: Mutex<BTreeMap<u64, Arc<Notify>>>,
    guests: Arc<Semaphore>,
}

impl Places {
    /// Returns the places of a process that may open `most_files` files.
    fn new(most_files: usize) -> Self {
        let most = (most_files - OTHER_FILES.min(most_files / 2)).max(16);
        let most_strangers = MAX_STRANGERS.min(most / 4);
        Self {
            most_strangers,
            strangers: Mutex::default(),
            guests: Arc::new(Semaphore::new(MAX_GUESTS.min(most - most_strangers))),
        }
    }

    fn with_strangers<T>(&self, change: impl FnOnce(&mut BTreeMap<u64, Arc<Notify>>) -> T) -> T {
        change(&mut self.strangers.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Gives a stranger a place. The stranger must close when the returned value is notified.
    fn enter(&self, number: u64) -> Arc<Notify> {
        let dismissed = Arc::new(Notify::new());
        self.with_strangers(|strangers| {
            if strangers.len() >= self.most_strangers
                && let Some((_, oldest)) = strangers.pop_first()
            {
                oldest.notify_one();
            }
            strangers.insert(number, dismissed.clone());
        });
        dismissed
    }

    fn dismiss_oldest(&self) {
        if let Some((_, oldest)) = self.with_strangers(BTreeMap::pop_first) {
            oldest.notify_one();
        }
    }
}

/// The place of a connection. It becomes free when the last clone is dropped.
#[derive(Clone)]
pub struct ConnectionPlace(Arc<Taken>);

struct Taken {
    number: u64,
    peer: IpAddr,
    places: Arc<Places>,
    guest: Mutex<Option<OwnedSemaphorePermit>>,
}

impl ConnectionPlace {
    /// Returns the address of the other end, which is a proxy if there is one.
    #[must_use]
    pub fn peer(&self) -> IpAddr {
        self.0.peer
    }

    /// Makes the connection a guest if a place is free. Called when a request of it has passed the guard.
    pub fn admit(&self) {
        let mut guest = self.0.guest.lock().unwrap_or_else(PoisonError::into_inner);
        if guest.is_none() {
            *guest = self.0.places.guests.clone().try_acquire_owned().ok();
            if guest.is_some() {
                self.0.places.with_strangers(|strangers| strangers.remove(&self.0.number));
            }
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.places.with_strangers(|strangers| strangers.remove(&self.number));
    }
}

/// Serves until `stopping` becomes true, then finishes the requests in flight. `most_files` is the number of files that
/// this process may open.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    most_files: usize,
    stopping: watch::Receiver<bool>,
) {
    let mut stopped = pin!(wait_for_stop(stopping.clone()));
    let places = Arc::new(Places::new(most_files));
    let mut connections = JoinSet::new();
    let mut number = 0;
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, address)) => {
                    number += 1;
                    let dismissed = places.enter(number);
                    let (peer, guest) = (address.ip().to_canonical(), Mutex::default());
                    let place = ConnectionPlace(Arc::new(Taken { number, peer, places: places.clone(), guest }));
                    connections.spawn(attend(stream, router.clone(), place, dismissed, stopping.clone()));
                }
                Err(_) => {
                    places.dismiss_oldest();
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                }
            },
            Some(_ended) = connections.join_next() => {}
            () = stopped.as_mut() => break,
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Waits until `stopping` becomes true. Never returns if its sender is dropped first.
pub async fn wait_for_stop(mut stopping: watch::Receiver<bool>) {
    if stopping.wait_for(|stopping| *stopping).await.is_err() {
        std::future::pending::<()>().await;
    }
}

async fn attend(
    stream: TcpStream,
    router: Router,
    place: ConnectionPlace,
    dismissed: Arc<Notify>,
    stopping: watch::Receiver<bool>,
) {
    let service = router.map_request(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(place.clone());
        request.map(Body::new)
    });
    // If the kernel refuses it, the limits on answers in memory still apply.
    let _limited = set_tcp_user_timeout(&stream, READ_WITHIN_MILLIS);
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN).max_buf_size(BUFFER_BYTES);
    let service = TowerToHyperService::new(service);
    let connection = builder.serve_connection(TokioIo::new(stream), service).with_upgrades();
    let mut connection = pin!(connection);
    tokio::select! {
        // Errors are the client's: it disconnected, or did not send HTTP.
        _ended = connection.as_mut() => return,
        () = dismissed.notified() => return,
        () = wait_for_stop(stopping) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ended = connection.await;
}
