//! A communicator of processes on one or several hosts, which form a ring over TCP.
//!
//! ```text
//!            control: a star around rank 0                data: a ring
//!          rank 1   rank 2   rank 3
//!              \      |      /                  rank 0 -> rank 1 -> rank 2 -> rank 3
//!               hub in rank 0                       ^-------------------------'
//! ```
//!
//! Rank 0 listens at the master address and runs a hub there. Every rank has a control connection to the hub. The hub
//! introduces the ranks to each other. When a collective fails, it decides which rank is responsible, so that all
//! survivors report the same error.
//!
//! Gradients pass around the ring: a reduce-scatter and an all-gather in one stream, in which a rank forwards each byte
//! as soon as it is reduced. Ranks on one host use a Unix socket for this stream.
//!
//! Every element is summed once along the ring, and the result is copied to the other ranks. It therefore has the same
//! bits on all ranks. The order of summation depends on the position of the element in the bucket. Two runs with the
//! same buckets and ranks give the same bits.

mod config;
mod data;
mod hub;
mod member;
mod message;
mod poll;
mod rendezvous;
mod segments;
mod signal;

use std::sync::Arc;
use std::time::{Duration, Instant};

use wire::ids::{Rank, Seq};

use crate::communicator::{AbortHandle, Communicator, Control, Operation};
use crate::error::CommError;
pub use config::Config;
use data::{DataRing, Fault, Waiter};
use member::{Membership, Shared};
use message::Message;

/// The time for which a rank whose connection broke waits for the hub's verdict. The hub notices a dead process within
/// the same millisecond, a dead host later.
const VERDICT_WAIT: Duration = Duration::from_secs(2);
/// The time for which a rank waits for the hub's inquiry after a timeout. Longer than [`hub::INQUIRY`].
const INQUIRY_WAIT: Duration = Duration::from_secs(4);

/// A process as a rank of the ring.
pub struct Ring {
    rank: Rank,
    world_size: u32,
    timeout: Duration,
    next_seq: u64,
    shared: Arc<Shared>,
    /// The connections. `None` in a world of one rank.
    links: Option<Links>,
}

struct Links {
    data: DataRing,
    /// The control connection. Dropped after the data connections, it reports to the hub that this rank leaves.
    _membership: Membership,
}

impl Ring {
    /// Meets the other ranks and returns once all have joined.
    ///
    /// # Errors
    /// Returns an error if a rank does not arrive in time, if rank 0 refuses this process, or if the address cannot be
    /// used.
    pub fn connect(config: &Config) -> Result<Self, CommError> {
        config.check()?;
        let system = |error: std::io::Error| CommError::System {
            doing: "preparing the ring".into(),
            reason: error.to_string(),
        };
        let shared = Arc::new(Shared::new(config.rank).map_err(system)?);
        let links = if config.world_size == 1 { None } else { Some(rendezvous::meet(config, &shared)?) };
        let links = links.map(|(data, _membership)| Links { data, _membership });
        let (rank, world_size, timeout) = (config.rank, config.world_size, config.timeout);
        let mut ring = Self { rank, world_size, timeout, next_seq: 0, shared, links };
        // Without this barrier, a rank could fail in its first collective while others are still joining.
        ring.barrier()?;
        ring.next_seq = 0;
        ring.shared.set_begun(0);
        Ok(ring)
    }

    /// Runs one collective: tells the next rank which collective this is, then lets `body` compare and move the data.
    fn collective(
        &mut self,
        collective: Operation,
        body: impl FnOnce(&mut DataRing, &Waiter<'_>) -> Result<(), Fault>,
    ) -> Result<(), CommError> {
        let seq = self.count()?;
        let Some(links) = &mut self.links else { return Ok(()) };
        let waiter = Waiter { shared: &self.shared, deadline: Instant::now() + self.timeout };
        let outcome =
            links.data.begin(seq, collective, &waiter).and_then(|()| body(&mut links.data, &waiter));
        outcome.map_err(|fault| self.resolve(fault, seq))
    }

    /// Asks the hub which ranks keep a collective from ending. No rank can continue after that.
    fn inquire(&self, seq: Seq, waited: Duration) -> CommError {
        self.shared.send(Message::Stuck { seq, waited });
        let reason = "it does not answer (stopped, or cut off from the network)";
        self.settle(self.lost(Rank(0), reason), INQUIRY_WAIT)
    }

    /// Returns the hub's verdict. If it does not arrive in time, sends this rank's guess to the hub and returns that.
    fn settle(&self, guess: CommError, patience: Duration) -> CommError {
        if self.shared.await_verdict(patience).is_none() {
            self.shared.send(Message::Verdict(guess.clone()));
        }
        self.shared.verdict_or(|| guess)
    }

    /// Turns the fault that this rank noticed into the error that all ranks report.
    fn resolve(&self, fault: Fault, seq: Seq) -> CommError {
        match fault {
            Fault::Verdict => self.shared.verdict_or(|| self.lost(Rank(0), "it ended the run")),
            Fault::Deadline => self.inquire(seq, self.timeout),
            Fault::Broken { peer, reason } => {
                self.settle(self.lost(peer, &format!("{reason} during collective {seq}")), VERDICT_WAIT)
            }
            Fault::Mismatch(error) => {
                self.shared.send(Message::Verdict(error.clone()));
                self.settle(error, VERDICT_WAIT)
            }
        }
    }

    fn lost(&self, rank: Rank, reason: &str) -> CommError {
        CommError::RankLost { rank, reason: reason.into() }
    }
}

impl Communicator for Ring {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn world_size(&self) -> u32 {
        self.world_size
    }

    fn next_seq(&self) -> Seq {
        Seq(self.next_seq)
    }

    fn all_reduce(&mut self, data: &mut [f32]) -> Result<(), CommError> {
        let collective = Operation::AllReduce(data.len() as u64);
        self.collective(collective, |ring, waiter| ring.all_reduce(data, waiter))
    }

    fn broadcast(&mut self, root: Rank, bytes: &mut Vec<u8>) -> Result<(), CommError> {
        self.collective(Operation::Broadcast(root), |ring, waiter| ring.broadcast(root, bytes, waiter))
    }

    fn all_gather(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, CommError> {
        let mut all = vec![Vec::new(); self.world_size as usize];
        all[self.rank.0 as usize] = bytes.to_vec();
        self.collective(Operation::AllGather, |ring, waiter| ring.all_gather(&mut all, waiter))?;
        Ok(all)
    }

    fn abort_handle(&self) -> AbortHandle {
        let shared = self.shared.clone();
        AbortHandle::new(move |reason| shared.give_up(reason))
    }
}

impl Control for Ring {
    fn count(&mut self) -> Result<Seq, CommError> {
        let seq = Seq(self.next_seq);
        self.next_seq += 1;
        self.shared.set_begun(self.next_seq);
        self.verdict().map_or(Ok(seq), Err)
    }

    fn verdict(&self) -> Option<CommError> {
        self.shared.verdict()
    }

    fn overdue(&mut self, seq: Seq, waited: Duration) -> CommError {
        if self.links.is_none() {
            return CommError::TimedOut { seq, waited, absent: Vec::new() };
        }
        self.inquire(seq, waited)
    }
}
