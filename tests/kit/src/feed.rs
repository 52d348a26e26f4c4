//! Sends a simulated job to a real server over HTTP: the requests of up to 1,024 agents, from a few threads.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use paceline::store::segment::Received;
use wire::batch::Batch;

use crate::programs::post;
use crate::simulator::Simulation;

/// The number of concurrent requests.
const THREADS: usize = 8;

/// The batches of all ranks in rounds. Each round holds the next batch of every rank.
pub struct Feed {
    rounds: VecDeque<Vec<Batch>>,
    /// The run's id.
    pub run: String,
}

impl Feed {
    /// Creates a feed of the batches that the simulation's agents send.
    #[must_use]
    pub fn new(simulation: Simulation) -> Self {
        let run = simulation.batches.first().map(|first| first.batch.run.to_string()).unwrap_or_default();
        let mut rounds: VecDeque<Vec<Batch>> = VecDeque::new();
        for Received { batch, .. } in simulation.batches {
            let round = batch.seq.0 as usize;
            while rounds.len() <= round {
                rounds.push_back(Vec::new());
            }
            rounds[round].push(batch);
        }
        Self { rounds, run }
    }

    /// Returns the number of rounds that are not sent yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rounds.len()
    }

    /// Returns true if all rounds are sent.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rounds.is_empty()
    }

    /// Sends rounds as fast as the server accepts them, until `leave` rounds are left.
    ///
    /// # Errors
    /// Returns an error if the server rejects a batch.
    pub fn send_all_but(&mut self, leave: usize, address: &str) -> anyhow::Result<()> {
        while self.rounds.len() > leave {
            self.send_round(address)?;
        }
        Ok(())
    }

    /// Sends `rounds` rounds `interval` apart. A late round is sent at once.
    ///
    /// # Errors
    /// Returns an error if the server rejects a batch.
    pub fn send_paced(&mut self, rounds: usize, interval: Duration, address: &str) -> anyhow::Result<()> {
        let began = Instant::now();
        for round in 0..rounds.min(self.rounds.len()) {
            let due = began + interval * round as u32;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            self.send_round(address)?;
        }
        Ok(())
    }

    fn send_round(&mut self, address: &str) -> anyhow::Result<()> {
        let Some(round) = self.rounds.pop_front() else { return Ok(()) };
        let parts: Vec<&[Batch]> = round.chunks(round.len().div_ceil(THREADS)).collect();
        std::thread::scope(|scope| {
            let send_part = |part: &[Batch]| part.iter().try_for_each(|batch| send(address, batch));
            let threads: Vec<_> =
                parts.into_iter().map(|part| scope.spawn(move || send_part(part))).collect();
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().map_err(|_| anyhow::anyhow!("a sender panicked"))?)
        })
    }
}

fn send(address: &str, batch: &Batch) -> anyhow::Result<()> {
    let answer = post(address, batch).with_context(|| format!("rank {}", batch.rank))?;
    ensure!(answer.status().is_success(), "the server answered {}", answer.status());
    Ok(())
}
