//! The agent's library, loaded from a file: in a job with NCCL, NCCL has loaded the same file, and both share its state.

use std::ffi::{CString, c_char};
use std::path::PathBuf;

use libloading::Library;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::{PyResult, Python, pyclass, pymethods};

/// The functions of `libpaceline_attach.so` for PyTorch. None of them blocks.
#[pyclass(frozen, module = "paceline._native")]
pub struct Agent {
    functions: Functions,
}

/// See `attach/src/hooks/pytorch.rs`.
#[derive(Clone, Copy)]
pub struct Functions {
    group: extern "C" fn(u64, u32, u32) -> i64,
    left: extern "C" fn(i64),
    pub issued: extern "C" fn(i64, u8, u64, i64, u64) -> u64,
    ended: extern "C" fn(i64, u64, i64, u64),
    updated: extern "C" fn(),
    updated_by_several: extern "C" fn(),
    pub phase: extern "C" fn(u8, i64, i64, i64),
    pub device_phase: extern "C" fn() -> i64,
    pub device_begins: extern "C" fn(i64, usize),
    pub device_ends: extern "C" fn(i64, u8, usize),
    pub device_is_begun: extern "C" fn(i64) -> bool,
    software: unsafe extern "C" fn(*const c_char, *const c_char),
    label: unsafe extern "C" fn(*const c_char, *const c_char),
    line: unsafe extern "C" fn(u8, *const c_char, *const c_char, u32),
    fails: unsafe extern "C" fn(*const c_char),
    layout: unsafe extern "C" fn(*const c_char),
    workload: unsafe extern "C" fn(*const c_char),
    resumed: extern "C" fn(u64),
    memory: unsafe extern "C" fn(u32, *const u64),
    updates: extern "C" fn() -> u64,
    exits: extern "C" fn(i32),
    observes_gloo: extern "C" fn() -> bool,
    reduces: unsafe extern "C" fn(i64, *const u64, usize),
    reduced: unsafe extern "C" fn(*const i64, usize),
    trace_asked: extern "C" fn() -> TraceAsked,
    trace_recorded: extern "C" fn(u64),
    traced: extern "C" fn(u64, u64, u32, u64, i32),
    not_traced: unsafe extern "C" fn(u64, *const c_char),
}

/// A request for a trace: its number, the first step, the number of steps, and the step that begins now.
#[derive(Clone, Copy)]
#[repr(C)]
struct TraceAsked {
    number: u64,
    first: u64,
    steps: u64,
    now: u64,
}

impl Functions {
    #[allow(unsafe_code)]
    fn load(library: &Library) -> Result<Self, libloading::Error> {
        // SAFETY: the types are those of the functions in `attach/src/hooks/pytorch.rs`. The library is never unloaded.
        unsafe {
            Ok(Self {
                group: *library.get(b"paceline_pytorch_group\0")?,
                left: *library.get(b"paceline_pytorch_left\0")?,
                issued: *library.get(b"paceline_pytorch_issued\0")?,
                ended: *library.get(b"paceline_pytorch_ended\0")?,
                updated: *library.get(b"paceline_pytorch_updated\0")?,
                updated_by_several: *library.get(b"paceline_pytorch_updated_by_several\0")?,
                phase: *library.get(b"paceline_pytorch_phase\0")?,
                device_phase: *library.get(b"paceline_pytorch_device_phase\0")?,
                device_begins: *library.get(b"paceline_pytorch_device_begins\0")?,
                device_ends: *library.get(b"paceline_pytorch_device_ends\0")?,
                device_is_begun: *library.get(b"paceline_pytorch_device_is_begun\0")?,
                software: *library.get(b"paceline_pytorch_software\0")?,
                label: *library.get(b"paceline_pytorch_label\0")?,
                line: *library.get(b"paceline_pytorch_line\0")?,
                fails: *library.get(b"paceline_pytorch_fails\0")?,
                layout: *library.get(b"paceline_pytorch_layout\0")?,
                workload: *library.get(b"paceline_pytorch_workload\0")?,
                resumed: *library.get(b"paceline_pytorch_resumed\0")?,
                memory: *library.get(b"paceline_pytorch_memory\0")?,
                updates: *library.get(b"paceline_pytorch_updates\0")?,
                exits: *library.get(b"paceline_pytorch_exits\0")?,
                observes_gloo: *library.get(b"paceline_pytorch_observes_gloo\0")?,
                reduces: *library.get(b"paceline_pytorch_reduces\0")?,
                reduced: *library.get(b"paceline_pytorch_reduced\0")?,
                trace_asked: *library.get(b"paceline_pytorch_trace_asked\0")?,
                trace_recorded: *library.get(b"paceline_pytorch_trace_recorded\0")?,
                traced: *library.get(b"paceline_pytorch_traced\0")?,
                not_traced: *library.get(b"paceline_pytorch_not_traced\0")?,
            })
        }
    }

