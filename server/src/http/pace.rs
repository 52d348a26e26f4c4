//! The slowest rate at which a file may arrive. There are few places for files that arrive, and a client that sends a byte now
//! and then would hold one of them for as long as it likes.

use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::error::Failure;

/// The time over which the rate is measured. It counts only while the server waits for the client.
const WINDOW: Duration = Duration::from_secs(10);
/// The least that arrives in that time, in bytes: 6.4 KiB/s, a tenth of what a poor mobile network carries.
const MIN_BYTES: usize = 64 << 10;

/// The rate at which one file, or several in a row, arrive.
#[derive(Debug, Default)]
pub(super) struct Pace {
    waited: Duration,
    bytes: usize,
}

/// The error that too little arrived.
#[derive(Debug, thiserror::Error)]
#[error(
    "only {bytes} bytes arrived within {} s, and the slowest rate is {} KiB in that time: nothing of it is kept. Send it over \
     a faster connection, or copy the files to the server and use `paceline import` there",
    WINDOW.as_secs(),
    MIN_BYTES >> 10
)]
pub(super) struct TooSlow {
    bytes: usize,
}

impl Pace {
    /// Waits for the next piece. `size` returns its size in bytes.
    ///
    /// # Errors
    /// Returns an error once too little has arrived in the newest window.
    pub(super) async fn next<T>(
        &mut self,
        next: impl Future<Output = T>,
        size: impl Fn(&T) -> usize,
    ) -> Result<T, TooSlow> {
        let mut next = pin!(next);
        loop {
            let began = Instant::now();
            let piece = timeout(WINDOW.saturating_sub(self.waited), next.as_mut()).await;
            self.waited += began.elapsed();
            self.bytes += piece.as_ref().map_or(0, &size);
            if self.waited >= WINDOW {
                self.end_window()?;
            }
            if let Ok(piece) = piece {
                return Ok(piece);
            }
        }
    }

    fn end_window(&mut self) -> Result<(), TooSlow> {
        let Self { bytes, .. } = std::mem::take(self);
        if bytes < MIN_BYTES { Err(TooSlow { bytes }) } else { Ok(()) }
    }
}

impl From<TooSlow> for Failure {
    fn from(error: TooSlow) -> Self {
        Self::BadRequest(error.to_string())
    }
}
