//! NVML, the driver's management library, which reports the state of a device independently of any job.

pub mod sampler;

use std::ffi::OsStr;
use std::path::Path;

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use serde::Serialize;

/// The file name of NVML. A driver without the toolkit has only this name.
const FILE: &str = "libnvidia-ml.so.1";

/// The reason why NVML cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum NoNvml {
    /// The library was not found.
    #[error("NVML is not on this machine: {why}")]
    NotFound {
        /// The loader's error.
        why: String,
    },
    /// The library is installed, but the kernel module is not loaded.
    #[error("NVML is installed, but the driver's kernel module is not loaded")]
    NoKernelModule,
    /// This user has no permission.
    #[error("NVML refuses this user: /dev/nvidiactl must be readable and writable")]
    NotPermitted,
    /// Any other error.
    #[error("NVML does not start: {why}")]
    Refused {
        /// NVML's error.
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

/// The facts about NVML that are reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NvmlFacts {
    /// The release of the driver, such as 580.65.06.
    pub driver: String,
    /// The version of NVML.
    pub version: String,
    /// The number of devices, regardless of `CUDA_VISIBLE_DEVICES`.
    pub devices: u32,
}

/// Finds NVML.
///
/// # Errors
/// Returns an error if NVML is missing or does not start.
pub fn find() -> Result<NvmlFacts, NoNvml> {
    let nvml = open(None)?;
    Ok(NvmlFacts {
        driver: nvml.sys_driver_version()?,
        version: nvml.sys_nvml_version()?,
        devices: nvml.device_count()?,
    })
}

/// Opens NVML from `file`, or by the loader if there is none.
fn open(file: Option<&Path>) -> Result<Nvml, NoNvml> {
    Ok(Nvml::builder().lib_path(file.map_or(OsStr::new(FILE), Path::as_os_str)).init()?)
}
