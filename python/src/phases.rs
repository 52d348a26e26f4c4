//! The phases of a step: of the training thread, and of its device.

use std::sync::atomic::{AtomicI64, Ordering};

use pyo3::{PyRef, pyclass, pymethods};

use crate::agent::{Agent, Functions};
use crate::clock::{monotonic_nanos, thread_nanos};

/// The start of a phase that has not begun.
const NOT_BEGUN: i64 = 0;

/// One kind of phase, which the training thread enters and leaves.
#[pyclass(frozen, module = "paceline._native")]
pub struct Phase {
    agent: Functions,
    code: u8,
    /// `CLOCK_MONOTONIC`, or [`NOT_BEGUN`].
    begun: AtomicI64,
    /// The processor time of the thread when the phase began, in nanoseconds.
    used: AtomicI64,
    /// The end so far of a phase that may continue; [`NOT_BEGUN`] if there is none.
    paused: AtomicI64,
    /// The processor time of the thread at that end, in nanoseconds.
    used_until_paused: AtomicI64,
}

#[pymethods]
impl Phase {
    /// `code` is that of `Phase` in `attach/src/call_log.rs`.
    #[new]
    fn new(agent: PyRef<'_, Agent>, code: u8) -> Self {
        Self {
            agent: agent.functions(),
            code,
            begun: AtomicI64::new(NOT_BEGUN),
            used: AtomicI64::new(0),
            paused: AtomicI64::new(NOT_BEGUN),
            used_until_paused: AtomicI64::new(0),
        }
    }

    /// Begins the phase. A phase that was begun and not ended, because an exception left it, is forgotten.
    fn begin(&self) {
        self.used.store(thread_nanos(), Ordering::Relaxed);
        self.begun.store(monotonic_nanos(), Ordering::Relaxed);
    }

    /// Moves the beginning of the phase to now, if it was begun: what came before belongs to other phases.
    fn restart(&self) {
        if self.begun.load(Ordering::Relaxed) != NOT_BEGUN {
            self.begin();
        }
    }

    /// Begins the phase, unless it was begun.
    fn resume(&self) {
        if self.begun.load(Ordering::Relaxed) == NOT_BEGUN {
            self.begin();
        }
    }

    /// Ends the phase for now. The next [`Self::resume`] continues it; without one, it ends here.
    fn pause(&self) {
        self.paused.store(monotonic_nanos(), Ordering::Relaxed);
        self.used_until_paused.store(thread_nanos(), Ordering::Relaxed);
    }

    /// Ends the phase where it was last paused, if it was.
    fn finish(&self) {
        let begun = self.begun.swap(NOT_BEGUN, Ordering::Relaxed);
        let paused = self.paused.swap(NOT_BEGUN, Ordering::Relaxed);
        if begun != NOT_BEGUN && paused != NOT_BEGUN {
            let used = self.used_until_paused.load(Ordering::Relaxed) - self.used.load(Ordering::Relaxed);
            (self.agent.phase)(self.code, begun, paused, used);
        }
    }

    /// Ends the phase, if it was begun. Returns whether it was.
    fn end(&self) -> bool {
        let begun = self.begun.swap(NOT_BEGUN, Ordering::Relaxed);
        if begun != NOT_BEGUN {
            let end = monotonic_nanos();
            (self.agent.phase)(self.code, begun, end, thread_nanos() - self.used.load(Ordering::Relaxed));
        }
        begun != NOT_BEGUN
    }
}

/// One kind of phase of a device, which the training thread enters and leaves ahead of the device. `stream` is the handle of
/// the CUDA stream that does the work of the phase.
#[pyclass(frozen, module = "paceline._native")]
pub struct DevicePhase {
    agent: Functions,
    code: u8,
    number: i64,
}

#[pymethods]
impl DevicePhase {
    /// `code` is that of `Phase` in `attach/src/call_log.rs`.
    #[new]
    fn new(agent: PyRef<'_, Agent>, code: u8) -> Self {
        let agent = agent.functions();
        Self { agent, code, number: (agent.device_phase)() }
    }

    /// Begins the phase. A phase that was begun and not ended, because an exception left it, is forgotten.
    fn begin(&self, stream: usize) {
        (self.agent.device_begins)(self.number, stream);
    }

    /// Moves the beginning of the phase to the work that comes now, if it was begun.
    fn restart(&self, stream: usize) {
        if (self.agent.device_is_begun)(self.number) {
            self.begin(stream);
        }
    }

    /// Ends the phase, if it was begun.
    fn end(&self, stream: usize) {
        (self.agent.device_ends)(self.number, self.code, stream);
    }
}