    /// Records that a backward pass begins. A group reduces its buckets, whose sizes are `bytes`.
    #[allow(unsafe_code)]
    pub fn reduces(&self, group: i64, bytes: &[u64]) {
        // SAFETY: the pointer and the length are those of a slice, which the function does not keep.
        unsafe { (self.reduces)(group, bytes.as_ptr(), bytes.len()) }
    }

    /// Records that all buckets are reduced, and when they were handed to gloo.
    #[allow(unsafe_code)]
    pub fn reduced(&self, launches: &[i64]) {
        // SAFETY: as above.
        unsafe { (self.reduced)(launches.as_ptr(), launches.len()) }
    }
}

impl Agent {
    /// Returns the library's functions.
    pub fn functions(&self) -> Functions {
        self.functions
    }
}

#[pymethods]
impl Agent {
    /// Loads the library. Raises `OSError` if it cannot be loaded or is of another version.
    #[new]
    #[allow(unsafe_code)]
    fn new(library: PathBuf) -> PyResult<Self> {
        let failed = |error: libloading::Error| PyOSError::new_err(format!("{}: {error}", library.display()));
        // SAFETY: the library's initializers only register its own state.
        let loaded = unsafe { Library::new(&library) }.map_err(failed)?;
        let functions = Functions::load(&loaded).map_err(failed)?;
        // Its threads run until the process ends.
        std::mem::forget(loaded);
        Ok(Self { functions })
    }

    /// Registers a process group. Returns its index, or a negative value if it is not observed.
    fn group(&self, number: u64, size: u32, rank: u32) -> i64 {
        (self.functions.group)(number, size, rank)
    }

    /// Removes a process group.
    fn left(&self, group: i64) {
        (self.functions.left)(group);
    }

    /// Records that a collective of a group was issued at `at`. Returns its number, or 0 if its end is not observed.
    fn issued(&self, group: i64, function: u8, bytes: u64, at: i64, spent: u64) -> u64 {
        (self.functions.issued)(group, function, bytes, at, spent)
    }

    /// Records that a collective of a group ended at `at`. The caller has spent `spent` nanoseconds on it.
    fn ended(&self, group: i64, collective: u64, at: i64, spent: u64) {
        (self.functions.ended)(group, collective, at, spent);
    }

    /// Records that an optimizer updated its parameters.
    fn updated(&self) {
        (self.functions.updated)();
    }

    /// Records that the next update is by another optimizer than those before it.
    fn updated_by_several(&self) {
        (self.functions.updated_by_several)();
    }

    /// Records the error that is about to end the process.
    #[allow(unsafe_code)]
    fn fails(&self, error: &str) -> PyResult<()> {
        let error = c_string(error)?;
        // SAFETY: it is a C string, and the function does not keep it.
        unsafe { (self.functions.fails)(error.as_ptr()) };
        Ok(())
    }

    /// Returns the request for a trace as (number, first step, number of steps, step that begins now), or None.
    fn trace_asked(&self) -> Option<(u64, u64, u64, u64)> {
        let TraceAsked { number, first, steps, now } = (self.functions.trace_asked)();
        (number != 0).then_some((number, first, steps, now))
    }

    /// Records that the steps of a request are recorded and being written.
    fn trace_recorded(&self, number: u64) {
        (self.functions.trace_recorded)(number);
    }

