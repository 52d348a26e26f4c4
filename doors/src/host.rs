//! The process that this library finds itself in.

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
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

/// Threads that are started meanwhile take none of the process's signals: its handlers run where its own threads let them.
/// Those that say that the thread itself went wrong stay.
pub(crate) fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    let own = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGABRT, libc::SIGTRAP];
    // SAFETY: sets of signals are plain data, which these calls fill and read.
    let before = unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        for signal in own {
            libc::sigdelset(&raw mut all, signal);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    };
    let started = start();
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut()) };
    started
}

/// Runs what a foreign thread asked for. A panic must not leave this library: it would end its host.
pub(crate) fn guarded<T: Default>(work: impl FnOnce() -> T) -> T {
    if !is_ours() {
        return T::default();
    }
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_default()
}

type LastWork = fn(ExitCode);

/// What a process ends with, as its parent sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExitCode(u8);

impl ExitCode {
    /// Whether the process says that it did what it was for.
    pub(crate) fn check(self) -> Result<(), String> {
        match self.0 {
            0 => Ok(()),
            code => Err(format!("ended with exit code {code}")),
        }
    }
}

static LAST_WORKS: Mutex<Vec<LastWork>> = Mutex::new(Vec::new());

unsafe extern "C" {
    /// As `atexit`, but that the function learns what the process ends with. Only glibc has it, which all jobs have that
    /// NVIDIA's libraries are loaded into.
    fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

/// Calls `work` when the process ends by `exit` or by returning from `main`, after what was given later.
pub(crate) fn at_exit(work: LastWork) {
    let mut works = LAST_WORKS.lock().unwrap_or_else(PoisonError::into_inner);
    if works.is_empty() {
        // SAFETY: the handler is a function of this library, which stays mapped for good, and follows no pointer.
        let _table_full = unsafe { on_exit(exiting, ptr::null_mut()) };
    }
    works.push(work);
}

extern "C" fn exiting(status: c_int, _argument: *mut c_void) {
    guarded(|| {
        let works = std::mem::take(&mut *LAST_WORKS.lock().unwrap_or_else(PoisonError::into_inner));
        // A parent sees the lowest eight bits.
        let code = ExitCode(status.to_le_bytes()[0]);
        works.into_iter().rev().for_each(|work| work(code));
    });
}
