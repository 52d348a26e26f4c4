//! An image classifier that trains on any number of ranks.

use std::path::PathBuf;
use std::process::ExitCode;

use agent::Notes;
use anyhow::Context;
use candle_core::{D, Device, Result as CandleResult, Tensor};
use clap::Parser;
use examples::convnet::ConvNet;
use examples::gpt::cross_entropy;
use examples::images::{Images, Split, digits};
use examples::job;
use examples::options::JobOptions;
use examples::parameters::{ParameterSet, Weights};
use examples::precision::{LossScale, Precision};
use examples::random::Random;
use examples::sampler::StepSamples;
use examples::trainer::{Batch, Plan, Task};
use examples::world_rank::WorldRank;
use examples::{cifar, start};
use wire::attributes::ACCURACY;

/// The number of images in one step of the evaluation.
const EVALUATED_AT_ONCE: usize = 256;

/// Trains a small residual network to classify handwritten digits or the images of CIFAR-10.
///
/// Start one process per rank with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set, or a single process without them.
/// If PACELINE_SERVER is set, the job reports to that Paceline server. The digits are built into the program.
#[derive(Parser)]
#[command(version)]
struct Options {
    /// Number of passes over all training images
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    epochs: u64,
    /// Number of training steps, instead of epochs
    #[arg(long)]
    steps: Option<u64>,
    /// Images per step and rank; with --strong, per step over all ranks
    #[arg(long, value_name = "IMAGES", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    /// Learning rate
    #[arg(long, value_name = "RATE", default_value_t = 2e-3)]
    lr: f64,
    /// Directory with the binary version of CIFAR-10 (data_batch_1.bin to data_batch_5.bin, test_batch.bin)
    #[arg(long, value_name = "DIR")]
    cifar10: Option<PathBuf>,
    #[command(flatten)]
    job: JobOptions,
}

fn main() -> ExitCode {
    start::main(|| {
        let options = Options::parse();
        let plan = Plan {
            name: if options.cifar10.is_some() { "cifar10" } else { "digits" },
            sample_unit: "images",
            steps: options.steps,
            epochs: options.epochs,
            batch: options.batch as usize,
            rate: options.lr,
            // 32 KiB, which gives five buckets even for the small network.
            bucket_cap_mib: if options.cifar10.is_some() { 0.25 } else { 1.0 / 32.0 },
            precision: Precision::Fp32,
            loss_scale: LossScale::new(Precision::Fp32, 1.0),
        };
        job::run(&options.job, &plan, |device| Classifier::new(&options, device), Classifier::evaluate)
    })
}

struct Classifier {
    images: Split,
    parameters: ParameterSet,
    model: ConvNet,
    seed: u64,
}

impl Classifier {
    fn new(options: &Options, device: &Device) -> anyhow::Result<Self> {
        let seed = options.job.seed;
        let images = match &options.cifar10 {
            Some(directory) => cifar::read(directory)?,
            None => digits(seed)?,
        };
        let mut parameters = ParameterSet::new(device);
        let Images { shape, classes, .. } = images.training;
        let model = ConvNet::new(shape, classes, &mut parameters, seed)?;
        Ok(Self { images, parameters, model, seed })
    }

    /// Prints on rank 0 how many of the held-out images are classified correctly, and states the accuracy.
    #[allow(clippy::print_stdout, reason = "the result of the program")]
    fn evaluate(&self, place: WorldRank, notes: &Notes) -> anyhow::Result<()> {
        if place.prints() {
            let right = self.count_right().context("evaluating")?;
            let total = self.images.held_out.len();
            let accuracy = f64::from(right) / total as f64;
            println!("held out: {right} of {total} correct, {:.1} %", accuracy * 100.0);
            notes.label(ACCURACY, &format!("{accuracy:.4}"))?;
        }
        Ok(())
    }

    fn count_right(&self) -> CandleResult<u32> {
        let (weights, held_out) = (self.parameters.plain(), &self.images.held_out);
        let all: Vec<u32> = (0..held_out.len() as u32).collect();
        let mut right = 0;
        for chosen in all.chunks(EVALUATED_AT_ONCE) {
            let (pixels, labels) = held_out.batch(chosen, None)?;
            let device = self.parameters.device();
            let (pixels, labels) = (pixels.to_device(device)?, labels.to_device(device)?);
            let best = self.model.forward(&weights, &pixels)?.argmax(D::Minus1)?;
            right += best.eq(&labels)?.to_dtype(candle_core::DType::U32)?.sum_all()?.to_scalar::<u32>()?;
        }
        Ok(right)
    }
}

impl Task for Classifier {
    fn parameters(&self) -> &ParameterSet {
        &self.parameters
    }

    fn samples(&self) -> usize {
        self.images.training.len()
    }

    fn units_per_sample(&self) -> u64 {
        1
    }

    fn flops_per_unit(&self) -> u64 {
        self.model.flops_per_image()
    }

    fn load(&self, part: &StepSamples, _step: u64) -> CandleResult<Batch> {
        // The shift of an image depends on the image and the epoch only, not on the rank that trains on it.
        let vary = |image: u32| Random::new(self.seed ^ (u64::from(image) << 32), part.epoch);
        self.images.training.batch(&part.mine, Some(&vary))
    }

    fn loss(&self, weights: &Weights, (pixels, labels): &Batch) -> CandleResult<Tensor> {
        cross_entropy(&self.model.forward(weights, pixels)?, labels)
    }
}
