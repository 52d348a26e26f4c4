//! The hooks that PyTorch calls before and after it issues a collective of one process group.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyRuntimeError;
use pyo3::types::{PyAnyMethods as _, PyMapping, PyMappingMethods as _};
use pyo3::{Bound, Py, PyAny, PyRef, PyResult, Python, intern, pyclass, pymethods};

use crate::agent::{Agent, Functions};
use crate::clock::{monotonic_nanos, thread_nanos};
use crate::reductions;

/// The largest number of collectives that are being issued at the same time. Several threads may issue some.
const MOST_ISSUING: usize = 256;

/// The tensors whose bytes are this rank's.
#[derive(Clone, Copy)]
enum Side {
    Inputs,
    Outputs,
}

/// By PyTorch's name: the code of a collective in `wire::event::Function`, and whose bytes count.
const COLLECTIVES: [(&str, u8, Side); 14] = [
    ("ALLREDUCE", 4, Side::Inputs),
    ("ALLREDUCE_COALESCED", 4, Side::Inputs),
    ("ALLGATHER", 2, Side::Inputs),
    ("ALLGATHER_BASE", 2, Side::Inputs),
    ("ALLGATHER_COALESCED", 2, Side::Inputs),
    ("ALLGATHER_INTO_TENSOR_COALESCED", 2, Side::Inputs),
    ("REDUCE_SCATTER", 3, Side::Outputs),
    ("REDUCE_SCATTER_BASE", 3, Side::Outputs),
    ("REDUCE_SCATTER_TENSOR_COALESCED", 3, Side::Outputs),
    ("BROADCAST", 0, Side::Inputs),
    ("REDUCE", 1, Side::Inputs),
    ("ALLTOALL", 8, Side::Inputs),
    ("ALLTOALL_BASE", 8, Side::Inputs),
    ("BARRIER", 15, Side::Inputs),
];

/// A collective that is being issued.
struct Issuing {
    at: i64,
    function: u8,
    bytes: u64,
    /// The processor time spent on finding that out, in nanoseconds.
    spent: i64,
}

/// Something to say once on the job's error stream.
type Words = Option<String>;

/// The hooks of one process group.
#[pyclass(frozen, weakref, module = "paceline._native")]
pub struct Hooks {
    agent: Functions,
    group: i64,
    /// Waits for the collectives and reports their ends.
    waiter: Py<PyAny>,
    /// Passes a collective to the waiter: a function in C, so no signal handler of the job runs in it.
    put: Py<PyAny>,
    /// Keeps a collective whose end is that of the job's own wait for it: also a function in C.
    append: Py<PyAny>,
    /// Says something on the job's error stream, once.
    say: Py<PyAny>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Whether an error has switched the hooks off.
    is_off: bool,
    /// The collectives by the value of PyTorch's enum: reading the name costs more than everything else here.
    collectives: Option<HashMap<i64, (u8, Side)>>,
    /// By operation id.
    issuing: HashMap<u64, Issuing>,
}

#[pymethods]
impl Hooks {
    #[new]
    fn new(agent: PyRef<'_, Agent>, group: i64, waiter: Bound<'_, PyAny>, say: Py<PyAny>) -> PyResult<Self> {
        let put = waiter.getattr("under_way")?.getattr("put")?.unbind();
        let append = waiter.getattr("of_the_job")?.getattr("append")?.unbind();
        let (agent, waiter) = (agent.functions(), waiter.unbind());
        Ok(Self { agent, group, waiter, put, append, say, state: Mutex::default() })
    }

    /// Called by PyTorch before it issues a collective.
    fn before(&self, told: &Bound<'_, PyAny>) -> PyResult<()> {
        self.guarded(told.py(), || self.begin(told))
    }

    /// Called by PyTorch after it issued a collective.
    fn after(&self, told: &Bound<'_, PyAny>) -> PyResult<()> {
        self.guarded(told.py(), || self.issue(told))
    }
}

impl Hooks {
    /// Locks the state. The lock is never held during a call to Python, which may switch threads.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does the work of a hook. An error of the work is said once and switches the hooks off. The only error that is
    /// returned is one that a signal handler of the job raised while something was said.
    fn guarded(&self, python: Python<'_>, work: impl FnOnce() -> PyResult<Words>) -> PyResult<()> {
        if self.state().is_off {
            return Ok(());
        }
        let words = work().unwrap_or_else(|error| {
            self.state().is_off = true;
            Some(format!("not observing PyTorch any further: {error}"))
        });
        words.map_or(Ok(()), |words| self.say.call1(python, (words,)).map(drop))
    }

