//! `paceline plan`, which estimates the days of a training, the memory that it needs and what failures cost it.

mod memory;
mod text;

use analysis::plan::efficiency::{Efficiency, Experience};
use analysis::plan::estimate::{DeviceFailures, Estimate, Pipeline, Plan};
use analysis::plan::{TOKENS_PER_PARAMETER, Training};
use analysis::step::StepAnalysis;
use clap::Args;

use self::memory::MemoryArguments;
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
    fn plan(&self, source: &Source) -> anyhow::Result<Plan> {
        let training = Training {
            parameters: self.params,
            tokens: self.tokens.unwrap_or(TOKENS_PER_PARAMETER * self.params),
            peak: self.peak,
            mfu: self.mfu.or(source.mfu()).ok_or_else(|| no_mfu(self))?,
        };
        let pipeline = self.stages.zip(self.micro_batches);
        let pipeline = pipeline.map(|(stages, micro_batches)| Pipeline { stages, micro_batches });
        let Self { failures, memory, .. } = self;
        Ok(Plan {
            training,
            pipeline,
            failures: failures.costs(),
            device_bytes: memory.memory,
            shape: memory.shape(),
        })
    }
}

impl FailureArguments {
    fn costs(&self) -> Option<DeviceFailures> {
        Some(DeviceFailures {
            device_between: self.failure_hours? * 3_600.0,
            checkpoint: self.checkpoint?,
            restart: self.restart?,
        })
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
    let source = Source::new(arguments)?;
    let plan = arguments.plan(&source)?;
    let estimates: Vec<Estimate> =
        arguments.ranks.iter().map(|&ranks| plan.estimate(ranks, source.efficiency(ranks))).collect();
    if arguments.json {
        let json = text::json(&plan, &estimates, &source);
        return print(&format!("{}\n", serde_json::to_string_pretty(&json)?));
    }
    let table = text::table(&plan, &estimates, &source, arguments.mfu.is_none());
    print(&(table + &memory::table(&plan, &arguments.ranks)))
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

/// Where the efficiency, and perhaps the MFU, are from.
enum Source {
    Assumed,
    Run {
        /// What the run is, and how good its model is, as a phrase.
        phrase: String,
        experience: Box<Experience>,
    },
}

impl Source {
    fn new(arguments: &PlanArguments) -> anyhow::Result<Self> {
        let Some(name) = &arguments.run else { return Ok(Self::Assumed) };
        let (report, steps) = runs::with_steps(&arguments.data, name)?;
        let steps: Vec<&StepAnalysis> = steps.iter().map(AsRef::as_ref).collect();
        let experience = Experience::from_report(&report, &steps)
            .map_err(|reason| anyhow::anyhow!("run {} has no scaling model: {reason}", report.run))?;
        let phrase = format!(
            "model of run {} on {} ranks (its step is {:+.1} % off the measured step)",
            report.run,
            report.ranks,
            experience.error() * 100.0
        );
        Ok(Self::Run { phrase, experience: Box::new(experience) })
    }

    fn efficiency(&self, ranks: u32) -> Efficiency {
        match self {
            Self::Assumed => Efficiency::usual(ranks),
            Self::Run { experience, .. } => experience.efficiency(ranks),
        }
    }

    fn mfu(&self) -> Option<f64> {
        match self {
            Self::Assumed => None,
            Self::Run { experience, .. } => experience.mfu,
        }
    }

    /// Returns whether the efficiency has a band.
    fn has_range(&self) -> bool {
        matches!(self, Self::Run { .. })
    }

    fn phrase(&self) -> &str {
        match self {
            Self::Assumed => "1 / (1 + 0.04 sqrt(ranks)), assumed; --run RUN uses the model of a run",
            Self::Run { phrase, .. } => phrase,
        }
    }
}
