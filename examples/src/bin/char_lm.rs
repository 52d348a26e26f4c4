//! A character-level language model that trains on any number of ranks.

use std::path::PathBuf;
use std::process::ExitCode;

use candle_core::{Device, Result as CandleResult, Tensor};
use clap::Parser;
use examples::corpus::Corpus;
use examples::gpt::{Gpt, Size, cross_entropy};
use examples::options::JobOptions;
use examples::parameters::{ParameterSet, Weights};
use examples::precision::{FIRST_SCALE, LossScale, Precision};
use examples::sampler::StepSamples;
use examples::trainer::{Batch, Plan, Task};
use examples::{job, start};

/// Trains a small GPT to predict the next character of a text.
///
/// Start one process per rank with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set, or a single process without them.
/// If PACELINE_SERVER is set, the job reports to that Paceline server. With --strong, the same seed and batch give the
/// same loss curve on any number of ranks.
#[derive(Parser)]
#[command(version)]
struct Options {
    /// Number of training steps
    #[arg(long, default_value_t = 1000)]
    steps: u64,
    /// Sequences per step and rank; with --strong, per step over all ranks
    #[arg(long, value_name = "SEQUENCES", default_value_t = 2, value_parser = positive)]
    batch: usize,
    /// Context length in characters
    #[arg(long, value_name = "CHARACTERS", default_value_t = 64, value_parser = positive)]
    ctx: usize,
    /// Width of the model; must be a multiple of the number of heads
    #[arg(long, value_name = "WIDTH", default_value_t = 128, value_parser = positive)]
    dim: usize,
    /// Number of transformer blocks (attention and feed-forward network)
    #[arg(long, default_value_t = 4, value_parser = positive)]
    layers: usize,
    /// Number of attention heads
    #[arg(long, default_value_t = 4, value_parser = positive)]
    heads: usize,
    /// Learning rate
    #[arg(long, value_name = "RATE", default_value_t = 1e-3)]
    lr: f64,
    /// Precision of matrix products; weights, gradients and everything else are 32-bit floats
    #[arg(long, value_enum, default_value_t)]
    precision: Precision,
    /// Initial loss scale, with --precision fp16
    #[arg(long, value_name = "FACTOR", default_value_t = FIRST_SCALE)]
    loss_scale: f64,
    /// File or directory to train on, instead of this program's own sources
    #[arg(long, value_name = "PATH")]
    corpus: Option<PathBuf>,
    #[command(flatten)]
    job: JobOptions,
}

fn positive(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| "must be a whole number above 0".into())
}

fn main() -> ExitCode {
    start::main(|| {
        let options = Options::parse();
        let plan = Plan {
            name: "char_lm",
            sample_unit: "tokens",
            steps: Some(options.steps),
            epochs: 0,
            batch: options.batch,
            rate: options.lr,
            bucket_cap_mib: 0.5,
            precision: options.precision,
            loss_scale: LossScale::new(options.precision, options.loss_scale),
        };
        job::run(&options.job, &plan, |device| CharLm::new(&options, device), |_, _, _| Ok(()))
    })
}

struct CharLm {
    corpus: Corpus,
    parameters: ParameterSet,
    model: Gpt,
    context: usize,
    flops_per_token: u64,
}

impl CharLm {
    fn new(options: &Options, device: &Device) -> anyhow::Result<Self> {
        let corpus = Corpus::open(options.corpus.as_deref(), options.ctx)?;
        let size = Size {
            vocabulary: corpus.vocabulary(),
            context: options.ctx,
            width: options.dim,
            layers: options.layers,
            heads: options.heads,
            precision: options.precision,
        };
        let mut parameters = ParameterSet::new(device);
        let model = Gpt::new(size, &mut parameters, options.job.seed)?;
        let flops_per_token = size.flops_per_token(parameters.elements());
        Ok(Self { corpus, parameters, model, context: options.ctx, flops_per_token })
    }
}

impl Task for CharLm {
    fn parameters(&self) -> &ParameterSet {
        &self.parameters
    }

    fn samples(&self) -> usize {
        self.corpus.samples()
    }

    fn units_per_sample(&self) -> u64 {
        self.context as u64
    }

    fn flops_per_unit(&self) -> u64 {
        self.flops_per_token
    }

    fn load(&self, part: &StepSamples, _step: u64) -> CandleResult<Batch> {
        self.corpus.batch(&part.mine)
    }

    fn loss(&self, weights: &Weights, (seen, came): &Batch) -> CandleResult<Tensor> {
        cross_entropy(&self.model.forward(weights, seen)?, came)
    }
}