    /// Returns whether the observation of the group is ending.
    fn is_stopping(&self, python: Python<'_>) -> PyResult<bool> {
        self.waiter.getattr(python, intern!(python, "stopping"))?.is_truthy(python)
    }

    fn begin(&self, told: &Bound<'_, PyAny>) -> PyResult<Words> {
        let python = told.py();
        if self.is_stopping(python)? {
            return Ok(None);
        }
        let (at, used) = (monotonic_nanos(), thread_nanos());
        let Some((function, side)) = self.collective(&told.getattr(intern!(python, "name"))?)? else {
            return Ok(None);
        };
        let tensors = told.getattr(match side {
            Side::Inputs => intern!(python, "input_tensors"),
            Side::Outputs => intern!(python, "output_tensors"),
        })?;
        let mut bytes = 0;
        for tensor in tensors.try_iter()? {
            let tensor = tensor?;
            if !tensor.getattr(intern!(python, "is_cpu"))?.is_truthy()? {
                return Ok(Some("not observing collectives of gloo on tensors in device memory".into()));
            }
            bytes += payload(&tensor)?;
        }
        if reductions::reports(self.group, function, bytes) {
            return Ok(None);
        }
        let id = told.getattr(intern!(python, "op_id"))?.extract()?;
        let spent = thread_nanos() - used;
        let mut state = self.state();
        // Operations that failed never reach `issue`.
        if state.issuing.len() == MOST_ISSUING {
            state.issuing.clear();
        }
        state.issuing.insert(id, Issuing { at, function, bytes, spent });
        Ok(None)
    }

    /// Returns the code of a collective and whose bytes count; `None` for other operations. `name` is PyTorch's enum.
    fn collective(&self, name: &Bound<'_, PyAny>) -> PyResult<Option<(u8, Side)>> {
        let number: i64 = name.call_method0(intern!(name.py(), "__int__"))?.extract()?;
        if let Some(collectives) = &self.state().collectives {
            return Ok(collectives.get(&number).copied());
        }
        let members = name.get_type().getattr("__members__")?;
        let members = members.cast::<PyMapping>()?;
        let mut collectives = HashMap::new();
        for (name, function, side) in COLLECTIVES {
            if members.contains(name)? {
                let number = members.get_item(name)?.call_method0("__int__")?.extract()?;
                collectives.insert(number, (function, side));
            }
        }
        let found = collectives.get(&number).copied();
        self.state().collectives = Some(collectives);
        Ok(found)
    }

    fn issue(&self, told: &Bound<'_, PyAny>) -> PyResult<Words> {
        if self.state().issuing.is_empty() {
            return Ok(None);
        }
        let (python, used) = (told.py(), thread_nanos());
        let id: u64 = told.getattr(intern!(python, "op_id"))?.extract()?;
        let Some(Issuing { at, function, bytes, spent }) = self.state().issuing.remove(&id) else {
            return Ok(None);
        };
        let work = told.getattr(intern!(python, "work"))?;
        if work.is_none() {
            return Ok(None);
        }
        // Without a future, waiting is a part of the operation, and only the job may do it. It does so at once if the
        // operation is synchronous.
        let is_of_the_job = match work.call_method0(intern!(python, "get_future")) {
            Err(error) if error.is_instance_of::<PyRuntimeError>(python) => true,
            future => future.map(|_| false)?,
        };
        if is_of_the_job && told.getattr(intern!(python, "async_op"))?.is_truthy()? {
            let name = told.getattr("name")?.getattr("name")?;
            return Ok(Some(format!(
                "not observing {name} in the background: PyTorch does not report its end"
            )));
        }
        let spent = (spent + thread_nanos() - used).max(0).unsigned_abs();
        let collective = (self.agent.issued)(self.group, function, bytes, at, spent);
        if collective != 0 && !self.is_stopping(python)? {
            if is_of_the_job {
                self.append.call1(python, ((self.group, collective, work),))?;
            } else {
                self.put.call1(python, ((collective, work),))?;
            }
        }
        Ok(None)
    }
}

/// Returns the bytes of a tensor. Those of a sparse one, which refuses to name them, are unknown: 0. They would be those of
/// its indices and values, which differ from step to step, and a step is recognized by the bytes of its collectives.
fn payload(tensor: &Bound<'_, PyAny>) -> PyResult<u64> {
    match tensor.getattr(intern!(tensor.py(), "nbytes")) {
        Err(error) if error.is_instance_of::<PyRuntimeError>(tensor.py()) => Ok(0),
        bytes => bytes?.extract(),
    }
}
