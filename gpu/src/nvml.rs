//! NVML, the driver's management library: what a device does at the moment, apart from any job.

pub mod sampler;

use std::ffi::OsStr;
use std::path::Path;

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use serde::Serialize;

/// A driver without its toolkit has this name only.
const FILE: &str = "libnvidia-ml.so.1";

/// Why there is no NVML.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum NoNvml {
    /// There is no library.
    #[error("NVML is not on this machine: {why}")]
    NotFound {
        /// What the loader says.
        why: String,
    },
    /// The library is there, the kernel's part is not.
    #[error("NVML is here and the driver's kernel module is not loaded")]
    NoKernelModule,
    /// This user may not ask.
    #[error("NVML refuses this user: /dev/nvidiactl must be readable and writable")]
    NotPermitted,
    /// Any other answer.
    #[error("NVML does not start: {why}")]
    Refused {
        /// What NVML says.
        why: String,
    },
}

impl From<NvmlError> for NoNvml {
    fn from(error: NvmlError) -> Self {
        match error {
            NvmlError::LibloadingError(error) => Self::NotFound { why: error.to_string() },
            NvmlError::DriverNotLoaded => Self::NoKernelModule,
            NvmlError::NoPermission => Self::NotPermitted,
            other => Self::Refused { why: other.to_string() },
        }
    }
}

/// What there is to tell of NVML.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NvmlFacts {
    /// The driver's release, such as 580.65.06.
    pub driver: String,
    /// NVML's own.
    pub version: String,
    /// Devices it sees, whatever `CUDA_VISIBLE_DEVICES` says.
    pub devices: u32,
}

/// Finds NVML.
///
/// # Errors
/// When it is not there or does not start.
pub fn find() -> Result<NvmlFacts, NoNvml> {
    let nvml = open(None)?;
    Ok(NvmlFacts {
        driver: nvml.sys_driver_version()?,
        version: nvml.sys_nvml_version()?,
        devices: nvml.device_count()?,
    })
}

/// NVML from a file, or the loader's.
fn open(file: Option<&Path>) -> Result<Nvml, NoNvml> {
    Ok(Nvml::builder().lib_path(file.map_or(OsStr::new(FILE), Path::as_os_str)).init()?)
}
