//! Checks what-ifs of the latency-bandwidth model by runs: char_lm trains over a network whose bandwidth and latency the kernel
//! limits, and with several bucket caps. Each run predicts the others. Needs root, `unshare` and `tc`.
#![allow(clippy::print_stdout, reason = "the output of the program")]

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use clap::Parser;
use serde_json::{Value, json};
use testkit::programs::{program, report};
use testkit::results::Results;

/// Trains over several networks and with several bucket caps, and predicts each run from the others
#[derive(Parser)]
struct Options {
    /// Number of steps of each run
    #[arg(long, default_value_t = 100)]
    steps: u32,
    /// Width of the model
    #[arg(long, default_value_t = 160)]
    dim: u32,
    /// Number of transformer blocks
    #[arg(long, default_value_t = 6)]
    layers: u32,
}

/// A network and a bucket cap.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Setting {
    megabits: f64,
    /// The delay of a packet, in microseconds.
    delay: f64,
    cap_mib: f64,
}

const USUAL: Setting = Setting { megabits: 800.0, delay: 0.0, cap_mib: 1.0 };
/// The delay of a packet beside which the latency of the host does not matter, in microseconds.
const LONG: f64 = 2_000.0;

/// A run, and its mean step in nanoseconds.
struct Run {
    setting: Setting,
    name: String,
    step_nanos: f64,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let mut results = Results::begin("what-if");
    let data = tempfile::tempdir()?;
    let bandwidths = [200.0, 400.0, 800.0, 1_600.0].map(|megabits| Setting { megabits, ..USUAL });
    let delays = [1.0, 2.0, 4.0].map(|times| Setting { delay: times * LONG, ..USUAL });
    let caps = [0.25, 0.5, 1.0, 2.0, 4.0].map(|cap_mib| Setting { cap_mib, ..USUAL });
    let mut groups = vec![("bandwidth", &bandwidths[..]), ("bucket cap", &caps[..])];
    match has_netem()? {
        true => groups.push(("latency", &delays[..])),
        false => println!("latency: SKIP, because this kernel has no netem (module sch_netem)"),
    }
    for (what, settings) in groups {
        let runs = settings.iter().map(|&setting| train(data.path(), &options, setting));
        let runs: Vec<Run> = runs.collect::<anyhow::Result<_>>()?;
        judge(what, data.path(), &runs, &mut results)?;
    }
    println!("raw: {}", results.finish()?.display());
    Ok(())
}

/// Returns whether the kernel can delay packets.
fn has_netem() -> anyhow::Result<bool> {
    let try_it = "ip link set lo up && tc qdisc add dev lo root netem delay 1us";
    let tried = Command::new("unshare").args(["--net", "sh", "-c", try_it]).output();
    Ok(tried.context("cannot start unshare")?.status.success())
}

/// Trains in a network of its own.
fn train(data: &Path, options: &Options, setting: Setting) -> anyhow::Result<Run> {
    let Setting { megabits, delay, cap_mib } = setting;
    let name = format!("{megabits}-{delay}-{cap_mib}");
    let qdisc = match delay > 0.0 {
        true => format!("netem rate {megabits}mbit delay {delay}us limit 100000"),
        false => format!("tbf rate {megabits}mbit burst 70kb limit 8mb"),
    };
    let network = format!("ip link set lo up && tc qdisc add dev lo root {qdisc}");
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-c", &format!("{network} && exec \"$@\"")]).arg("job");
    command.arg(program("paceline")).args(["run", "-n", "2", "--run-id", &name, "--data"]).arg(data);
    command.args(["--", "char_lm", "--tcp"]);
    for (option, value) in [("--steps", options.steps), ("--dim", options.dim), ("--layers", options.layers)]
    {
        command.args([option, &value.to_string()]);
    }
    let output =
        command.args(["--bucket-cap", &cap_mib.to_string()]).output().context("cannot start unshare")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report = report(data, &name)?;
    let step_nanos = report["period_nanos"].as_f64().with_context(|| format!("{name} has no steps"))?;
    println!("{megabits} Mbit/s, {delay} µs, cap {cap_mib} MiB: {:.1} ms per step", step_nanos / 1e6);
    Ok(Run { setting, name, step_nanos })
}

/// Predicts each run from each other one.
fn judge(what: &str, data: &Path, runs: &[Run], results: &mut Results) -> anyhow::Result<()> {
    let (mut predicted, mut inside) = (0, 0);
    for (from, to) in runs.iter().flat_map(|from| runs.iter().map(move |to| (from, to))) {
        if from.setting == to.setting {
            continue;
        }
        let Some(step) = predict(data, from, to)? else { continue };
        let number = |end: &str| step[end].as_f64().unwrap_or(f64::NAN);
        let is_inside = (number("low")..=number("high")).contains(&to.step_nanos);
        predicted += 1;
        inside += u32::from(is_inside);
        println!(
            "  {} from {}: {:.1} ms ({:.1} to {:.1}), measured {:.1}{}",
            to.name,
            from.name,
            number("value") / 1e6,
            number("low") / 1e6,
            number("high") / 1e6,
            to.step_nanos / 1e6,
            if is_inside { "" } else { ": outside" }
        );
        results.add(json!({
            "what": what, "from": from.name, "to": to.name, "predicted": step, "from_nanos": from.step_nanos,
            "measured_nanos": to.step_nanos, "is_inside": is_inside,
        }));
    }
    println!("{what}: {inside} of {predicted} measured steps are in the band");
    Ok(())
}

/// Returns the predicted step time; `None` if the run has one bucket only.
fn predict(data: &Path, from: &Run, to: &Run) -> anyhow::Result<Option<Value>> {
    let (a, b) = (from.setting, to.setting);
    let mut command = Command::new(program("paceline"));
    command.args(["what-if", &from.name, "--json", "--data"]).arg(data);
    command.args(["--bandwidth", &(b.megabits / a.megabits).to_string()]);
    if a.delay > 0.0 {
        command.args(["--latency", &(b.delay / a.delay).to_string()]);
    }
    if a.cap_mib.to_bits() != b.cap_mib.to_bits() {
        command.args(["--bucket-cap", &b.cap_mib.to_string()]);
    }
    let output = command.output()?;
    if !output.status.success() {
        println!("  {} from {}: {}", to.name, from.name, String::from_utf8_lossy(&output.stderr).trim());
        return Ok(None);
    }
    let answer: Value = serde_json::from_slice(&output.stdout)?;
    Ok(Some(answer["step_nanos"].clone()))
}
