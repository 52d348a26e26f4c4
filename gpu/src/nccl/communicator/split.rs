//! Communicators of groups of a communicator's ranks.

use std::ffi::c_int;
use std::ptr::{self, NonNull};

use super::{Communicator, Config, IN_PROGRESS, NcclError, Raw, State};
use crate::library::Absent;

/// `ncclCommSplit`
pub(super) type CommSplit = unsafe extern "C" fn(Raw, c_int, c_int, *mut Raw, *mut Config) -> c_int;

/// `NCCL_SPLIT_NOCOLOR`
pub(super) const NO_COLOR: c_int = -1;

/// The reason why a communicator cannot be split.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoSplit {
    /// NCCL is too old: `ncclCommSplit` is missing.
    #[error("{absent}; groups of ranks need NCCL 2.18 or newer")]
    TooOld {
        /// The error of the library.
        absent: Absent,
    },
    /// NCCL refused.
    #[error(transparent)]
    Refused(#[from] NcclError),
}

impl Communicator {
    /// Begins to divide the ranks into groups, one for each color. A group's ranks are ordered by `key`, then by their
    /// rank in this communicator. A rank without a color is in no group.
    ///
    /// Every rank must call it, with [`Self::state`] ready. Once the state is ready again, [`Split::made`] returns the
    /// communicator of this rank's group.
    ///
    /// # Errors
    /// Returns an error if NCCL is older than 2.18 or refuses.
    ///
    /// # Panics
    /// Panics if `color` or `key` is 2^31 or more, which NCCL would read as negative.
    pub fn split(&self, color: Option<u32>, key: u32) -> Result<Split<'_>, NoSplit> {
        let split = self.nccl.split.clone().map_err(|absent| NoSplit::TooOld { absent })?;
        let number = |number| c_int::try_from(number).expect("colors and keys are below 2^31");
        let (color, key) = (color.map_or(NO_COLOR, number), number(key));
        let place = Box::leak(Box::new(ptr::null_mut()));
        let begun = Split { parent: self, place: Some(NonNull::from(place)) };
        let place = begun.place.map_or(ptr::null_mut(), NonNull::as_ptr);
        let mut config = Config::that_does_not_block();
        // SAFETY: the communicator is alive, and the config is read before the call returns. `place` stays allocated
        // until NCCL has written to it, however long that takes.
        let code = unsafe { split(self.raw, color, key, place, &raw mut config) };
        self.nccl.accept("ncclCommSplit", code)?;
        Ok(begun)
    }
}

/// A split in progress.
pub struct Split<'a> {
    parent: &'a Communicator,
    /// The memory to which a thread of NCCL writes this rank's communicator before the parent is ready again. `None`
    /// once the communicator is taken.
    place: Option<NonNull<Raw>>,
}

impl Split<'_> {
    /// Returns the communicator of this rank's group, or `None` for a rank without a color. It can be used once its own
    /// [`Communicator::state`] is ready. Its lifetime is independent of its parent's.
    ///
    /// # Errors
    /// Returns an error if the split failed here or on another rank, and `ncclInProgress` if the parent is not ready.
    pub fn made(mut self) -> Result<Option<Communicator>, NcclError> {
        match self.parent.state()? {
            State::Ready => Ok(self.take()),
            State::InProgress => Err(self.parent.nccl.error("ncclCommSplit", IN_PROGRESS)),
        }
    }

    /// Takes the communicator that NCCL has written. The parent must be ready, so that NCCL has finished writing.
    fn take(&mut self) -> Option<Communicator> {
        let place = self.place.take()?;
        // SAFETY: `place` was a box, and NCCL no longer uses its address.
        let raw = unsafe { *Box::from_raw(place.as_ptr()) };
        (!raw.is_null()).then(|| Communicator { nccl: self.parent.nccl.clone(), raw })
    }
}

impl Drop for Split<'_> {
    fn drop(&mut self) {
        // If the split is in progress or has failed, NCCL may still write to the memory, so it is leaked.
        if self.place.is_some() && self.parent.state() == Ok(State::Ready) {
            drop(self.take());
        }
    }
}
