//! Worlds of ranks for the tests. Every collective has a timeout, so no test runs forever.

use std::net::TcpListener;
use std::time::Duration;

use paceline_reducer::ring::{self, Ring};
use paceline_reducer::{Communicator, local};
use wire::ids::{Rank, RunId};

/// The kinds of communicators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Threads,
    /// A ring over Unix sockets, as on one host.
    Ring,
    /// A ring over TCP, as between hosts.
    TcpRing,
}

pub const KINDS: [Kind; 3] = [Kind::Threads, Kind::Ring, Kind::TcpRing];
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// Returns a loopback address at which no process listens.
pub fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

pub fn config(rank: u32, world_size: u32, master: &str) -> ring::Config {
    ring::Config {
        run: RunId::new("test").unwrap(),
        rank: Rank(rank),
        world_size,
        master: master.into(),
        timeout: TIMEOUT,
        rendezvous: TIMEOUT,
        tcp_only: false,
    }
}

/// Runs `body` once per rank and returns the results, by rank.
pub fn run<T: Send>(kind: Kind, ranks: u32, body: impl Fn(Box<dyn Communicator>) -> T + Sync) -> Vec<T> {
    run_within(kind, ranks, TIMEOUT, body)
}

pub fn run_within<T: Send>(
    kind: Kind,
    ranks: u32,
    timeout: Duration,
    body: impl Fn(Box<dyn Communicator>) -> T + Sync,
) -> Vec<T> {
    let master = free_address();
    let mut threads: Vec<Option<local::Local>> = local::world(ranks, timeout).into_iter().map(Some).collect();
    std::thread::scope(|scope| {
        let (body, master) = (&body, &master);
        let start = |rank: u32| {
            let local = threads[rank as usize].take();
            scope.spawn(move || {
                let tcp_only = kind == Kind::TcpRing;
                let config = ring::Config { timeout, tcp_only, ..config(rank, ranks, master) };
                match kind {
                    Kind::Threads => body(Box::new(local.unwrap())),
                    Kind::Ring | Kind::TcpRing => {
                        drop(local);
                        body(Box::new(Ring::connect(&config).unwrap()))
                    }
                }
            })
        };
        let handles: Vec<_> = (0..ranks).map(start).collect();
        handles.into_iter().map(|handle| handle.join().unwrap()).collect()
    })
}
