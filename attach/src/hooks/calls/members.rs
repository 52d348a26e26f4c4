//! The rank and size of a communicator, which messages are counted by. NCCL is asked for them once per communicator, at
//! the first message.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use super::exports::Address;
use super::originals::found;
use crate::observer::{self, Communicator, Hook};
use crate::table::Table;

/// The own rank plus one, by the address of the communicator.
static RANKS: Table = Table::new();

/// Removes the rank of a communicator whose address now belongs to a new one.
pub(super) fn forget(communicator: *mut c_void) {
    if let Some(known) = RANKS.slot(communicator.addr() as u64) {
        known.store(0, Ordering::Relaxed);
    }
}

type Ask = unsafe extern "C" fn(*mut c_void, *mut c_int) -> c_int;

/// Returns the own rank in a communicator. Reports the communicator's size to the observer thread.
pub(super) fn rank_in(communicator: *mut c_void, number: u64) -> Option<u32> {
    let known = RANKS.slot(communicator.addr() as u64)?;
    if let Some(rank) = known.load(Ordering::Relaxed).checked_sub(1) {
        return Some(rank as u32);
    }
    static FUNCTIONS: OnceLock<[Option<Address>; 2]> = OnceLock::new();
    let find = || {
        [("ncclCommUserRank", "pncclCommUserRank"), ("ncclCommCount", "pncclCommCount")]
            .map(|(name, kept)| found(name, kept).map(Address))
    };
    let [rank, size] =
        FUNCTIONS.get_or_init(find).each_ref().map(|function| ask(function.as_ref(), communicator));
    if let Some(size) = size {
        observer::begin(Hook::Calls, Some(Communicator { number, size, rank: None }));
    }
    known.store(u64::from(rank?) + 1, Ordering::Relaxed);
    rank
}

fn ask(function: Option<&Address>, communicator: *mut c_void) -> Option<u32> {
    // SAFETY: both functions have this type in nccl.h.
    let function = unsafe { std::mem::transmute::<*const c_void, Ask>(function?.0) };
    let mut answer = -1;
    // SAFETY: the communicator is one that NCCL is given in this call; NCCL writes one integer to `answer`.
    let result = unsafe { function(communicator, &raw mut answer) };
    (result == 0).then(|| u32::try_from(answer).ok())?
}
