//! All that one machine has for observing GPU jobs, with a reason for whatever is not there.
//!
//! A probe starts nothing and changes nothing: no context on a device, no subscription, no profiler.

use std::env;
use std::fs;

use serde::Serialize;

use crate::cupti::{self, CuptiFacts, NoCupti};
use crate::driver::{Driver, DriverFacts, NoDriver};
use crate::nccl::{self, NcclFacts, NoNccl};
use crate::nvml::{self, NoNvml, NvmlFacts};

/// Variables by which a tool makes itself the one observer of a process.
const HOLDERS: [(&str, &str); 4] = [
    ("NCCL_PROFILER_PLUGIN", "NCCL loads one profiler"),
    ("NVTX_INJECTION64_PATH", "NVTX has one receiver"),
    ("CUDA_INJECTION64_PATH", "CUDA starts one library"),
    ("NCCL_NVTX_DISABLE", "NCCL's calls are not in NVTX"),
];
/// Programs that hold the performance counters or CUPTI of the processes they watch.
const PROFILERS: [&str; 5] = ["nsys", "ncu", "nv-hostengine", "dcgmproftester", "nsys-agent"];

/// What is there, or why it is not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Found<T, R> {
    /// It is there.
    Present(T),
    /// It is not.
    Absent {
        /// For programs.
        #[serde(flatten)]
        reason: R,
        /// For people.
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
    /// What is there.
    pub fn present(&self) -> Option<&T> {
        match self {
            Self::Present(facts) => Some(facts),
            Self::Absent { .. } => None,
        }
    }

    /// Why it is not there.
    pub fn sentence(&self) -> Option<&str> {
        match self {
            Self::Present(_) => None,
            Self::Absent { sentence, .. } => Some(sentence),
        }
    }
}

/// Something that holds what an observer needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Holder {
    /// A variable of the environment, or a process.
    pub what: String,
    /// What it means for observing.
    pub means: String,
}

/// One machine, as this process sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Probe {
    /// libcuda and the devices.
    pub driver: Found<DriverFacts, NoDriver>,
    /// NVML.
    pub nvml: Found<NvmlFacts, NoNvml>,
    /// NCCL.
    pub nccl: Found<NcclFacts, NoNccl>,
    /// CUPTI.
    pub cupti: Found<CuptiFacts, NoCupti>,
    /// Whether only an administrator may read performance counters; `None` without a kernel module. Kernel records
    /// need no counters.
    pub counters_are_restricted: Option<bool>,
    /// Who else observes, or would.
    pub holders: Vec<Holder>,
}

impl Probe {
    /// Asks everything.
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

/// Reads `RmProfilingAdminOnly` of the kernel module's parameters.
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

/// Profilers among the processes of this machine that this user can see.
fn running() -> impl Iterator<Item = Holder> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|process| {
        let pid: u32 = process.file_name().to_str()?.parse().ok()?;
        let name = fs::read_to_string(process.path().join("comm")).ok()?;
        let name = name.trim();
        PROFILERS.contains(&name).then(|| Holder {
            what: format!("{name} (process {pid})"),
            means: "a profiler runs: it may hold CUPTI or the counters of the processes it watches".into(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_answers_everywhere_and_is_json() {
        let probe = Probe::run();
        let json = serde_json::to_value(&probe).expect("it is JSON");
        for part in ["driver", "nvml", "nccl", "cupti"] {
            let status = json[part]["status"].as_str().expect("each part has a status");
            let told = json[part]["sentence"].as_str().is_some_and(|sentence| !sentence.is_empty());
            let reason = json[part]["reason"].as_str().is_some();
            assert!(status == "present" || (status == "absent" && told && reason), "{part}: {json}");
        }
    }

    #[test]
    fn the_modules_parameters_say_who_may_read_counters() {
        assert_eq!(restricted("EnableMSI: 1\nRmProfilingAdminOnly: 1\n"), Some(true));
        assert_eq!(restricted("RmProfilingAdminOnly: 0\n"), Some(false));
        assert_eq!(restricted("EnableMSI: 1\n"), None);
    }
}
