//! Tests with real processes that are killed and stopped. The test program runs itself as the ranks.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use paceline_reducer::ring::{Config, Ring};
use paceline_reducer::{CommError, Communicator};
use rustix::process::{Pid, Signal, kill_process};

use crate::worlds::free_address;

const TIMEOUT_MILLIS: &str = "SUITE_TIMEOUT_MILLIS";

/// A rank of the tests below: reduces until a failure and prints the error. Does nothing in an ordinary test run.
#[test]
fn child() {
    let Ok(timeout) = std::env::var(TIMEOUT_MILLIS) else { return };
    let timeout = Duration::from_millis(timeout.parse().unwrap());
    let outcome = Config::from_env().and_then(|config| reduce_forever(&Config { timeout, ..config }));
    println!("\nOUTCOME {}", outcome.unwrap_err());
}

fn reduce_forever(config: &Config) -> Result<(), CommError> {
    let mut ring = Ring::connect(config)?;
    for step in 0.. {
        ring.all_reduce(&mut vec![1.0; 200_000])?;
        if step == 5 {
            println!("\nSTEP 5");
        }
    }
    Ok(())
}

struct Rank {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Rank {
    fn start(rank: u32, world: u32, master: &str, timeout_millis: u64) -> Self {
        let (address, port) = master.rsplit_once(':').unwrap();
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["processes::child", "--exact", "--nocapture"])
            .env(TIMEOUT_MILLIS, timeout_millis.to_string())
            .envs([("RANK", rank.to_string()), ("WORLD_SIZE", world.to_string())])
            .envs([("MASTER_ADDR", address), ("MASTER_PORT", port), ("PACELINE_RUN_ID", "processes")])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        Self { process, output }
    }

    fn wait_for(&mut self, line: &str) {
        let mut found = String::new();
        while found.trim() != line {
            found.clear();
            assert!(self.output.read_line(&mut found).unwrap() > 0, "the rank ended before {line:?}");
        }
    }

    fn outcome(&mut self) -> String {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        let line = rest.lines().find_map(|line| line.strip_prefix("OUTCOME "));
        line.unwrap_or_else(|| panic!("no outcome in {rest:?}")).to_owned()
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        // Most processes have already ended. The kill also ends stopped processes.
        let _ended = self.process.kill();
        let _status = self.process.wait();
    }
}

fn check(world: u32, victim: u32, signal: Signal, timeout_millis: u64, limit: Duration, expected: &str) {
    let master = free_address();
    let mut ranks: Vec<Rank> =
        (0..world).map(|rank| Rank::start(rank, world, &master, timeout_millis)).collect();
    ranks.iter_mut().for_each(|rank| rank.wait_for("STEP 5"));
    let pid = Pid::from_child(&ranks[victim as usize].process);
    kill_process(pid, signal).unwrap();
    let killed = Instant::now();
    for rank in (0..world).filter(|rank| *rank != victim) {
        let outcome = ranks[rank as usize].outcome();
        assert!(outcome.contains(expected), "rank {rank} of {world}, victim {victim}: {outcome:?}");
    }
    assert!(killed.elapsed() < limit, "the failure took {:?}", killed.elapsed());
}

#[test]
fn every_survivor_names_a_killed_rank() {
    for (world, victim) in [(2, 1), (4, 2), (4, 3)] {
        let expected = format!("rank {victim} is lost: its process ended unexpectedly");
        check(world, victim, Signal::KILL, 60_000, Duration::from_secs(5), &expected);
    }
}

#[test]
fn every_survivor_names_rank_0_when_it_is_killed() {
    for world in [2, 4] {
        let expected = "rank 0 is lost: its";
        check(world, 0, Signal::KILL, 60_000, Duration::from_secs(5), expected);
    }
}

#[test]
fn every_survivor_names_a_stopped_rank() {
    let expected = "rank 2 does not answer (stopped, or cut off from the network)";
    check(4, 2, Signal::STOP, 500, Duration::from_secs(8), expected);
}

#[test]
fn every_survivor_names_rank_0_when_it_is_stopped() {
    let expected = "rank 0 is lost: it does not answer";
    check(4, 0, Signal::STOP, 500, Duration::from_secs(9), expected);
}
