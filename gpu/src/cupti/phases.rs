//! The phases of a step in which kernels were launched.
//!
//! During a burst, a thread tells CUPTI its current phase, and CUPTI writes the phase of every call (external correlation).
//! CUPTI does so only while it records all calls of the driver and of the runtime. It accepts the request to record launches
//! alone (`cuptiActivityEnableDriverApi`), but then it records no calls and no phases (CUDA 13.0 on an H100).

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
/// The records that phases need. cuBLAS and NCCL launch through the runtime, and their kernels are correlated with its call.
const KINDS: [u32; 3] = [kind::DRIVER, kind::RUNTIME, kind::EXTERNAL_CORRELATION];

#[derive(Clone, Copy)]
struct Functions {
    push: unsafe extern "C" fn(c_uint, u64) -> c_uint,
    pop: unsafe extern "C" fn(c_uint, *mut u64) -> c_uint,
}

/// The functions of the CUPTI that the first burst used, which stays loaded. `None` inside if it lacks them.
static FUNCTIONS: OnceLock<Option<Functions>> = OnceLock::new();
static UNDER_WAY: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether this thread has pushed a phase to CUPTI.
    static SAID: Cell<bool> = const { Cell::new(false) };
}

fn functions(library: &Library) -> Result<Functions, Absent> {
    // SAFETY: the types are those of cupti_activity.h, the same from CUDA 12.1 to 13.4.
    unsafe {
        Ok(Functions {
            push: library.function("cuptiActivityPushExternalCorrelationId")?,
            pop: library.function("cuptiActivityPopExternalCorrelationId")?,
        })
    }
}

/// Begins the phases of a burst. Returns the kinds of records that the burst must enable in addition; none if this CUPTI
/// does not support phases.
pub(super) fn begin(library: &Library) -> &'static [u32] {
    if FUNCTIONS.get_or_init(|| functions(library).ok()).is_none() {
        return &[];
    }
    UNDER_WAY.store(true, Ordering::Release);
    &KINDS
}

/// Ends the phases of a burst.
pub(super) fn end() {
    UNDER_WAY.store(false, Ordering::Release);
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
pub(super) fn phases_by_correlation(records: &[Record]) -> HashMap<u32, SpanKind> {
    let phase_of = |record: &Record| match record {
        Record::ExternalCorrelation { kind: OURS, id, correlation } => {
            let phase = SpanKind::ALL.into_iter().find(|phase| number(*phase) == *id)?;
            Some((*correlation, phase))
        }
        _ => None,
    };
    records.iter().filter_map(phase_of).collect()
}
