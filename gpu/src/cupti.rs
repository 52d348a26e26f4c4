//! CUPTI: which one, whether its clock is the host's, and what it records.

pub mod burst;
pub mod records;

use std::ffi::c_uint;

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::library::{Absent, Library, Origin, Wanted};

/// The job's own must be used, which is mapped already or lies beside its NCCL.
const WANTED: Wanted = Wanted {
    name: "CUPTI",
    files: &["libcupti.so.13", "libcupti.so.12"],
    variable: Some("PACELINE_CUPTI"),
    packages: &["nvidia/cu13/lib", "nvidia/cuda_cupti/lib"],
};
/// Readings of which the tightest counts.
const READINGS: usize = 16;

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

fn clock_is_realtime(library: &Library) -> Result<bool, NoCupti> {
    // SAFETY: the type is that of cupti_activity.h: one integer is written.
    let get_time =
        unsafe { library.function::<unsafe extern "C" fn(*mut u64) -> c_uint>("cuptiGetTimestamp")? };
    let mut is_realtime = false;
    for _ in 0..READINGS {
        let mut time = 0;
        let before = realtime_nanos();
        // SAFETY: as above.
        check("cuptiGetTimestamp", unsafe { get_time(&raw mut time) })?;
        // One reading within its bracket is proof: another clock would be off by years, not by microseconds.
        is_realtime |= (before..=realtime_nanos()).contains(&time);
    }
    Ok(is_realtime)
}

fn check(function: &'static str, code: c_uint) -> Result<(), NoCupti> {
    match code {
        0 => Ok(()),
        999 => Err(NoCupti::NeedsDriver),
        code => Err(NoCupti::Refused { function, code }),
    }
}

fn realtime_nanos() -> u64 {
    let now = clock_gettime(ClockId::Realtime);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}
