//! The interpreter's collections of garbage, which it reports to a function in `gc.callbacks`.

use std::sync::atomic::{AtomicI64, Ordering};

use pyo3::types::{PyAny, PyAnyMethods as _};
use pyo3::{Bound, Py, PyRef, PyResult, Python, intern, pyclass, pymethods};
use rustix::thread::gettid;

use crate::agent::{Agent, Functions};
use crate::clock::monotonic_nanos;

/// The code of a garbage collection in `attach/src/call_log.rs`.
const GARBAGE_COLLECTION: u8 = 7;
/// The shortest collection that is recorded, in nanoseconds. Young generations are collected often and take less.
const SHORTEST_NANOS: i64 = 200_000;

/// The collections on the thread that trains.
#[pyclass(frozen, module = "paceline._native")]
pub struct Collections {
    agent: Functions,
    begun: AtomicI64,
    /// The module whose `training` is the thread that trains.
    threads: Py<PyAny>,
}

#[pymethods]
impl Collections {
    #[new]
    fn new(agent: PyRef<'_, Agent>, threads: Py<PyAny>) -> Self {
        Self { agent: agent.functions(), begun: AtomicI64::new(0), threads }
    }

    /// Called by the interpreter with "start" and "stop".
    fn __call__(&self, python: Python<'_>, phase: &str, _info: &Bound<'_, PyAny>) {
        if !self.is_training(python).unwrap_or(false) {
            return;
        }
        let now = monotonic_nanos();
        if phase == "start" {
            self.begun.store(now, Ordering::Relaxed);
            return;
        }
        let begun = self.begun.swap(0, Ordering::Relaxed);
        if begun != 0 && now - begun >= SHORTEST_NANOS {
            (self.agent.phase)(GARBAGE_COLLECTION, begun, now, 0);
        }
    }
}

impl Collections {
    fn is_training(&self, python: Python<'_>) -> PyResult<bool> {
        let training = self.threads.bind(python).getattr(intern!(python, "training"))?;
        let id = training.getattr(intern!(python, "native_id"))?.extract::<Option<i32>>()?;
        Ok(id == Some(gettid().as_raw_nonzero().get()))
    }
}
