//! Checks that need a GPU: are the times that Paceline measures on a device true, and what does measuring cost? The
//! program prints one line per check and writes raw figures to `DATE-accept.jsonl`. The exit code is 77 if there is no
//! GPU.
//!
//! `accept CHECK...` runs only the checks of these names. `accept --fake` runs the checks on the fake GPU to test the
//! program itself. Its figures are not those of a GPU.
#![allow(unsafe_code, reason = "this program launches kernels")]

mod costs;
mod report;
mod training;
mod truth;

use std::process::ExitCode;

use anyhow::bail;
use gpu::device::Device;
use gpu::probe::Probe;
use reducer::cuda::Transport;
use report::Checks;
use testkit::fake_gpu;
use testkit::fetch::SKIPPED;
use training::Setting;

#[allow(clippy::print_stdout, reason = "the output of the program")]
fn main() -> anyhow::Result<ExitCode> {
    let (options, names): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|word| word.starts_with('-'));
    let fake = match &options.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => false,
        ["--fake"] => true,
        _ => bail!("usage: accept [--fake] [CHECK...]"),
    };
    if fake {
        fake_gpu::library();
    }
    let device = match Device::open(0) {
        Ok(device) => device,
        Err(reason) => {
            println!("SKIP all checks: {reason}");
            return Ok(ExitCode::from(SKIPPED));
        }
    };
    let mut checks = Checks::begin(&serde_json::to_value(Probe::run())?, names);
    checks.run("events", || truth::events_agree_with_the_device(&device));
    checks.run("event costs", || costs::event_costs(&device));
    checks.run("events in a step", || costs::event_costs_in_a_step(&device, fake));
    checks.run("clock", || costs::clock_width(&device));
    let alone = Setting::staged(fake);
    checks.run("staged, one rank", || training::is_recorded(&alone));
    checks.run("overlap", || training::overlap_is_that_of_cupti(&alone));
    checks.run("phases of kernels", || training::kernels_are_told_by_phases(&alone));
    let two = Setting { ranks: 2, ..alone.clone() };
    checks.run("staged, two ranks on one GPU", || training::is_recorded(&two));
    let nccl = Setting { transport: Transport::Nccl, ..alone };
    checks.run("NCCL, one rank", || training::is_recorded(&nccl));
    checks.run("overhead", || training::overhead(&nccl));
    Ok(if checks.finish()? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
