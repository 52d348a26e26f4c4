//! Sends a simulated job of many ranks to a running server: `feed ADDRESS [RANKS] [STEPS] [BUCKETS] [LIVE STEPS]`.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use testkit::feed::Feed;
use testkit::simulator::{Fault, FaultKind, Plan, Simulation};

#[allow(clippy::print_stdout, reason = "the output of the program")]
fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let address = words.first().context("usage: feed ADDRESS [RANKS] [STEPS] [BUCKETS] [LIVE STEPS]")?;
    let number =
        |at: usize, default: u64| words.get(at).and_then(|word| word.parse().ok()).unwrap_or(default);
    let (ranks, steps, buckets, live) = (number(1, 1024), number(2, 2000), number(3, 2), number(4, 0));
    let began = Instant::now();
    let fault =
        |rank: u64, kind, nanos, from, to| Fault { rank: (rank % ranks) as usize, kind, nanos, from, to };
    let plan = Plan {
        ranks: ranks as usize,
        ranks_per_host: 8,
        steps,
        buckets: buckets as usize,
        tick: 2_000_000_000,
        singly_from: steps - live,
        faults: vec![
            fault(613, FaultKind::Input, 9_000_000, steps / 4, steps / 2),
            fault(97, FaultKind::Compute, 6_000_000, steps * 5 / 8, steps),
        ],
        ..Plan::small(ranks * 10_000 + steps)
    };
    let mut feed = Feed::new(Simulation::run(&plan));
    println!("{}: simulated in {:.1} s", feed.run, began.elapsed().as_secs_f64());
    let began = Instant::now();
    feed.send_all_but(live as usize, address)?;
    println!("{} steps ingested after {:.1} s", steps - live, began.elapsed().as_secs_f64());
    feed.send_paced(live as usize, Duration::from_millis(350), address)
}
