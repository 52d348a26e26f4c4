//! Measures the time of one all-reduce over a ring of threads: `cargo bench -p paceline-reducer`.
#![allow(clippy::print_stdout, reason = "a benchmark prints its results")]

use std::net::TcpListener;
use std::time::{Duration, Instant};

use paceline_reducer::Communicator;
use paceline_reducer::ring::{Config, Ring};
use wire::ids::{Rank, RunId};

fn main() {
    println!(
        "{:>5} {:>5} {:>10} {:>10} {:>10} {:>8}",
        "ring", "ranks", "bytes", "best ms", "median ms", "GB/s bus"
    );
    for tcp_only in [false, true] {
        for ranks in [2, 4] {
            for floats in [16 << 10, 256 << 10, 4 << 20, 16 << 20] {
                let times = measure(ranks, floats, tcp_only);
                let (best, median) = (times[0], times[times.len() / 2]);
                let bytes = floats * size_of::<f32>();
                let bus =
                    bytes as f64 * 2.0 * f64::from(ranks - 1) / f64::from(ranks) / median.as_secs_f64() / 1e9;
                let ring = if tcp_only { "tcp" } else { "unix" };
                let millis = |time: Duration| time.as_secs_f64() * 1e3;
                println!(
                    "{ring:>5} {ranks:>5} {bytes:>10} {:>10.3} {:>10.3} {bus:>8.2}",
                    millis(best),
                    millis(median)
                );
            }
        }
    }
}

/// Returns the times of one rank, sorted.
fn measure(ranks: u32, floats: usize, tcp_only: bool) -> Vec<Duration> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let master = listener.local_addr().expect("its address").to_string();
    drop(listener);
    let config = |rank| Config {
        run: RunId::new("bench").expect("a run id"),
        rank: Rank(rank),
        world_size: ranks,
        master: master.clone(),
        timeout: Duration::from_secs(60),
        rendezvous: Duration::from_secs(10),
        tcp_only,
    };
    let rounds = (512 << 20) / (floats * size_of::<f32>()).max(4 << 20);
    std::thread::scope(|scope| {
        let start = |rank| {
            let config = config(rank);
            scope.spawn(move || {
                let mut ring = Ring::connect(&config).expect("the ranks meet");
                let mut data = vec![1.0; floats];
                let mut round = || {
                    ring.barrier().expect("a barrier");
                    let began = Instant::now();
                    ring.all_reduce(&mut data).expect("an all-reduce");
                    data.fill(1.0);
                    began.elapsed()
                };
                (0..rounds + 3).map(|_| round()).skip(3).collect::<Vec<_>>()
            })
        };
        let handles: Vec<_> = (0..ranks).map(start).collect();
        let mut times =
            handles.into_iter().map(|handle| handle.join().expect("a rank")).next().unwrap_or_default();
        times.sort();
        times
    })
}
