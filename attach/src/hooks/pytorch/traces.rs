//! What the Python package asks and says about traces by PyTorch's profiler.

use std::ffi::{CStr, c_char};
use std::fs::File;
use std::os::fd::BorrowedFd;

use agent::Traced;
use wire::ids::Step;

use crate::{host, marks, traces};

/// A request for a trace.
#[repr(C)]
pub struct TraceAsked {
    /// The number of the request; 0 if there is none.
    number: u64,
    /// The first step.
    first: u64,
    /// The number of steps.
    steps: u64,
    /// The number of the step that begins now.
    now: u64,
}

/// Returns the request for a trace, if there is one.
#[unsafe(no_mangle)]
pub extern "C" fn paceline_pytorch_trace_asked() -> TraceAsked {
    let asked = host::guarded(traces::asked);
    let shown = |asked: wire::request::TraceRequest| TraceAsked {
        number: asked.number,
        first: asked.first.0,
        steps: asked.steps.into(),
        now: marks::updates(),
    };
    asked.map_or(TraceAsked { number: 0, first: 0, steps: 0, now: 0 }, shown)
}

/// Records that the steps of a request are recorded. Writing them takes a while.
#[unsafe(no_mangle)]
pub extern "C" fn paceline_pytorch_trace_recorded(number: u64) {
    host::guarded(|| traces::recorded(number));
}

/// Records that the compressed trace of `steps` steps from `first` on is in the file `file`, which stays the caller's. The
/// profiler held the training thread for `pause` nanoseconds.
#[unsafe(no_mangle)]
pub extern "C" fn paceline_pytorch_traced(number: u64, first: u64, steps: u32, pause: u64, file: i32) {
    host::guarded(|| {
        if file < 0 {
            return traces::answered(number, Err("the trace has no file".into()));
        }
        // SAFETY: the caller keeps the file open during the call.
        let file = unsafe { BorrowedFd::borrow_raw(file) }.try_clone_to_owned();
        let traced = Traced { first: Step(first), steps, pause_nanos: pause };
        let answer = file.map(|file| (traced, File::from(file))).map_err(|error| error.to_string());
        traces::answered(number, answer);
    });
}

/// Records the reason why there is no trace. A text that is not UTF-8 is replaced by a general reason.
///
/// # Safety
/// `reason` must be a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn paceline_pytorch_not_traced(number: u64, reason: *const c_char) {
    if reason.is_null() {
        return;
    }
    // SAFETY: the caller guarantees it.
    let reason = unsafe { CStr::from_ptr(reason) }.to_str().unwrap_or("the trace failed");
    host::guarded(|| traces::answered(number, Err(reason.to_owned())));
}
