//! A probe of all libraries that observing GPU jobs needs, with a reason for each that is missing.
//!
//! A probe changes nothing: it creates no context on a device, subscribes to nothing and starts no profiler.

use std::env;
use std::fs;

use serde::Serialize;

use crate::cupti::{self, CuptiFacts, NoCupti};
use crate::driver::{Driver, DriverFacts, NoDriver};
use crate::nccl::{self, NcclFacts, NoNccl};
use crate::nvml::{self, NoNvml, NvmlFacts};

/// The variables by which a tool becomes the only observer of a process, or prevents observation, and what each means.
const HOLDERS: [(&str, &str); 4] = [
    ("NCCL_PROFILER_PLUGIN", "NCCL loads only one profiler"),
    ("NVTX_INJECTION64_PATH", "NVTX has only one receiver"),
    ("CUDA_INJECTION64_PATH", "CUDA loads only one injection library"),
    ("NCCL_NVTX_DISABLE", "NCCL does not mark its calls with NVTX"),
];
/// The programs that hold the performance counters or CUPTI of the processes that they observe.
const PROFILERS: [&str; 5] = ["nsys", "ncu", "nv-hostengine", "dcgmproftester", "nsys-agent"];

/// The facts about a library, or the reason why it is missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Found<T, R> {
    /// The library is present.
    Present(T),
    /// The library is missing or does not work.
    Absent {
        /// The reason, for programs.
        #[serde(flatten)]
        reason: R,
        /// The reason as a sentence, for users.
        sentence: String,
    },
}

impl<T, R: std::error::Error> From<Result<T, R>> for Found<T, R> {
    fn from(result: Result<T, R>) -> Self {
        match result {
            Ok(facts) => Self::Present(facts),
            Err(reason) => Self::Absent { sentence: reason.to_string(), reason },
        }
    }
}

impl<T, R> Found<T, R> {
    /// Returns the facts if the library is present.
    pub fn present(&self) -> Option<&T> {
        match self {
            Self::Present(facts) => Some(facts),
            Self::Absent { .. } => None,
        }
    }

    /// Returns the reason as a sentence if the library is missing.
    pub fn sentence(&self) -> Option<&str> {
        match self {
            Self::Present(_) => None,
            Self::Absent { sentence, .. } => Some(sentence),
        }
    }
}

/// A tool that holds an interface which observation needs, or a variable that disables one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Holder {
    /// The environment variable or the process.
    pub what: String,
    /// The consequence for observation.
    pub means: String,
}

/// The results of a probe of this machine, as this process sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Probe {
    /// The driver's library, libcuda, and the devices.
    pub driver: Found<DriverFacts, NoDriver>,
    /// NVML.
    pub nvml: Found<NvmlFacts, NoNvml>,
    /// NCCL.
    pub nccl: Found<NcclFacts, NoNccl>,
    /// CUPTI.
    pub cupti: Found<CuptiFacts, NoCupti>,
    /// Whether only an administrator may read performance counters. `None` without the kernel module. Kernel records
    /// need no counters.
    pub counters_are_restricted: Option<bool>,
    /// The other observers, and the settings that prevent observation.
    pub holders: Vec<Holder>,
}

impl Probe {
    /// Probes this machine.
    #[must_use]
    pub fn run() -> Self {
        Self {
            driver: Driver::open().map(|driver| driver.facts()).into(),
            nvml: nvml::find().into(),
            nccl: nccl::find().into(),
            cupti: cupti::find().into(),
            counters_are_restricted: fs::read_to_string("/proc/driver/nvidia/params")
                .ok()
                .and_then(|params| restricted(&params)),
            holders: named_in_environment().chain(running()).collect(),
        }
    }
}

/// Reads `RmProfilingAdminOnly` from the kernel module's parameters.
fn restricted(params: &str) -> Option<bool> {
    let line = params.lines().find_map(|line| line.strip_prefix("RmProfilingAdminOnly:"))?;
    Some(line.trim() != "0")
}

fn named_in_environment() -> impl Iterator<Item = Holder> {
    HOLDERS.iter().filter_map(|&(variable, means)| {
        let value = env::var_os(variable).filter(|value| !value.is_empty())?;
        Some(Holder { what: format!("{variable}={}", value.to_string_lossy()), means: means.into() })
    })
}

/// Returns the profilers among the processes that this user can see.
fn running() -> impl Iterator<Item = Holder> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|process| {
        let pid: u32 = process.file_name().to_str()?.parse().ok()?;
        let name = fs::read_to_string(process.path().join("comm")).ok()?;
        let name = name.trim();
        PROFILERS.contains(&name).then(|| Holder {
            what: format!("{name} (process {pid})"),
            means: "a profiler is running: it may hold CUPTI or the counters of processes it observes".into(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_succeeds_on_any_machine_and_serializes_to_json() {
        let probe = Probe::run();
        let json = serde_json::to_value(&probe).expect("a probe serializes to JSON");
        for part in ["driver", "nvml", "nccl", "cupti"] {
            let status = json[part]["status"].as_str().expect("each part has a status");
            let has_sentence = json[part]["sentence"].as_str().is_some_and(|sentence| !sentence.is_empty());
            let reason = json[part]["reason"].as_str().is_some();
            assert!(status == "present" || (status == "absent" && has_sentence && reason), "{part}: {json}");
        }
    }

    #[test]
    fn the_restriction_of_counters_is_read_from_the_modules_parameters() {
        assert_eq!(restricted("EnableMSI: 1\nRmProfilingAdminOnly: 1\n"), Some(true));
        assert_eq!(restricted("RmProfilingAdminOnly: 0\n"), Some(false));
        assert_eq!(restricted("EnableMSI: 1\n"), None);
    }
}
