//! `paceline plan`, which estimates the days of a training.

use analysis::plan::{Planned, Training, usual_efficiency};
use analysis::scaling::Model;
use analysis::step::StepAnalysis;
use clap::Args;

use super::{DataArgument, print, runs};
use crate::clock::ServerClock;
use crate::store::directory::Layout;

/// The arguments of `paceline plan`.
#[derive(Debug, Args)]
#[command(
    after_help = "days = 6 x params x tokens / (ranks x peak x MFU) / 86,400 s, divided by the scaling efficiency.\n\
    Example: paceline plan --params 7e9 --tokens 1e12 --peak 1e15 --mfu 0.4 --ranks 8,64,256,1024"
)]
pub(super) struct PlanArguments {
    /// Number of parameters of the model
    #[arg(long, value_name = "P", value_parser = positive)]
    params: f64,
    /// Number of tokens to train on
    #[arg(long, value_name = "D", value_parser = positive)]
    tokens: f64,
    /// Peak performance of one device, in FLOP/s
    #[arg(long, value_name = "FLOPS", value_parser = positive)]
    peak: f64,
    /// Model FLOP utilization (MFU) of one device, above 0 and at most 1
    #[arg(long, value_parser = share)]
    mfu: f64,
    /// World sizes to estimate for
    #[arg(long, value_delimiter = ',', required = true, value_name = "N,...",
        value_parser = clap::value_parser!(u32).range(1..))]
    ranks: Vec<u32>,
    /// Run whose model predicts the scaling efficiency [default: 1 / (1 + 0.04 sqrt(ranks))]
    #[arg(long, value_name = "RUN")]
    run: Option<String>,
    #[command(flatten)]
    data: DataArgument,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "must be a number above 0, such as 7e9".into())
}

fn share(text: &str) -> Result<f64, String> {
    positive(text).ok().filter(|share| *share <= 1.0).ok_or_else(|| "must be above 0 and at most 1".into())
}

pub(super) fn run(arguments: &PlanArguments) -> anyhow::Result<()> {
    let training = Training {
        parameters: arguments.params,
        tokens: arguments.tokens,
        peak: arguments.peak,
        mfu: arguments.mfu,
    };
    let (efficiency, source) = efficiency(arguments)?;
    let planned: Vec<Planned> =
        arguments.ranks.iter().map(|&ranks| training.on(ranks, efficiency(ranks))).collect();
    if arguments.json {
        return print(&format!("{}\n", serde_json::to_string_pretty(&json(&planned, &source))?));
    }
    print(&table(&planned, &source))
}

type Efficiency = Box<dyn Fn(u32) -> f64>;

/// Returns a function from world size to efficiency, and the source of the efficiency as a phrase.
fn efficiency(arguments: &PlanArguments) -> anyhow::Result<(Efficiency, String)> {
    let Some(name) = &arguments.run else {
        let source = "1 / (1 + 0.04 sqrt(ranks)), assumed; --run RUN uses the model of a run";
        return Ok((Box::new(usual_efficiency), source.into()));
    };
    let run = runs::find(&Layout::new(arguments.data.path()), name)?;
    let report = run.report(usize::MAX, ServerClock::start().now());
    let steps = run.newest_steps(usize::MAX);
    let steps: Vec<&StepAnalysis> = steps.iter().map(AsRef::as_ref).collect();
    let model = Model::from_report(&report, &steps)
        .map_err(|reason| anyhow::anyhow!("run {} has no scaling model: {reason}", report.run))?;
    let source = format!(
        "model of run {} on {} ranks (its step is {:+.1} % off the measured step)",
        report.run,
        report.ranks,
        model.error() * 100.0
    );
    Ok((Box::new(move |ranks| model.efficiency(ranks)), source))
}

fn table(planned: &[Planned], source: &str) -> String {
    let mut out =
        format!("{:>8}{:>14}{:>12}{:>14}{:>12}\n", "ranks", "ideal days", "efficiency", "days", "speed-up");
    for row in planned {
        out += &format!(
            "{:>8}{:>14.2}{:>10.1} %{:>14.2}{:>12.1}\n",
            row.ranks,
            row.ideal_days,
            row.efficiency * 100.0,
            row.days,
            row.speed_up
        );
    }
    out + &format!("\nScaling efficiency: {source}.\n")
}

fn json(planned: &[Planned], source: &str) -> serde_json::Value {
    let row = |row: &Planned| {
        serde_json::json!({
            "ranks": row.ranks, "ideal_days": row.ideal_days, "efficiency": row.efficiency, "days": row.days,
            "speed_up": row.speed_up,
        })
    };
    serde_json::json!({ "efficiency_from": source, "plan": planned.iter().map(row).collect::<Vec<_>>() })
}
