//! CUPTI: which one, whether its clock is the host's, and what it records.

pub mod burst;
pub mod on_demand;
pub mod phases;
pub mod records;

use std::ffi::c_uint;

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::library::{Absent, Library, Origin, Wanted};
use records::kind;

/// The job's own must be used, which is mapped already or lies beside its NCCL.
const WANTED: Wanted = Wanted {
    name: "CUPTI",
    files: &["libcupti.so.13", "libcupti.so.12"],
    variable: Some("PACELINE_CUPTI"),
    packages: &["nvidia/cu13/lib", "nvidia/cuda_cupti/lib"],
};
/// Readings of which the tightest counts.
const READINGS: usize = 16;

/// `CUPTI_ERROR_UNKNOWN`
const UNKNOWN: c_uint = 999;

/// What of CUPTI's headers is relied on, by the names that it has there: to be compared with the headers themselves.
#[doc(hidden)]
#[must_use]
pub fn assumptions() -> Vec<(&'static str, u64)> {
    let kinds = [
        ("CUPTI_ACTIVITY_KIND_MEMCPY", kind::MEMCPY),
        ("CUPTI_ACTIVITY_KIND_MEMSET", kind::MEMSET),
        ("CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", kind::CONCURRENT_KERNEL),
        ("CUPTI_ACTIVITY_KIND_OVERHEAD", kind::OVERHEAD),
        ("CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION", kind::EXTERNAL_CORRELATION),
        ("CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2", phases::OURS),
        ("CUPTI_ERROR_UNKNOWN", UNKNOWN),
        ("CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED", burst::SUBSCRIBED),
        ("CUPTI_ACTIVITY_FLAG_FLUSH_FORCED", burst::FORCED),
    ];
    let all = kinds.into_iter().chain(phases::DRIVER_LAUNCHES).chain(phases::RUNTIME_LAUNCHES);
    all.map(|(name, value)| (name, u64::from(value))).collect()
}

/// As [`assumptions`], of what is there from CUDA 13 on.
#[doc(hidden)]
#[must_use]
pub fn assumptions_13() -> Vec<(&'static str, u64)> {
    phases::RUNTIME_LAUNCHES_13.map(|(name, value)| (name, u64::from(value))).to_vec()
}

/// Why there is no CUPTI.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum NoCupti {
    /// There is no library.
    #[error(transparent)]
    Library {
        /// What is wrong with it.
        #[serde(flatten)]
        #[from]
        absent: Absent,
    },
    /// `CUPTI_ERROR_UNKNOWN` to the first question of all: from CUDA 13 on it answers nothing without the driver's
    /// library. A device is not needed.
    #[error("CUPTI is here and says nothing without the driver's library, libcuda")]
    NeedsDriver,
    /// It refuses a question that needs no GPU.
    #[error("{function} answers {code} (CUptiResult of cupti_result.h)")]
    Refused {
        /// Which call.
        function: &'static str,
        /// CUPTI's code.
        code: c_uint,
    },
}

/// What there is to tell of CUPTI.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CuptiFacts {
    /// The file.
    pub path: std::path::PathBuf,
    /// How it was found.
    pub origin: Origin,
    /// `CUPTI_API_VERSION`.
    pub version: c_uint,
    /// Whether its time stamps are `CLOCK_REALTIME`, as they are unless someone registered another clock (PyTorch's
    /// profiler does). Records on another clock cannot be placed.
    pub is_realtime: bool,
}

/// Finds CUPTI and asks for its version and the time, which needs no GPU. It subscribes to nothing: one process has
/// one subscriber, and that may be someone else's.
///
/// # Errors
/// When there is none; the reason says where it was looked for.
pub fn find() -> Result<CuptiFacts, NoCupti> {
    let library = Library::open(&WANTED)?;
    // SAFETY: the type is that of cupti_version.h: one integer is written.
    let get_version =
        unsafe { library.function::<unsafe extern "C" fn(*mut c_uint) -> c_uint>("cuptiGetVersion")? };
    let mut version = 0;
    // SAFETY: as above.
    check("cuptiGetVersion", unsafe { get_version(&raw mut version) })?;
    let is_realtime = clock_is_realtime(&library)?;
    Ok(CuptiFacts { path: library.path.clone(), origin: library.origin, version, is_realtime })
}

/// CUPTI's clock, in nanoseconds.
fn timestamp(library: &Library) -> Result<u64, NoCupti> {
    // SAFETY: the type is that of cupti_activity.h: one integer is written.
    let get_time =
        unsafe { library.function::<unsafe extern "C" fn(*mut u64) -> c_uint>("cuptiGetTimestamp")? };
    let mut time = 0;
    // SAFETY: as above.
    check("cuptiGetTimestamp", unsafe { get_time(&raw mut time) })?;
    Ok(time)
}

fn clock_is_realtime(library: &Library) -> Result<bool, NoCupti> {
    let mut is_realtime = false;
    for _ in 0..READINGS {
        let before = realtime_nanos();
        let time = timestamp(library)?;
        // One reading within its bracket is proof: another clock would be off by years, not by microseconds.
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
