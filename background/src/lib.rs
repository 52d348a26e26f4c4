//! A background thread that stops when its handle is dropped. The agent's parts that wait for requests use it.
#![warn(missing_docs)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, park_timeout};
use std::time::{Duration, Instant};

/// The request to a [`Background`] thread to stop.
#[derive(Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Returns whether the thread is to stop.
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Waits for `length`, or until the thread is asked to stop.
    pub fn wait(&self, length: Duration) {
        let end = Instant::now() + length;
        while !self.is_asked() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            park_timeout(left);
        }
    }
}

/// The handle of a background thread. Dropping it stops the thread and waits for its end.
pub struct Background {
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Starts a thread. If it cannot be started, its work is skipped, so that the job is not disturbed.
    pub fn start(name: &str, work: impl FnOnce(&Stop) + Send + 'static) -> Self {
        let stop = Stop::default();
        let asked = stop.clone();
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || work(&asked));
        Self { stop, thread: thread.ok() }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop.0.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _outcome = thread.join();
        }
    }
}
