//! Which phase of a step kernels were launched in: while a burst is recorded, a thread says what it is doing, and CUPTI puts
//! that before the record of every launch (external correlation).
//!
//! Launches must be recorded for that. The CUPTI of CUDA 12.8 can be asked for these calls alone, that of 12.1 cannot; there
//! kernels have no phase, since the driver is asked for events all the time, and each call would be a record.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::c_uint;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use wire::event::SpanKind;

use super::records::{Record, kind};
use crate::library::{Absent, Library};

/// `CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2`: PyTorch's profiler uses the two before it.
pub(super) const OURS: c_uint = 5;
/// `CUPTI_DRIVER_TRACE_CBID_`: `cuLaunchKernel`, `cuLaunchKernelEx`, and both with a default stream for each thread.
pub(super) const DRIVER_LAUNCHES: [(&str, c_uint); 4] = [
    ("CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel", 307),
    ("CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz", 442),
    ("CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx", 652),
    ("CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz", 653),
];
/// `CUPTI_RUNTIME_TRACE_CBID_`: the same of the CUDA runtime, by which cuBLAS and NCCL launch: their kernels belong to
/// the runtime's call.
pub(super) const RUNTIME_LAUNCHES: [(&str, c_uint); 4] = [
    ("CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000", 211),
    ("CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_ptsz_v7000", 214),
    ("CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_v11060", 430),
    ("CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_ptsz_v11060", 431),
];
/// As the runtime calls it in programs that were built with CUDA 13 or later.
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
    /// Every launch becomes a record, or none. Where a release does not have a call, CUPTI refuses it alone.
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

/// Of the CUPTI that the first burst used, which stays mapped.
static FUNCTIONS: OnceLock<Option<Functions>> = OnceLock::new();
static UNDER_WAY: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether this thread has said what it is doing.
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

/// A burst begins: the kind of record that it needs beside those of kernels, or `None` where this CUPTI has no such.
pub(super) fn begin(library: &Library) -> Option<u32> {
    let functions = (*FUNCTIONS.get_or_init(|| functions(library).ok()))?;
    functions.record_launches(true);
    UNDER_WAY.store(true, Ordering::Release);
    Some(kind::EXTERNAL_CORRELATION)
}

/// The burst ends.
pub(super) fn end() {
    if UNDER_WAY.swap(false, Ordering::AcqRel)
        && let Some(Some(functions)) = FUNCTIONS.get()
    {
        functions.record_launches(false);
    }
}

/// The calling thread begins a phase, or is in none. Without a burst under way this costs a branch.
pub fn enter(phase: Option<SpanKind>) {
    let (is_under_way, said) = (UNDER_WAY.load(Ordering::Acquire), SAID.get());
    if !is_under_way && !said {
        return;
    }
    let Some(Some(functions)) = FUNCTIONS.get() else { return };
    if said {
        // SAFETY: the number that was said may be left unread.
        let _nothing_left = unsafe { (functions.pop)(OURS, ptr::null_mut()) };
    }
    let phase = phase.filter(|_| is_under_way);
    // SAFETY: no pointer is passed.
    SAID.set(phase.is_some_and(|phase| unsafe { (functions.push)(OURS, number(phase)) == 0 }));
}

fn number(phase: SpanKind) -> u64 {
    phase as u64 + 1
}

/// The phases of launches, by CUPTI's number of the call.
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
