//! Processes on one or several hosts as ranks of a ring over TCP.
//!
//! ```text
//!            control: a star around rank 0                data: a ring
//!          rank 1   rank 2   rank 3
//!              \      |      /                  rank 0 -> rank 1 -> rank 2 -> rank 3
//!               hub in rank 0                       ^-------------------------'
//! ```
//!
//! Rank 0 listens at the master address. Every rank keeps a control connection to the hub that runs there: it
//! introduces the ranks to each other, and it decides who is to blame when something goes wrong, so that all
//! survivors report the same. Gradients go around the ring: reduce-scatter and all-gather in one stream, in
//! which a byte is passed on as soon as it is reduced. Ranks on one host use a Unix socket for it.
//!
//! Every element is summed along the ring once and the result copied to the others, so it has the same bits
//! on all ranks. The order of summation depends on where in the bucket the element lies; two runs with the
//! same buckets and ranks give the same bits.

mod config;
mod data;
mod hub;
mod member;
mod message;
mod rendezvous;
mod segments;
mod signal;

use std::sync::Arc;
use std::time::{Duration, Instant};

use wire::ids::{Rank, Seq};

use crate::communicator::{AbortHandle, Collective, Communicator, Control};
use crate::error::CommError;
pub use config::Config;
use data::{DataRing, Fault, Waiter};
use member::{Membership, Shared};
use message::Message;

/// How long a rank that saw a connection break waits for the hub to say who broke it: the hub sees a dead
/// process within the same millisecond, a dead host later than that.
const VERDICT_WAIT: Duration = Duration::from_secs(2);
/// How long a rank waits for the hub's inquiry after a timeout. Longer than [`hub::INQUIRY`].
const INQUIRY_WAIT: Duration = Duration::from_secs(4);

/// One process's place in the ring.
pub struct Ring {
    rank: Rank,
    world_size: u32,
    timeout: Duration,
    next_seq: u64,
    shared: Arc<Shared>,
    /// None in a world of one, which has nobody to talk to.
    links: Option<Links>,
}

struct Links {
    data: DataRing,
    /// Says goodbye when it is dropped, after the data connections.
    _membership: Membership,
}

impl Ring {
    /// Meets the other ranks; returns when all are there.
    ///
    /// # Errors
    /// When they do not come in time, when rank 0 refuses this process, when the address cannot be used.
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
        // A rank that is connected already might fail in its first collective; this way all have met by then.
        ring.barrier()?;
        ring.next_seq = 0;
        ring.shared.set_begun(0);
        Ok(ring)
    }

    /// Runs one collective: the ranks compare what they are in, then `body` moves the data.
    fn collective(
        &mut self,
        collective: Collective,
        body: impl FnOnce(&mut DataRing, &Waiter<'_>) -> Result<(), Fault>,
    ) -> Result<(), CommError> {
        let seq = self.count()?;
        let Some(links) = &mut self.links else { return Ok(()) };
        let waiter = Waiter { shared: &self.shared, deadline: Instant::now() + self.timeout };
        let outcome =
            links.data.begin(seq, collective, &waiter).and_then(|()| body(&mut links.data, &waiter));
        outcome.map_err(|fault| self.resolve(fault, seq))
    }

    /// Asks the hub who keeps a collective from ending. No rank can go on after that.
    fn inquire(&self, seq: Seq, waited: Duration) -> CommError {
        self.shared.send(Message::Stuck { seq, waited });
        let reason = "it does not answer (stopped, or cut off from the network)";
        self.settle(self.lost(Rank(0), reason), INQUIRY_WAIT)
    }

    /// The hub's verdict; should it have none in time, this rank's guess, which is told to all.
    fn settle(&self, guess: CommError, patience: Duration) -> CommError {
        if self.shared.await_verdict(patience).is_none() {
            self.shared.send(Message::Verdict(guess.clone()));
        }
        self.shared.verdict_or(|| guess)
    }

    /// Turns what this rank saw into what all ranks report.
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
        let collective = Collective::AllReduce(data.len() as u64);
        self.collective(collective, |ring, waiter| ring.all_reduce(data, waiter))
    }

    fn broadcast(&mut self, root: Rank, bytes: &mut Vec<u8>) -> Result<(), CommError> {
        self.collective(Collective::Broadcast(root), |ring, waiter| ring.broadcast(root, bytes, waiter))
    }

    fn all_gather(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, CommError> {
        let mut all = vec![Vec::new(); self.world_size as usize];
        all[self.rank.0 as usize] = bytes.to_vec();
        self.collective(Collective::AllGather, |ring, waiter| ring.all_gather(&mut all, waiter))?;
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
