//! `paceline doctor`: what this machine has for observing GPU jobs, and why the rest is missing.

use std::fmt::Write as _;

use clap::Args;
use gpu::cupti::CuptiFacts;
use gpu::driver::DriverFacts;
use gpu::library::Origin;
use gpu::nccl::NcclFacts;
use gpu::nvml::NvmlFacts;
use gpu::probe::{Found, Probe};

use super::print;

/// How to tell it.
#[derive(Debug, Args)]
#[command(
    after_help = "Nothing is started and nothing is changed: no context on a device, no subscription, no profiler. \
    Run it in the job's environment (container, virtual environment, user), since that decides what a job would find.\n\
    PACELINE_NCCL and PACELINE_CUPTI name libraries that are nowhere else."
)]
pub(super) struct DoctorArguments {
    /// Print JSON: each part with its status and, where it is missing, a reason for programs
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &DoctorArguments) -> anyhow::Result<()> {
    let probe = Probe::run();
    if arguments.json {
        return print(&format!("{}\n", serde_json::to_string_pretty(&probe)?));
    }
    print(&text(&probe))
}

fn text(probe: &Probe) -> String {
    let mut out = String::new();
    part(&mut out, "driver", &probe.driver, driver);
    part(&mut out, "nvml", &probe.nvml, |nvml: &NvmlFacts| {
        vec![format!("{}, driver {}, {}", nvml.version, nvml.driver, count(nvml.devices as usize, "device"))]
    });
    part(&mut out, "nccl", &probe.nccl, nccl);
    part(&mut out, "cupti", &probe.cupti, cupti);
    let counters = match probe.counters_are_restricted {
        Some(true) => "for administrators only (NVreg_RestrictProfilingToAdminUsers); kernel times need none",
        Some(false) => "for every user",
        None => "no kernel module says who may read them",
    };
    lines(&mut out, "counters", &[counters.to_owned()]);
    let holders: Vec<String> =
        probe.holders.iter().map(|holder| format!("{}: {}", holder.what, holder.means)).collect();
    let nobody = ["nobody holds what an observer needs".to_owned()];
    lines(&mut out, "others", if holders.is_empty() { &nobody } else { &holders });
    out
}

fn part<T, R>(out: &mut String, name: &str, found: &Found<T, R>, say: impl Fn(&T) -> Vec<String>) {
    match found {
        Found::Present(facts) => lines(out, name, &say(facts)),
        Found::Absent { sentence, .. } => lines(out, name, &[format!("missing: {sentence}")]),
    }
}

/// The first line after the name, the others below it.
fn lines(out: &mut String, name: &str, lines: &[String]) {
    for (at, line) in lines.iter().enumerate() {
        // Writing to a string cannot fail.
        let _infallible = writeln!(out, "{:<9} {line}", if at == 0 { name } else { "" });
    }
}

fn driver(driver: &DriverFacts) -> Vec<String> {
    let head = format!("CUDA {}.{}, {}", driver.cuda.0, driver.cuda.1, place(&driver.path, driver.origin));
    let device = |device: &gpu::driver::Device| {
        let (major, minor) = device.compute_capability;
        let gib = device.memory_bytes as f64 / f64::from(1 << 30);
        format!(
            "GPU {}: {}, compute capability {major}.{minor}, {gib:.1} GiB, {}",
            device.ordinal, device.name, device.pci_bus_id
        )
    };
    std::iter::once(head).chain(driver.devices.iter().map(device)).collect()
}

fn nccl(nccl: &NcclFacts) -> Vec<String> {
    let head = format!("{}, {}", nccl.version, place(&nccl.path, nccl.origin));
    let tells = match nccl.profiler_api {
        None => "no profiler interface before 2.23".to_owned(),
        Some(api) => {
            let times = if nccl.gpu_times { "of the GPU's own clock" } else { "of the host's clock only" };
            format!("profiler interface {api}, times {times}")
        }
    };
    let trouble = nccl.known_trouble.map(|trouble| {
        let so = if trouble.keeps_plugin_off { ": the plugin stays off" } else { "" };
        format!("known of this release: {}{so}", trouble.what)
    });
    [head, tells].into_iter().chain(trouble).collect()
}

fn cupti(cupti: &CuptiFacts) -> Vec<String> {
    let clock = if cupti.is_realtime {
        "its clock is the host's real time"
    } else {
        "its clock is not the host's: someone registered another, and its records cannot be placed"
    };
    vec![format!("API {}, {}; {clock}", cupti.version, place(&cupti.path, cupti.origin))]
}

fn place(path: &std::path::Path, origin: Origin) -> String {
    let how = match origin {
        Origin::Mapped => "in this process",
        Origin::Named => "named by the environment",
        Origin::Loader => "on the loader's path",
        Origin::PythonPackages => "in Python's packages",
    };
    format!("{} ({how})", path.display())
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
