//! What the reducer needs of a transport.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use wire::ids::{Rank, Seq};

use crate::error::CommError;

/// Blocking collectives over the ranks of one job, driven by one thread: the reducer's communication thread.
///
/// Every rank calls the same methods in the same order. A call returns within the communicator's timeout,
/// whatever the peers do. After an error every later call gives the same error.
///
/// [`local`](crate::local) is the reference, [`ring`](crate::ring) the one for processes. Device memory is reduced
/// beside it ([`Control`]).
pub trait Communicator: Send {
    /// This rank.
    fn rank(&self) -> Rank;

    /// How many ranks there are.
    fn world_size(&self) -> u32;

    /// The number of the next collective. Ranks count alike, so it names one collective on all of them.
    fn next_seq(&self) -> Seq;

    /// Replaces `data` by its sum over all ranks. The result has the same bits on all ranks.
    ///
    /// # Errors
    /// When a rank is lost, gives up, does not come in time, or is in another collective.
    fn all_reduce(&mut self, data: &mut [f32]) -> Result<(), CommError>;

    /// Replaces `bytes` by those of `root`.
    ///
    /// # Errors
    /// As [`Self::all_reduce`].
    fn broadcast(&mut self, root: Rank, bytes: &mut Vec<u8>) -> Result<(), CommError>;

    /// The bytes of all ranks, by rank; their lengths may differ.
    ///
    /// # Errors
    /// As [`Self::all_reduce`].
    fn all_gather(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, CommError>;

    /// Returns when every rank has called it.
    ///
    /// # Errors
    /// As [`Self::all_reduce`].
    fn barrier(&mut self) -> Result<(), CommError> {
        self.all_gather(&[]).map(drop)
    }

    /// A way for another thread to give up while this one is in a collective.
    fn abort_handle(&self) -> AbortHandle;
}

/// A communicator beside something faster that carries the gradients, as NCCL does between GPUs: the ranks meet over
/// it, and it knows who is to blame when what it does not carry does not come to an end.
pub trait Control: Communicator {
    /// Counts a collective that is carried elsewhere, as if it were one of this communicator's.
    ///
    /// # Errors
    /// When the ranks cannot go on; the collective must not be begun.
    fn count(&mut self) -> Result<Seq, CommError>;

    /// Why the ranks cannot go on, if that is known; asks nobody and does not wait.
    fn verdict(&self) -> Option<CommError>;

    /// A collective that was counted did not end after so long: finds out who kept it. From now on no rank can go on.
    fn overdue(&mut self, seq: Seq, waited: Duration) -> CommError;
}

/// Makes every rank's current and later collectives fail with a reason.
#[derive(Clone)]
pub struct AbortHandle(Arc<dyn Fn(&str) + Send + Sync>);

impl AbortHandle {
    /// Wraps what aborts.
    pub fn new(abort: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(abort))
    }

    /// Gives up: `reason` is what the other ranks report about this one.
    pub fn abort(&self, reason: &str) {
        (self.0)(reason);
    }
}

/// Which collective a rank is in; what ranks compare when they meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collective {
    /// [`Communicator::all_reduce`] of so many floats.
    AllReduce(u64),
    /// [`Communicator::broadcast`] from a root.
    Broadcast(Rank),
    /// [`Communicator::all_gather`], and the barrier that is made of it.
    AllGather,
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AllReduce(floats) => write!(f, "all-reduce of {floats} floats"),
            Self::Broadcast(root) => write!(f, "broadcast from rank {root}"),
            Self::AllGather => f.write_str("all-gather"),
        }
    }
}
