//! A thread beside a job that stops when nobody holds it any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, park_timeout};
use std::time::{Duration, Instant};

/// Says to a [`Background`] when to stop.
#[derive(Clone, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    pub(crate) fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Waits so long, or until it is asked for.
    pub(crate) fn wait(&self, length: Duration) {
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

/// A thread that is stopped, and waited for, when this is dropped.
pub(crate) struct Background {
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Starts it. A job is not the worse for a thread that cannot be started: what it would do is left out.
    pub(crate) fn start(name: &str, work: impl FnOnce(&Stop) + Send + 'static) -> Self {
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
