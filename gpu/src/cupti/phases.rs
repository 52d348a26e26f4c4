//! The phases of a step in which kernels were launched.
//!
//! During a burst, a thread tells CUPTI its current phase, and CUPTI adds the phase to the record of every launch
//! (external correlation). This requires records of launches. CUPTI of CUDA 12.8 can record launches alone. CUPTI of
//! CUDA 12.1 can only record all calls, including the frequent queries of events; with it, kernels have no phase.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::c_uint;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use wire::event::SpanKind;

use super::records::{Record, kind};
use crate::library::{Absent, Library};

/// `CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2`. PyTorch's profiler uses the two kinds before it.
pub(super) const OURS: c_uint = 5;
/// `CUPTI_DRIVER_TRACE_CBID_` of `cuLaunchKernel` and `cuLaunchKernelEx`, each also with a default stream per thread.
pub(super) const DRIVER_LAUNCHES: [(&str, c_uint); 4] = [
    ("CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel", 307),
    ("CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz", 442),
    ("CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx", 652),
    ("CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz", 653),
];
/// `CUPTI_RUNTIME_TRACE_CBID_` of the same functions in the CUDA runtime. cuBLAS and NCCL launch with them, and their
/// kernels are correlated with the runtime's call.
pub(super) const RUNTIME_LAUNCHES: [(&str, c_uint); 4] = [
    ("CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000", 211),
    ("CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_ptsz_v7000", 214),
    ("CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_v11060", 430),
    ("CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_ptsz_v11060", 431),
];
/// The runtime's launches in programs that were built with CUDA 13 or later.
pub(super) const RUNTIME_LAUNCHES_13: [(&str, c_uint); 2] = [
    ("CUPTI_RUNTIME_TRACE_CBID___cudaLaunchKernel_v13000", 505),
    ("CUPTI_RUNTIME_TRACE_CBID___cudaLaunchKernel_ptsz_v13000", 506),
];

type RecordCall = unsafe extern "C" fn(c_uint, u8) -> c_uint;

#[derive(Clone, Copy)]
struct Functions {
    push: unsafe extern "C" fn(c_uint, u64) -> c_uint,
    pop: unsafe extern "C" fn(c_uint, *mut u64) -> c_uint,
    record_driver: RecordCall,
    record_runtime: RecordCall,
}

impl Functions {
    /// Enables or disables the records of launches. CUPTI refuses only those functions that its release lacks.
    fn record_launches(&self, yes: bool) {
        let runtimes = RUNTIME_LAUNCHES
            .into_iter()
            .chain(RUNTIME_LAUNCHES_13)
            .map(|(_, call)| (self.record_runtime, call));
        for (record, call) in
            DRIVER_LAUNCHES.map(|(_, call)| (self.record_driver, call)).into_iter().chain(runtimes)
        {
            // SAFETY: no pointer is passed.
            let _refused = unsafe { record(call, yes.into()) };
        }
    }
}

/// The functions of the CUPTI that the first burst used, which stays loaded. `None` inside if it lacks them.
static FUNCTIONS: OnceLock<Option<Functions>> = OnceLock::new();
static UNDER_WAY: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether this thread has pushed a phase to CUPTI.
    static SAID: Cell<bool> = const { Cell::new(false) };
}

fn functions(library: &Library) -> Result<Functions, Absent> {
    // SAFETY: the types are those of cupti_activity.h, the same from CUDA 12.8 to 13.4.
    unsafe {
        Ok(Functions {
            push: library.function("cuptiActivityPushExternalCorrelationId")?,
            pop: library.function("cuptiActivityPopExternalCorrelationId")?,
            record_driver: library.function("cuptiActivityEnableDriverApi")?,
            record_runtime: library.function("cuptiActivityEnableRuntimeApi")?,
        })
    }
}

/// Begins the phases of a burst. Returns the kind of record that the burst must enable in addition, or `None` if this
/// CUPTI does not support phases.
pub(super) fn begin(library: &Library) -> Option<u32> {
    let functions = (*FUNCTIONS.get_or_init(|| functions(library).ok()))?;
    functions.record_launches(true);
    UNDER_WAY.store(true, Ordering::Release);
    Some(kind::EXTERNAL_CORRELATION)
}

/// Ends the phases of a burst.
pub(super) fn end() {
    if UNDER_WAY.swap(false, Ordering::AcqRel)
        && let Some(Some(functions)) = FUNCTIONS.get()
    {
        functions.record_launches(false);
    }
}

/// Notes that the calling thread enters a phase, or leaves the phases. Outside of bursts this costs one branch.
pub fn enter(phase: Option<SpanKind>) {
    let (is_under_way, said) = (UNDER_WAY.load(Ordering::Acquire), SAID.get());
    if !is_under_way && !said {
        return;
    }
    let Some(Some(functions)) = FUNCTIONS.get() else { return };
    if said {
        // SAFETY: CUPTI allows a null pointer for the popped id.
        let _nothing_left = unsafe { (functions.pop)(OURS, ptr::null_mut()) };
    }
    let phase = phase.filter(|_| is_under_way);
    // SAFETY: no pointer is passed.
    SAID.set(phase.is_some_and(|phase| unsafe { (functions.push)(OURS, number(phase)) == 0 }));
}

fn number(phase: SpanKind) -> u64 {
    phase as u64 + 1
}

/// Returns the phases of launches, by CUPTI's correlation id.
pub(super) fn by_correlation(records: &[Record]) -> HashMap<u32, SpanKind> {
    let phase_of = |record: &Record| match record {
        Record::ExternalCorrelation { kind: OURS, id, correlation } => {
            let phase = SpanKind::ALL.into_iter().find(|phase| number(*phase) == *id)?;
            Some((*correlation, phase))
        }
        _ => None,
    };
    records.iter().filter_map(phase_of).collect()
}
