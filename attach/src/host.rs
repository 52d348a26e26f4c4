//! The process that this library is loaded into.
#![allow(unsafe_code, reason = "forks, signals and the end of a process are functions of libc")]

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once, PoisonError};

static FORKED: AtomicBool = AtomicBool::new(false);
static WATCH_FORKS: Once = Once::new();

/// Registers a handler that marks forked children from now on. A child has this library's memory but none of its
/// threads, and a lock that was held at the fork stays locked there forever.
pub(crate) fn watch_forks() {
    WATCH_FORKS.call_once(|| {
        // SAFETY: the handler only stores to an atomic, and the library stays mapped until the process ends (build.rs).
        let _out_of_memory = unsafe { libc::pthread_atfork(None, None, Some(mark_child)) };
    });
}

extern "C" fn mark_child() {
    FORKED.store(true, Ordering::Relaxed);
}

/// Returns false in a forked child of an observed process.
pub(crate) fn is_ours() -> bool {
    !FORKED.load(Ordering::Relaxed)
}

/// Calls `start` with signals blocked, so that the threads it starts receive none of the process's signals, whose
/// handlers belong on the job's own threads. Signals that report an error of the thread itself stay unblocked.
pub(crate) fn block_signals<T>(start: impl FnOnce() -> T) -> T {
    let own = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGABRT, libc::SIGTRAP];
    // SAFETY: a signal set is plain data for which zeros are valid; the calls only fill and read the two sets.
    let blocked_before = unsafe {
        let (mut all, mut blocked_before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        for signal in own {
            libc::sigdelset(&raw mut all, signal);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut blocked_before);
        blocked_before
    };
    let started = start();
    // SAFETY: `blocked_before` was filled by the call above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const blocked_before, ptr::null_mut()) };
    started
}

/// Runs `work` on a thread of the host process. Returns the default value if it panics, since an escaping panic would
/// end that process. Does nothing in a forked child.
pub(crate) fn guarded<T: Default>(work: impl FnOnce() -> T) -> T {
    if !is_ours() {
        return T::default();
    }
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_default()
}

type LastWork = fn(ExitCode);

/// The exit code of a process, as its parent sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExitCode(u8);

impl ExitCode {
    /// Returns an error with the exit code unless the process reports success.
    pub(crate) fn check(self) -> Result<(), String> {
        match self.0 {
            0 => Ok(()),
            code => Err(format!("ended with exit code {code}")),
        }
    }
}

static LAST_WORKS: Mutex<Vec<LastWork>> = Mutex::new(Vec::new());

unsafe extern "C" {
    /// Like `atexit`, but passes the exit code to the function. Only glibc has it; every job that loads NVIDIA's
    /// libraries uses glibc.
    fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

/// Calls `work` when the process ends by `exit` or by returning from `main`. Work registered later runs first.
pub(crate) fn call_at_exit(work: LastWork) {
    let mut works = LAST_WORKS.lock().unwrap_or_else(PoisonError::into_inner);
    if works.is_empty() {
        // SAFETY: the handler is a function of this library, which stays mapped until the process ends, and follows no
        // pointer.
        let _table_full = unsafe { on_exit(exiting, ptr::null_mut()) };
    }
    works.push(work);
}

extern "C" fn exiting(status: c_int, _argument: *mut c_void) {
    exits(status);
}

/// Does the last works of a process that is about to end with an exit code, once. `_exit` itself would skip them.
pub(crate) fn exits(status: c_int) {
    guarded(|| {
        let works = std::mem::take(&mut *LAST_WORKS.lock().unwrap_or_else(PoisonError::into_inner));
        // A parent sees the lowest eight bits.
        let code = ExitCode(status.to_le_bytes()[0]);
        works.into_iter().rev().for_each(|work| work(code));
    });
}
