//! The interpreter's collections of garbage, which it reports to a function in `gc.callbacks`.

use std::sync::atomic::{AtomicI64, Ordering};

use pyo3::types::PyAny;
use pyo3::{Bound, PyRef, pyclass, pymethods};
use rustix::process::getpid;
use rustix::thread::gettid;

use crate::agent::{Agent, Functions};
use crate::clock::monotonic_nanos;

/// The code of a garbage collection in `attach/src/call_log.rs`.
const GARBAGE_COLLECTION: u8 = 7;
/// The shortest collection that is recorded, in nanoseconds. Young generations are collected often and take less.
const SHORTEST_NANOS: i64 = 200_000;

/// The collections on the main thread.
#[pyclass(frozen, module = "paceline._native")]
pub struct Collections {
    agent: Functions,
    begun: AtomicI64,
}

#[pymethods]
impl Collections {
    #[new]
    fn new(agent: PyRef<'_, Agent>) -> Self {
        Self { agent: agent.functions(), begun: AtomicI64::new(0) }
    }

    /// Called by the interpreter with "start" and "stop".
    fn __call__(&self, phase: &str, _info: &Bound<'_, PyAny>) {
        if gettid() != getpid() {
            return;
        }
        let now = monotonic_nanos();
        if phase == "start" {
            self.begun.store(now, Ordering::Relaxed);
            return;
        }
        let begun = self.begun.swap(0, Ordering::Relaxed);
        if begun != 0 && now - begun >= SHORTEST_NANOS {
            (self.agent.phase)(GARBAGE_COLLECTION, begun, now);
        }
    }
}
