//! The process that this library finds itself in.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once, PoisonError};

static FORKED: AtomicBool = AtomicBool::new(false);
static WATCH_FORKS: Once = Once::new();

/// From now on a forked child knows that it is one: it has this library's memory and none of its threads, and a
/// lock that was held at the fork is held there for ever.
pub(crate) fn watch_forks() {
    WATCH_FORKS.call_once(|| {
        // SAFETY: the handler only stores to an atomic; the library stays mapped for good (build.rs).
        let _out_of_memory = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

extern "C" fn in_child() {
    FORKED.store(true, Ordering::Relaxed);
}

/// False in a forked child of an observed process.
pub(crate) fn is_ours() -> bool {
    !FORKED.load(Ordering::Relaxed)
}

/// Runs what a foreign thread asked for. A panic must not leave this library: it would end its host.
pub(crate) fn guarded<T: Default>(work: impl FnOnce() -> T) -> T {
    if !is_ours() {
        return T::default();
    }
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_default()
}

static LAST_WORKS: Mutex<Vec<fn()>> = Mutex::new(Vec::new());

/// Calls `work` when the process ends by `exit` or by returning from `main`, after what was given later.
pub(crate) fn at_exit(work: fn()) {
    let mut works = LAST_WORKS.lock().unwrap_or_else(PoisonError::into_inner);
    if works.is_empty() {
        // SAFETY: the handler is a function of this library, which stays mapped for good.
        let _table_full = unsafe { libc::atexit(exiting) };
    }
    works.push(work);
}

extern "C" fn exiting() {
    guarded(|| {
        let works = std::mem::take(&mut *LAST_WORKS.lock().unwrap_or_else(PoisonError::into_inner));
        works.into_iter().rev().for_each(|work| work());
    });
}
