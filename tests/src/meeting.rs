//! Where threads of a test wait for each other, and not forever: one that has failed does not come.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use anyhow::ensure;

/// Longer than threads take to meet on the busiest machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Is waited for once, by so many threads.
pub struct Meeting {
    missing: Mutex<usize>,
    came: Condvar,
}

impl Meeting {
    /// Of `threads`.
    #[must_use]
    pub fn of(threads: usize) -> Self {
        Self { missing: Mutex::new(threads), came: Condvar::new() }
    }

    /// Comes, and waits for the others.
    ///
    /// # Errors
    /// When [`PATIENCE`] has passed.
    pub fn wait(&self) -> anyhow::Result<()> {
        let mut missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        *missing = missing.saturating_sub(1);
        self.came.notify_all();
        let waited = self.came.wait_timeout_while(missing, PATIENCE, |missing| *missing > 0);
        let (missing, _) = waited.unwrap_or_else(PoisonError::into_inner);
        ensure!(*missing == 0, "{} of the other threads did not come: did one fail?", *missing);
        Ok(())
    }
}
