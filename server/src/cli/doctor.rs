//! `paceline doctor`, which says what can be observed on this machine, and why the rest cannot.

use std::fmt::Write as _;

use clap::Args;
use gpu::cupti::CuptiFacts;
use gpu::driver::DriverFacts;
use gpu::library::Origin;
use gpu::nccl::NcclFacts;
use gpu::nvml::NvmlFacts;
use gpu::probe::{Found, Probe};

use super::print;

/// The arguments of `paceline doctor`.
#[derive(Debug, Args)]
#[command(
    after_help = "This command changes nothing: it creates no context on a device, subscribes to nothing and starts no \
    profiler. Run it in the job's environment (container, virtual environment, user), so that it finds what the job \
    would find.\n\
    Set PACELINE_NCCL and PACELINE_CUPTI to the paths of libraries that are not found otherwise."
)]
pub(super) struct DoctorArguments {
    /// Print JSON: the status of each part and, if it is missing, a machine-readable reason
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
        Some(true) => {
            "administrators only (NVreg_RestrictProfilingToAdminUsers); kernel times do not need them"
        }
        Some(false) => "available to all users",
        None => "unknown: no NVIDIA kernel module reports who may read them",
    };
    lines(&mut out, "counters", &[counters.to_owned()]);
    let holders: Vec<String> =
        probe.holders.iter().map(|holder| format!("{}: {}", holder.what, holder.means)).collect();
    let missing = ["no other tool is in the way of an observer".to_owned()];
    lines(&mut out, "others", if holders.is_empty() { &missing } else { &holders });
    out
}

fn part<T, R>(out: &mut String, name: &str, found: &Found<T, R>, say: impl Fn(&T) -> Vec<String>) {
    match found {
        Found::Present(facts) => lines(out, name, &say(facts)),
        Found::Absent { sentence, .. } => lines(out, name, &[format!("missing: {sentence}")]),
    }
}

/// Writes lines: the first one after the name, the others indented below it.
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
        None => "no profiler interface (2.23 and later have one)".to_owned(),
        Some(api) => {
            let times = if nccl.gpu_times { "the GPU's own clock" } else { "the host's clock only" };
            format!("profiler interface {api}, times by {times}")
        }
    };
    let trouble = nccl.known_trouble.map(|trouble| {
        let so = if trouble.keeps_plugin_off { "; the profiler plugin is not used" } else { "" };
        format!("known issue of this release: {}{so}", trouble.what)
    });
    [head, tells].into_iter().chain(trouble).collect()
}

fn cupti(cupti: &CuptiFacts) -> Vec<String> {
    let clock = if cupti.is_realtime {
        "its clock is the host's real-time clock"
    } else {
        "its clock is not the host's: another tool registered a clock, so its records cannot be aligned"
    };
    vec![format!("API {}, {}; {clock}", cupti.version, place(&cupti.path, cupti.origin))]
}

fn place(path: &std::path::Path, origin: Origin) -> String {
    let how = match origin {
        Origin::Mapped => "loaded in this process",
        Origin::Named => "named by an environment variable",
        Origin::Loader => "found by the dynamic loader",
        Origin::PythonPackages => "found in the Python packages",
    };
    format!("{} ({how})", path.display())
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
