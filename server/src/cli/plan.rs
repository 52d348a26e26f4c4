//! `paceline plan`, which estimates the days of a training, the memory that it needs and what failures cost it.

mod memory;

use analysis::plan::checkpoints::Failures;
use analysis::plan::{Planned, TOKENS_PER_PARAMETER, Training, bubble, usual_efficiency};
use analysis::scaling::Model;
use analysis::step::StepAnalysis;
use clap::Args;

use self::memory::{MemoryArguments, RankModel};
use super::{DataArgument, print, runs};

/// The arguments of `paceline plan`.
#[derive(Debug, Args)]
#[command(
    after_help = "days = 6 x params x tokens / (ranks x peak x MFU) / 86,400 s, divided by the scaling efficiency, by the share \
    of the time that a pipeline works, and by the share that failures leave.\n\
    Example: paceline plan --params 7e9 --tokens 1e12 --peak 1e15 --mfu 0.4 --ranks 8,64,256,1024\n\
    With memory: --memory 80e9 --layers 32 --hidden 4096 --heads 32 --sequence 4096 --micro-batch 1\n\
    With failures: --failure-hours 50000 --checkpoint 30 --restart 300\n\
    docs/metrics.md has the formulas and their sources."
)]
pub(super) struct PlanArguments {
    /// Number of parameters of the model
    #[arg(long, value_name = "P", value_parser = positive)]
    params: f64,
    /// Number of tokens to train on [default: 20 per parameter]
    #[arg(long, value_name = "D", value_parser = positive)]
    tokens: Option<f64>,
    /// Peak performance of one device, in FLOP/s
    #[arg(long, value_name = "FLOPS", value_parser = positive)]
    peak: f64,
    /// Model FLOPs utilization (MFU) of one device, above 0 and at most 1 [default: that of --run]
    #[arg(long, value_parser = share)]
    mfu: Option<f64>,
    /// World sizes to estimate for
    #[arg(long, value_delimiter = ',', required = true, value_name = "N,...",
        value_parser = clap::value_parser!(u32).range(1..))]
    ranks: Vec<u32>,
    /// Run whose model predicts the scaling efficiency [default: 1 / (1 + 0.04 sqrt(ranks))]
    #[arg(long, value_name = "RUN")]
    run: Option<String>,
    /// Stages of a pipeline, which split the layers
    #[arg(long, value_name = "S", requires = "micro_batches", value_parser = clap::value_parser!(u32).range(1..))]
    stages: Option<u32>,
    /// Micro-batches of a step that go through the pipeline
    #[arg(long, value_name = "M", requires = "stages", value_parser = clap::value_parser!(u32).range(1..))]
    micro_batches: Option<u32>,
    #[command(flatten)]
    data: DataArgument,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    memory: MemoryArguments,
    #[command(flatten)]
    failures: FailureArguments,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Failures")]
struct FailureArguments {
    /// Mean time between failures of one device, in hours
    #[arg(long, value_name = "HOURS", requires_all = ["checkpoint", "restart"], value_parser = positive)]
    failure_hours: Option<f64>,
    /// Time that training waits for a checkpoint, in seconds
    #[arg(long, value_name = "SECONDS", requires = "failure_hours", value_parser = positive)]
    checkpoint: Option<f64>,
    /// Time from a failure to the next step, in seconds
    #[arg(long, value_name = "SECONDS", requires = "failure_hours", value_parser = positive)]
    restart: Option<f64>,
}

impl PlanArguments {
    /// Returns the model on one of `ranks` ranks.
    fn model(&self, ranks: u32) -> RankModel<'_> {
        let stages = self.stages.unwrap_or(1);
        RankModel {
            memory: &self.memory,
            parameters: self.params / f64::from(stages),
            replicas: ranks / stages,
        }
    }

    fn bound(&self, planned: &Planned) -> Bound {
        match self.memory.memory {
            Some(memory) if self.model(planned.ranks).least_bytes() > memory => Bound::Memory,
            _ if planned.efficiency < 0.5 => Bound::Communication,
            _ => Bound::Compute,
        }
    }
}

/// What limits a training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
enum Bound {
    /// It does not fit, however its states are split.
    Memory,
    /// Less than half of the time is compute.
    Communication,
    /// Neither.
    Compute,
}

impl Bound {
    fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Communication => "communication",
            Self::Compute => "compute",
        }
    }
}

fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "must be a number above 0, such as 7e9".into())
}

