//! Groups of a communicator's ranks, as communicators of their own.

use std::ffi::c_int;
use std::ptr::{self, NonNull};

use super::{Communicator, Config, IN_PROGRESS, NcclError, Raw, State};
use crate::library::Absent;

/// `ncclCommSplit`
pub(super) type CommSplit = unsafe extern "C" fn(Raw, c_int, c_int, *mut Raw, *mut Config) -> c_int;

/// `NCCL_SPLIT_NOCOLOR`
pub(super) const NO_COLOR: c_int = -1;

/// Why a communicator has no groups.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoSplit {
    /// NCCL is older than its function for that.
    #[error("{absent}; groups of ranks need NCCL 2.18 or newer")]
    TooOld {
        /// Which NCCL it is.
        absent: Absent,
    },
    /// NCCL says no.
    #[error(transparent)]
    Refused(#[from] NcclError),
}

impl Communicator {
    /// Begins to divide the ranks into groups, one for each color; in a group they are ordered by `key`, then by their
    /// rank here. A rank without a color comes along, and is in no group. Every rank must call it, and
    /// [`Self::state`] must be ready before; when it is ready again, [`Split::made`] has this rank's group.
    ///
    /// # Errors
    /// When NCCL is older than 2.18, or refuses.
    ///
    /// # Panics
    /// When `color` or `key` is 2^31 or more, which NCCL takes for less than 0.
    pub fn split(&self, color: Option<u32>, key: u32) -> Result<Split<'_>, NoSplit> {
        let split = self.nccl.split.clone().map_err(|absent| NoSplit::TooOld { absent })?;
        let number = |number| c_int::try_from(number).expect("colors and keys are below 2^31");
        let (color, key) = (color.map_or(NO_COLOR, number), number(key));
        let place = Box::leak(Box::new(ptr::null_mut()));
        let begun = Split { parent: self, place: Some(NonNull::from(place)) };
        let place = begun.place.map_or(ptr::null_mut(), NonNull::as_ptr);
        let mut config = Config::that_does_not_block();
        // SAFETY: the communicator lives. The config is read before the call returns; `place` stays where it is until
        // NCCL has written to it, however long that takes.
        let code = unsafe { split(self.raw, color, key, place, &raw mut config) };
        self.nccl.accept("ncclCommSplit", code)?;
        Ok(begun)
    }
}

/// A split that goes on behind the call.
pub struct Split<'a> {
    parent: &'a Communicator,
    /// Where NCCL writes this rank's communicator, by a thread of its own and before the parent is ready again. `None`
    /// once it was taken.
    place: Option<NonNull<Raw>>,
}

impl Split<'_> {
    /// The communicator of this rank's group; `None` for a rank without a color. It can be used when its own
    /// [`Communicator::state`] says so, and lives and ends apart from the one that it was split from.
    ///
    /// # Errors
    /// What went wrong on the way, here or on another rank; `ncclInProgress` while the one that is split is not ready.
    pub fn made(mut self) -> Result<Option<Communicator>, NcclError> {
        match self.parent.state()? {
            State::Ready => Ok(self.take()),
            State::InProgress => Err(self.parent.nccl.error("ncclCommSplit", IN_PROGRESS)),
        }
    }

    /// Takes what NCCL has written, which writes no more: the parent is ready.
    fn take(&mut self) -> Option<Communicator> {
        let place = self.place.take()?;
        // SAFETY: it was a box, and nobody else has its address any more.
        let raw = unsafe { *Box::from_raw(place.as_ptr()) };
        (!raw.is_null()).then(|| Communicator { nccl: self.parent.nccl.clone(), raw })
    }
}

impl Drop for Split<'_> {
    fn drop(&mut self) {
        // NCCL may still write to the place of a split that goes on or has failed: the place is left to it.
        if self.place.is_some() && self.parent.state() == Ok(State::Ready) {
            drop(self.take());
        }
    }
}