    /// Hands over the file of a trace, which stays open until this returns.
    fn traced(&self, number: u64, first: u64, steps: u32, pause: u64, file: i32) {
        (self.functions.traced)(number, first, steps, pause, file);
    }

    /// Says why there is no trace.
    #[allow(unsafe_code)]
    fn not_traced(&self, number: u64, reason: &str) -> PyResult<()> {
        let reason = c_string(reason)?;
        // SAFETY: it is a C string, and the function does not keep it.
        unsafe { (self.functions.not_traced)(number, reason.as_ptr()) };
        Ok(())
    }

    /// Reports that the process is about to end by `os._exit`. Sends the remaining records, for five seconds at most.
    fn exits(&self, python: Python<'_>, status: i32) {
        python.detach(|| (self.functions.exits)(status));
    }

    /// Observes the collectives that gloo runs, on behalf of [`crate::reductions::Reductions`]. Returns whether that is
    /// possible.
    fn observes_gloo(&self) -> bool {
        (self.functions.observes_gloo)()
    }

    /// Records the version of a Python package, or of Python itself.
    #[allow(unsafe_code)]
    fn software(&self, name: &str, version: &str) -> PyResult<()> {
        let (name, version) = (c_string(name)?, c_string(version)?);
        // SAFETY: both are C strings, and the function does not keep them.
        unsafe { (self.functions.software)(name.as_ptr(), version.as_ptr()) };
        Ok(())
    }

    /// Records a label of this process's ranks.
    #[allow(unsafe_code)]
    fn label(&self, key: &str, value: &str) -> PyResult<()> {
        let (key, value) = (c_string(key)?, c_string(value)?);
        // SAFETY: both are C strings, and the function does not keep them.
        unsafe { (self.functions.label)(key.as_ptr(), value.as_ptr()) };
        Ok(())
    }

    /// Records that a line of the job's own code leads to a phase.
    #[allow(unsafe_code)]
    fn line(&self, phase: u8, function: &str, file: &str, line: u32) -> PyResult<()> {
        let (function, file) = (c_string(function)?, c_string(file)?);
        // SAFETY: both are C strings, and the function does not keep them.
        unsafe { (self.functions.line)(phase, function.as_ptr(), file.as_ptr(), line) };
        Ok(())
    }

    /// Records the layout of a DDP module's buckets, as JSON. See `wire/src/layout.rs` for its fields.
    #[allow(unsafe_code)]
    fn layout(&self, json: &str) -> PyResult<()> {
        let json = c_string(json)?;
        // SAFETY: it is a C string, and the function does not keep it.
        unsafe { (self.functions.layout)(json.as_ptr()) };
        Ok(())
    }

    /// Records the workload of this process's ranks, as JSON. See `wire/src/workload.rs` for its fields.
    #[allow(unsafe_code)]
    fn workload(&self, json: &str) -> PyResult<()> {
        let json = c_string(json)?;
        // SAFETY: it is a C string, and the function does not keep it.
        unsafe { (self.functions.workload)(json.as_ptr()) };
        Ok(())
    }

    /// Records that the job resumes from a checkpoint, after which its model has had so many updates.
    fn resumed(&self, step: u64) {
        (self.functions.resumed)(step);
    }

    /// Records what PyTorch's allocator counts for the CUDA device of this index: the memory that is allocated, the peak
    /// of it, the memory that is reserved, the inactive part of split blocks, all in bytes, and the numbers of retries and
    /// of out-of-memory errors.
    #[allow(unsafe_code)]
    fn memory(&self, device: u32, values: [u64; 6]) {
        // SAFETY: the pointer is that of six numbers, which the function does not keep.
        unsafe { (self.functions.memory)(device, values.as_ptr()) };
    }

    /// Returns how many updates of optimizers were recorded.
    fn updates(&self) -> u64 {
        (self.functions.updates)()
    }
}

fn c_string(text: &str) -> PyResult<CString> {
    CString::new(text).map_err(|error| PyValueError::new_err(error.to_string()))
}