fn share(text: &str) -> Result<f64, String> {
    positive(text).ok().filter(|share| *share <= 1.0).ok_or_else(|| "must be above 0 and at most 1".into())
}

pub(super) fn run(arguments: &PlanArguments) -> anyhow::Result<()> {
    let stages = arguments.stages.unwrap_or(1);
    if let Some(ranks) = arguments.ranks.iter().find(|&&ranks| ranks % stages != 0) {
        anyhow::bail!(
            "{ranks} ranks cannot be split into pipelines of {stages} stages: give multiples of {stages}"
        );
    }
    let source = source(arguments)?;
    let training = Training {
        parameters: arguments.params,
        tokens: arguments.tokens.unwrap_or(TOKENS_PER_PARAMETER * arguments.params),
        peak: arguments.peak,
        mfu: arguments.mfu.or(source.mfu).ok_or_else(|| no_mfu(arguments))?,
    };
    let rows: Vec<Row> =
        arguments.ranks.iter().map(|&ranks| Row::new(arguments, &training, ranks, &source)).collect();
    if arguments.json {
        return print(&format!(
            "{}\n",
            serde_json::to_string_pretty(&json(arguments, &training, &rows, &source))?
        ));
    }
    let models: Vec<(u32, RankModel<'_>)> =
        arguments.ranks.iter().map(|&ranks| (ranks, arguments.model(ranks))).collect();
    print(&(table(arguments, &training, &rows, &source) + &memory::table(&arguments.memory, &models)))
}

fn no_mfu(arguments: &PlanArguments) -> anyhow::Error {
    match &arguments.run {
        None => {
            anyhow::anyhow!("the MFU is not known: give --mfu, such as 0.4, or --run with a run that has one")
        }
        Some(run) => anyhow::anyhow!(
            "run {run} has no MFU (`paceline report {run}` says why): give --mfu, such as 0.4"
        ),
    }
}

/// The plan for one world size.
struct Row {
    planned: Planned,
    /// The days with the pipeline's bubble and with failures.
    days: f64,
    /// The fewest and the most days, with the band of the efficiency. `None` if the efficiency is assumed.
    days_range: Option<(f64, f64)>,
    /// The band of the efficiency.
    efficiency_range: Option<(f64, f64)>,
    /// The seconds between checkpoints, and the share of the time that failures and checkpoints take.
    failures: Option<(f64, f64)>,
    /// What limits the training.
    bound: Bound,
}

impl Row {
    fn new(arguments: &PlanArguments, training: &Training, ranks: u32, source: &Source) -> Self {
        let Expected { efficiency, range } = (source.efficiency)(ranks);
        let planned = training.on(ranks, efficiency);
        let FailureArguments { failure_hours, checkpoint, restart } = arguments.failures;
        let failures = failure_hours.zip(checkpoint).zip(restart).map(|((hours, checkpoint), restart)| {
            let failures = Failures::on(ranks, hours * 3_600.0, checkpoint);
            (failures.interval(), failures.lost(restart))
        });
        let works = 1.0 - idle(arguments).unwrap_or(0.0);
        let remains = 1.0 - failures.map_or(0.0, |(_, lost)| lost);
        let bound = arguments.bound(&planned);
        let days = |planned: Planned| planned.days / works / remains;
        Self {
            planned,
            days: days(planned),
            days_range: range
                .map(|(low, high)| (days(training.on(ranks, high)), days(training.on(ranks, low)))),
            efficiency_range: range,
            failures,
            bound,
        }
    }
}

/// Returns the share of the step in which the stages of the pipeline are idle.
fn idle(arguments: &PlanArguments) -> Option<f64> {
    Some(bubble(arguments.stages?, arguments.micro_batches?))
}

/// The efficiency on a number of ranks.
struct Expected {
    efficiency: f64,
    /// The band that it lies in; `None` if it is assumed.
    range: Option<(f64, f64)>,
}

/// Where the efficiency, and perhaps the MFU, are from.
struct Source {
    efficiency: Box<dyn Fn(u32) -> Expected>,
    /// The source of the efficiency, as a phrase.
    phrase: String,
    mfu: Option<f64>,
}

fn source(arguments: &PlanArguments) -> anyhow::Result<Source> {
    let Some(name) = &arguments.run else {
        let phrase = "1 / (1 + 0.04 sqrt(ranks)), assumed; --run RUN uses the model of a run".into();
        let assumed = |ranks| Expected { efficiency: usual_efficiency(ranks), range: None };
        return Ok(Source { efficiency: Box::new(assumed), phrase, mfu: None });
    };
    let (report, steps) = runs::with_steps(&arguments.data, name)?;
    let steps: Vec<&StepAnalysis> = steps.iter().map(AsRef::as_ref).collect();
    let model = Model::from_report(&report, &steps)
        .map_err(|reason| anyhow::anyhow!("run {} has no scaling model: {reason}", report.run))?;
    let phrase = format!(
        "model of run {} on {} ranks (its step is {:+.1} % off the measured step)",
        report.run,
        report.ranks,
        model.error() * 100.0
    );
    // The MFU of the run includes the losses at its own world size, which the efficiency counts.
    let alone = model.efficiency(report.ranks);
    let mfu = report.flops_utilization.model.value().map(|mfu| (mfu / alone).min(1.0));
    let expected = move |ranks| {
        let predicted = model.predict(ranks);
        Expected {
            efficiency: predicted.efficiency,
            range: Some((predicted.efficiency_low, predicted.efficiency_high)),
        }
    };
    Ok(Source { efficiency: Box::new(expected), phrase, mfu })
}

fn table(arguments: &PlanArguments, training: &Training, rows: &[Row], source: &Source) -> String {
    let mut out = format!(
        "{:>8}{:>14}{:>12}{:>14}{:>12}{:>16}",
        "ranks", "ideal days", "efficiency", "days", "speed-up", "bound by"
    );
    let has_failures = rows.iter().any(|row| row.failures.is_some());
    let has_range = rows.iter().any(|row| row.days_range.is_some());
    out += if has_range { "                 days, band" } else { "" };
    out += if has_failures { "    checkpoint every    lost to failures\n" } else { "\n" };
    for Row { planned, days, days_range, failures, bound, .. } in rows {
        out += &format!(
            "{:>8}{:>14.2}{:>10.1} %{:>14.2}{:>12.1}{:>16}",
            planned.ranks,
            planned.ideal_days,
            planned.efficiency * 100.0,
            days,
            planned.speed_up,
            bound.name()
        );
        if let Some((fewest, most)) = days_range {
            out += &format!("{:>27}", format!("{fewest:.2} to {most:.2}"));
        }
        if let Some((interval, lost)) = failures {
            out += &format!("{:>20}{:>18.1} %", units::clock(*interval), lost * 100.0);
        }
        out.push('\n');
    }
    let per_parameter = training.tokens / training.parameters;
    let mut about = vec![
        format!("Scaling efficiency: {}.", source.phrase),
        format!(
            "Tokens: {:.1} per parameter; compute-optimal is about {TOKENS_PER_PARAMETER} (Hoffmann et al., 2022).",
            per_parameter
        ),
    ];
    if has_range {
        about.push(
            "Band: what the days would be with the ends of the band of the predicted efficiency.".into(),
        );
    }
    if arguments.mfu.is_none() {
        about.push(format!("MFU: {:.1} %, of the run without its loss to scaling.", training.mfu * 100.0));
    }
    if let Some(idle) = idle(arguments) {
        about.push(format!(
            "Pipeline: its stages are idle for {:.1} % of the step, (S - 1) / (M + S - 1); `days` includes it.",
            idle * 100.0
        ));
    }
    if has_failures {
        about.push(
            "Checkpoints: the interval that loses the least (Daly, 2006); `days` includes what is lost."
                .into(),
        );
    }
    out + "\n" + &about.join("\n") + "\n"
}

fn json(arguments: &PlanArguments, training: &Training, rows: &[Row], source: &Source) -> serde_json::Value {
    let row = |Row { planned, days, days_range, efficiency_range, failures, bound }: &Row| {
        serde_json::json!({
            "ranks": planned.ranks, "ideal_days": planned.ideal_days, "efficiency": planned.efficiency, "days": days,
            "efficiency_range": efficiency_range, "days_range": days_range,
            "speed_up": planned.speed_up, "bound_by": bound,
            "checkpoint_every_seconds": failures.map(|(interval, _)| interval),
            "lost_to_failures": failures.map(|(_, lost)| lost),
            "memory": memory::json(&arguments.model(planned.ranks)),
        })
    };
    serde_json::json!({
        "efficiency_from": source.phrase, "mfu": training.mfu, "tokens": training.tokens,
        "plan": rows.iter().map(row).collect::<Vec<_>>(),
    })
}
