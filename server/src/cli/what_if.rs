//! `paceline what-if`, which predicts the step of a run with another network, other buckets or another number of ranks.

use analysis::scaling;
use analysis::step::StepAnalysis;
use clap::Args;
use wire::views::scaling::{Predicted, Scenario, ScenarioPrediction};

use super::{DataArgument, print, runs};

/// The arguments of `paceline what-if`.
#[derive(Debug, Args)]
#[command(
    after_help = "The prediction replays the usual step of the run with transfers from its latency-bandwidth model.\n\n\
    Check it by a run: --ranks by `paceline scale`, --bucket-cap by `paceline sweep` or bucket_cap_mb of DDP, --compression by \
    a communication hook of DDP, and the others on the other network.\n\n\
    Examples:\n  paceline what-if latest --ranks 64\n  paceline what-if latest --bandwidth 2 --bucket-cap 10"
)]
pub(super) struct WhatIfArguments {
    /// Run: an id, or `latest`
    run: String,
    /// Number of ranks, with the batch per rank unchanged [default: that of the run]
    #[arg(long, value_name = "N")]
    ranks: Option<u32>,
    /// Bandwidth of all links, as a multiple of the measured one
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    bandwidth: f64,
    /// Bandwidth of one node's link, as a share of that of the others
    #[arg(long, value_name = "SHARE", default_value_t = 1.0)]
    link: f64,
    /// Latency of a collective, as a multiple of the measured one
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    latency: f64,
    /// Compression ratio of gradients: their bytes / the bytes that are sent
    #[arg(long, value_name = "RATIO", default_value_t = 1.0)]
    compression: f64,
    /// Bucket cap, in MiB [default: buckets as they are]
    #[arg(long, value_name = "MIB")]
    bucket_cap: Option<f64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    data: DataArgument,
}

pub(super) fn run(arguments: &WhatIfArguments) -> anyhow::Result<()> {
    let WhatIfArguments { ranks, bandwidth, link, latency, compression, bucket_cap, .. } = *arguments;
    let scenario = Scenario { ranks, bandwidth, link, latency, compression, cap_mib: bucket_cap };
    let (report, steps) = runs::with_steps(&arguments.data, &arguments.run)?;
    let steps: Vec<&StepAnalysis> = steps.iter().map(AsRef::as_ref).collect();
    let predicted = scaling::predict(&report, &steps, scenario)
        .map_err(|reason| anyhow::anyhow!("no prediction from run {}: {reason}", report.run))?;
    match arguments.json {
        true => print(&format!("{}\n", serde_json::to_string_pretty(&predicted)?)),
        false => print(&text(&predicted, &report.sample_unit)),
    }
}

fn text(prediction: &ScenarioPrediction, unit: &str) -> String {
    let row = |name: &str, figure: &Predicted, write: &dyn Fn(f64) -> String| {
        let (value, low, high) = (write(figure.value), write(figure.low), write(figure.high));
        format!("  {name:<12}{value:>16}   {low} to {high}\n")
    };
    let mut out = format!("{}\n\nOn {}:\n", prediction.sentence, units::ranks(prediction.ranks));
    out += &row("step time", &prediction.step_nanos, &units::nanos);
    if let Some(throughput) = &prediction.throughput {
        out += &row("throughput", throughput, &|rate| units::rate(rate, &format!("{unit}/s")));
    }
    out += &row("efficiency", &prediction.efficiency, &units::percent);
    if !prediction.assumptions.is_empty() {
        out += &format!("\nAssumed:\n  {}\n", prediction.assumptions.join("\n  "));
    }
    out
}
