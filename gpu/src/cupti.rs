//! CUPTI: finds the library, checks its clock and declares its records.

pub mod burst;
pub mod on_demand;
pub mod phases;
pub mod records;

use std::ffi::c_uint;

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::library::{Absent, Library, LibraryNames, Origin};
use records::kind;

/// CUPTI must be the job's own, which the process has already loaded or which lies next to the job's NCCL.
const WANTED: LibraryNames = LibraryNames {
    name: "CUPTI",
    files: &["libcupti.so.13", "libcupti.so.12"],
    variable: Some("PACELINE_CUPTI"),
    packages: &["nvidia/cu13/lib", "nvidia/cuda_cupti/lib"],
};
/// The number of readings of the clock, of which one within its bracket is enough.
const READINGS: usize = 16;

/// `CUPTI_ERROR_UNKNOWN`
const UNKNOWN: c_uint = 999;

/// Returns the values of CUPTI's headers that this crate relies on, by name. A test compares them with the headers.
#[doc(hidden)]
#[must_use]
pub fn assumptions() -> Vec<(&'static str, u64)> {
    let kinds = [
        ("CUPTI_ACTIVITY_KIND_MEMCPY", kind::MEMCPY),
        ("CUPTI_ACTIVITY_KIND_MEMSET", kind::MEMSET),
        ("CUPTI_ACTIVITY_KIND_DRIVER", kind::DRIVER),
        ("CUPTI_ACTIVITY_KIND_RUNTIME", kind::RUNTIME),
        ("CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", kind::CONCURRENT_KERNEL),
        ("CUPTI_ACTIVITY_KIND_OVERHEAD", kind::OVERHEAD),
        ("CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION", kind::EXTERNAL_CORRELATION),
        ("CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2", phases::OURS),
        ("CUPTI_ERROR_UNKNOWN", UNKNOWN),
        ("CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED", burst::SUBSCRIBED),
        ("CUPTI_ACTIVITY_FLAG_FLUSH_FORCED", burst::FORCED),
    ];
    kinds.into_iter().map(|(name, value)| (name, u64::from(value))).collect()
}

/// The reason why CUPTI cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum NoCupti {
    /// The library cannot be used.
    #[error(transparent)]
    Library {
        /// The reason.
        #[serde(flatten)]
        #[from]
        absent: Absent,
    },
    /// `CUPTI_ERROR_UNKNOWN` from the first call. Since CUDA 13, every call fails without the driver's library. A
    /// device is not needed.
    #[error("CUPTI is installed but does not work without the driver's library, libcuda")]
    NeedsDriver,
    /// A call failed, although it needs no GPU.
    #[error("{function} returned {code} (CUptiResult of cupti_result.h)")]
    Refused {
        /// The function that failed.
        function: &'static str,
        /// CUPTI's code.
        code: c_uint,
    },
}

/// The facts about CUPTI that are reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CuptiFacts {
    /// The path of the library.
    pub path: std::path::PathBuf,
    /// The place in which the library was found.
    pub origin: Origin,
    /// `CUPTI_API_VERSION`.
    pub version: c_uint,
    /// Whether CUPTI's timestamps are of `CLOCK_REALTIME`. They are, unless a tool such as PyTorch's profiler has
    /// registered another clock. Times on another clock cannot be converted.
    pub is_realtime: bool,
}

/// Finds CUPTI and reads its version and the time, which needs no GPU. Subscribes to nothing, because a process has
/// only one subscriber, which may be another tool.
///
/// # Errors
/// Returns an error if there is no usable CUPTI. The error lists the places that were searched.
pub fn find() -> Result<CuptiFacts, NoCupti> {
    let library = Library::open(&WANTED)?;
    // SAFETY: the type is that of cupti_version.h.
    let get_version =
        unsafe { library.function::<unsafe extern "C" fn(*mut c_uint) -> c_uint>("cuptiGetVersion")? };
    let mut version = 0;
    // SAFETY: the call writes one integer to a valid place.
    check("cuptiGetVersion", unsafe { get_version(&raw mut version) })?;
    let is_realtime = clock_is_realtime(&library)?;
    Ok(CuptiFacts { path: library.path.clone(), origin: library.origin, version, is_realtime })
}

/// Returns the time on CUPTI's clock, in nanoseconds.
fn timestamp(library: &Library) -> Result<u64, NoCupti> {
    // SAFETY: the type is that of cupti_activity.h.
    let get_time =
        unsafe { library.function::<unsafe extern "C" fn(*mut u64) -> c_uint>("cuptiGetTimestamp")? };
    let mut time = 0;
    // SAFETY: the call writes one integer to a valid place.
    check("cuptiGetTimestamp", unsafe { get_time(&raw mut time) })?;
    Ok(time)
}

fn clock_is_realtime(library: &Library) -> Result<bool, NoCupti> {
    let mut is_realtime = false;
    for _ in 0..READINGS {
        let before = realtime_nanos();
        let time = timestamp(library)?;
        // One reading within its bracket is sufficient proof, because another clock would be off by years, not
        // microseconds.
        is_realtime |= (before..=realtime_nanos()).contains(&time);
    }
    Ok(is_realtime)
}

fn check(function: &'static str, code: c_uint) -> Result<(), NoCupti> {
    match code {
        0 => Ok(()),
        UNKNOWN => Err(NoCupti::NeedsDriver),
        code => Err(NoCupti::Refused { function, code }),
    }
}

fn realtime_nanos() -> u64 {
    let now = clock_gettime(ClockId::Realtime);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}
