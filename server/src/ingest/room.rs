//! The memory for batches in flight.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::Refusal;

/// The memory for batches in flight, in bytes: about twenty of the largest batches ([`MAX_HELD_BYTES`](super::MAX_HELD_BYTES)), or
/// 50,000 usual batches of 100 ms.
const ROOM_BYTES: usize = 512 << 20;
/// The time that a batch waits for memory before it is refused.
const ROOM_WITHIN: Duration = Duration::from_secs(1);

/// The memory for batches in flight from the socket to the hub, over all senders. A batch counts with the size of its
/// frame until it is decoded, and with its expected size after that.
#[derive(Clone)]
pub(super) struct Room {
    free_kib: Arc<Semaphore>,
}

impl Default for Room {
    fn default() -> Self {
        Self { free_kib: Arc::new(Semaphore::new(ROOM_BYTES >> 10)) }
    }
}

impl Room {
    /// Reserves this many bytes. Waits up to [`ROOM_WITHIN`] for them.
    pub(super) async fn take(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Refusal> {
        let taken = timeout(ROOM_WITHIN, self.free_kib.clone().acquire_many_owned(kib(bytes))).await;
        taken.ok().and_then(Result::ok).ok_or(Refusal::Full)
    }

    /// Reserves this many bytes without waiting.
    pub(super) fn take_now(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Refusal> {
        self.free_kib.clone().try_acquire_many_owned(kib(bytes)).map_err(|_| Refusal::Full)
    }
}

pub(super) fn kib(bytes: usize) -> u32 {
    bytes.min(ROOM_BYTES).div_ceil(1 << 10) as u32
}
