//! A meeting point for the threads of a test, with a time limit in case a thread has failed.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use anyhow::ensure;

/// The longest wait. Even on the busiest machine, threads meet sooner.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A meeting point that is used once, by a fixed number of threads.
pub struct Meeting {
    missing: Mutex<usize>,
    came: Condvar,
}

impl Meeting {
    /// Creates a meeting point for `threads` threads.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        Self { missing: Mutex::new(threads), came: Condvar::new() }
    }

    /// Arrives and waits for the other threads.
    ///
    /// # Errors
    /// Returns an error if another thread does not arrive within [`PATIENCE`].
    pub fn wait(&self) -> anyhow::Result<()> {
        let mut missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        *missing = missing.saturating_sub(1);
        self.came.notify_all();
        let waited = self.came.wait_timeout_while(missing, PATIENCE, |missing| *missing > 0);
        let (missing, _) = waited.unwrap_or_else(PoisonError::into_inner);
        ensure!(*missing == 0, "{} of the other threads did not arrive; one may have failed", *missing);
        Ok(())
    }
}
