//! The interface between the reducer and a transport.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use wire::ids::{Rank, Seq};

use crate::error::CommError;

/// Blocking collectives over the ranks of one job, driven by one thread: the reducer's communication thread.
///
/// Every rank calls the same methods in the same order. A call returns within the communicator's timeout, whatever the
/// peers do. After an error every later call returns the same error.
///
/// [`local`](crate::local) is the reference implementation, [`ring`](crate::ring) the one for processes. Gradients in
/// device memory may use another transport, with a communicator for control only ([`Control`]).
pub trait Communicator: Send {
    /// Returns this rank.
    fn rank(&self) -> Rank;

    /// Returns the number of ranks.
    fn world_size(&self) -> u32;

    /// Returns the sequence number of the next collective. It identifies the same collective on all ranks, because they
    /// count alike.
    fn next_seq(&self) -> Seq;

    /// Replaces `data` by its sum over all ranks. The result has the same bits on all ranks.
    ///
    /// # Errors
    /// Returns an error if a rank is lost, gives up, does not arrive in time, or is in another collective.
    fn all_reduce(&mut self, data: &mut [f32]) -> Result<(), CommError>;

    /// Replaces `bytes` by those of `root`.
    ///
    /// # Errors
    /// Returns the errors of [`Self::all_reduce`].
    fn broadcast(&mut self, root: Rank, bytes: &mut Vec<u8>) -> Result<(), CommError>;

    /// Returns the bytes of all ranks, by rank. Their lengths may differ.
    ///
    /// # Errors
    /// Returns the errors of [`Self::all_reduce`].
    fn all_gather(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, CommError>;

    /// Returns once every rank has called it.
    ///
    /// # Errors
    /// Returns the errors of [`Self::all_reduce`].
    fn barrier(&mut self) -> Result<(), CommError> {
        self.all_gather(&[]).map(drop)
    }

    /// Returns a handle by which another thread can give up while this one is in a collective.
    fn abort_handle(&self) -> AbortHandle;
}

/// A communicator that coordinates ranks whose gradients use a faster transport, such as NCCL between GPUs.
///
/// The ranks exchange setup data over it. When a collective of the faster transport does not end, it determines which
/// rank is responsible.
pub trait Control: Communicator {
    /// Counts a collective of another transport as if it were one of this communicator.
    ///
    /// # Errors
    /// Returns an error if the ranks cannot continue. The collective must then not be begun.
    fn count(&mut self) -> Result<Seq, CommError>;

    /// Returns why the ranks cannot continue, if that is known. Sends nothing and does not wait.
    fn verdict(&self) -> Option<CommError>;

    /// Determines which ranks kept the counted collective `seq` from ending within `waited`. From now on no rank can
    /// continue.
    fn overdue(&mut self, seq: Seq, waited: Duration) -> CommError;
}

/// A handle that makes the current and later collectives of every rank fail.
#[derive(Clone)]
pub struct AbortHandle(Arc<dyn Fn(&str) + Send + Sync>);

impl AbortHandle {
    /// Wraps the function that aborts.
    pub fn new(abort: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(abort))
    }

    /// Gives up. The other ranks report `reason` as the failure of this rank.
    pub fn abort(&self, reason: &str) {
        (self.0)(reason);
    }
}

/// The kind of a collective, which ranks compare at its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// [`Communicator::all_reduce`] with its number of floats.
    AllReduce(u64),
    /// [`Communicator::broadcast`] with its root.
    Broadcast(Rank),
    /// [`Communicator::all_gather`], or [`Communicator::barrier`], which uses it.
    AllGather,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AllReduce(floats) => write!(f, "all-reduce of {floats} floats"),
            Self::Broadcast(root) => write!(f, "broadcast from rank {root}"),
            Self::AllGather => f.write_str("all-gather"),
        }
    }
}
