//! The training loop that all jobs share.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use agent::{Agent, StepContext, StepMarks};
use anyhow::{Context, Result, bail};
use candle_core::Tensor;
use reducer::bucketing::Caps;
use reducer::ring::Ring;
use reducer::{Instruments, Options, ParamId, Reducer, Share};
use wire::event::SpanKind;
use wire::ids::{Rank, Step};

use crate::adamw::{AdamW, Settings};
use crate::backend::Backend;
use crate::options::JobOptions;
use crate::parameters::{GradientReady, ParameterSet, Weights};
use crate::precision::{LossScale, Precision};
use crate::sampler::{Sampler, StepSamples};
use crate::trouble::Trouble;
use crate::world_rank::WorldRank;

/// The number of steps in which the learning rate rises to its full value.
const WARM_UP: u64 = 20;

/// The task of a job: data, model and loss.
pub trait Task {
    /// Returns the model's parameters.
    fn parameters(&self) -> &ParameterSet;
    /// Returns the number of samples in an epoch.
    fn samples(&self) -> usize;
    /// Returns the number of units in a sample; [`Plan::sample_unit`] names the unit.
    fn units_per_sample(&self) -> u64;
    /// Returns the floating-point operations of a unit in the forward and the backward pass.
    fn flops_per_unit(&self) -> u64;
    /// Loads the batch of a step into host memory.
    ///
    /// # Errors
    /// Returns an error if memory is exhausted.
    fn load(&self, part: &StepSamples, step: u64) -> candle_core::Result<Batch>;
    /// Computes the mean loss over the batch.
    ///
    /// # Errors
    /// Returns an error if the shapes do not match.
    fn loss(&self, weights: &Weights, batch: &Batch) -> candle_core::Result<Tensor>;
}

/// The samples of one rank in one step, and the expected outputs of the model.
pub type Batch = (Tensor, Tensor);

/// The duration and hyperparameters of training.
pub struct Plan {
    /// The job's name.
    pub name: &'static str,
    /// The unit of throughput.
    pub sample_unit: &'static str,
    /// The number of steps; `None` to train for `epochs` epochs.
    pub steps: Option<u64>,
    /// The number of epochs if `steps` is `None`.
    pub epochs: u64,
    /// Samples per step and rank; with [`JobOptions::strong`], per step over all ranks.
    pub batch: usize,
    /// The learning rate.
    pub rate: f64,
    /// The size of a gradient bucket in MiB, unless [`JobOptions::bucket_cap`] sets it.
    pub bucket_cap_mib: f64,
    /// The precision of matrix products.
    pub precision: Precision,
    pub loss_scale: LossScale,
}

/// The training of one task on one rank.
pub struct Trainer<T: Task, B: Backend> {
    task: T,
    backend: B,
    steps: u64,
    name_of_units: &'static str,
    place: WorldRank,
    sampler: Sampler,
    optimizer: AdamW<B::Moments>,
    loss_scale: LossScale,
    marks: StepMarks<B::Times>,
    shared: Arc<Shared<B>>,
    ready: GradientReady,
    progress: Progress,
}

/// The state that the hooks of the backward pass need. They run on the training thread, so the locks are never
/// contended.
struct Shared<B: Backend> {
    reducer: Mutex<Reducer<B::Memory>>,
    trouble: Mutex<Trouble>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T: Task, B: Backend> Trainer<T, B> {
    /// Prepares training and gives all ranks the initial parameters of rank 0.
    ///
    /// # Errors
    /// Returns an error if the ranks do not have the same model, or if a file cannot be written.
    pub fn new(
        task: T,
        backend: B,
        plan: &Plan,
        options: &JobOptions,
        place: WorldRank,
        ring: Ring,
        agent: &Agent,
    ) -> Result<Self> {
        let trouble = Trouble::new(&options.trouble, place)?;
        let parameters = task.parameters();
        let caps = Caps::from_mib(options.bucket_cap.unwrap_or(plan.bucket_cap_mib))?;
        let mut reducer = backend.reducer(
            parameters.list().to_vec(),
            trouble.wrap(ring),
            Options { caps, ..Options::default() },
            Instruments::new(agent),
        )?;
        let first: Vec<u8> = parameters.values()?.into_iter().flat_map(f32::to_le_bytes).collect();
        let first = reducer.broadcast(Rank(0), first)?;
        parameters
            .set_values(&first.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect::<Vec<_>>())?;
        let count = parameters.list().len();
        let batch = plan.batch * if options.strong { 1 } else { place.world_size as usize };
        let sampler = Sampler::new(task.samples(), batch, place.world_size, place.rank.0, options.seed);
        let steps = plan.steps.unwrap_or(plan.epochs * sampler.steps_per_epoch());
        let marks = B::marks(agent, &reducer);
        let shared = Arc::new(Shared::<B> { reducer: Mutex::new(reducer), trouble: Mutex::new(trouble) });
        Ok(Self {
            optimizer: AdamW::new(Settings::with_rate(plan.rate), parameters.vars())?,
            loss_scale: plan.loss_scale.clone(),
            progress: Progress::new(options, place)?,
            name_of_units: plan.sample_unit,
            ready: hand_over(&shared, count),
            task,
            backend,
            steps,
            place,
            sampler,
            marks,
            shared,
        })
    }

    /// Trains, compares the parameters of the ranks, and passes the result to `end`.
    ///
    /// # Errors
    /// Returns the first error, of this rank or another, or an error if the parameters of the ranks differ.
    pub fn train(mut self, end: impl FnOnce(&T) -> Result<()>) -> Result<()> {
        let outcome = self.run_steps().and_then(|()| self.compare()).and_then(|()| end(&self.task));
        let mut reducer = lock(&self.shared.reducer);
        match (outcome, reducer.failure()) {
            // candle wraps a hook's error in errors of its own. The reducer has the plain error.
            (Err(_), Some(failure)) => Err(failure.clone().into()),
            (Err(error), None) => {
                reducer.abort(&format!("{error:#}"));
                Err(error)
            }
            (Ok(()), _) => Ok(()),
        }
    }

    fn run_steps(&mut self) -> Result<()> {
        self.introduce();
        for step in 0..self.steps {
            let part = self.sampler.part(step);
            let loss = self.step(step, &part)?;
            self.progress.note(loss, part.mine.len());
            if (step + 1).is_multiple_of(self.progress.interval) || step + 1 == self.steps {
                self.report(step)?;
            }
        }
        Ok(())
    }

    /// Runs one step. Returns this rank's mean loss, which a device may still be computing, or `None` without samples.
    fn step(&mut self, step: u64, part: &StepSamples) -> Result<Option<Tensor>> {
        let context = self.marks.begin_step(Step(step));
        self.marks.enter(SpanKind::Input);
        lock(&self.shared.trouble).begin_step(step, lock(&self.shared.reducer).bucket_count());
        let batch = self.task.load(part, step)?;
        lock(&self.shared.trouble).input();
        let batch = self.copied(batch)?;
        self.marks.enter(SpanKind::Forward);
        let loss = self.forward_and_backward(context, part, &batch)?;
        let mut reducer = lock(&self.shared.reducer);
        let reduced = reducer.finish_step()?;
        self.marks.enter(SpanKind::Optimizer);
        let unscale = 1.0 / self.loss_scale.factor();
        if self.loss_scale.accepts(|| self.backend.are_finite(&reduced))? {
            self.optimizer.begin_step((step + 1).min(WARM_UP) as f64 / WARM_UP as f64);
            for (id, gradient) in reduced.gradients() {
                if let Some(gradient) = gradient {
                    let index = id.0 as usize;
                    let var = &self.task.parameters().vars()[index];
                    self.backend.update(&self.optimizer, index, var, gradient, unscale)?;
                }
            }
        }
        self.marks.end_step(part.mine.len() as u64 * self.task.units_per_sample());
        Ok(loss)
    }

    /// Copies a batch to the device. The host needs no copy.
    fn copied(&mut self, (samples, answers): Batch) -> Result<Batch> {
        let device = self.backend.device();
        if device.is_cpu() {
            return Ok((samples, answers));
        }
        self.marks.enter(SpanKind::H2d);
        Ok((samples.to_device(&device)?, answers.to_device(&device)?))
    }

    fn forward_and_backward(
        &mut self,
        context: StepContext,
        part: &StepSamples,
        batch: &Batch,
    ) -> Result<Option<Tensor>> {
        lock(&self.shared.reducer).begin_step(context, part.share())?;
        if part.share() == Share::nothing() {
            self.marks.enter(SpanKind::Backward);
            return Ok(None);
        }
        let weights = self.task.parameters().hooked(&self.ready)?;
        let loss = self.task.loss(&weights, batch)?;
        // Keeps the tensor instead of its value, because reading a value waits for the device.
        let value = loss.detach();
        self.collect_garbage();
        self.marks.enter(SpanKind::Backward);
        (loss * f64::from(self.loss_scale.factor()))?.backward()?;
        Ok(Some(value))
    }

    /// Runs planted trouble at the end of forward, and between forward and backward.
    fn collect_garbage(&mut self) {
        let mut trouble = lock(&self.shared.trouble);
        trouble.forward();
        if trouble.is_host() {
            self.marks.leave();
            trouble.host();
        }
    }

    /// Combines the losses of all ranks. Rank 0 prints and writes them.
    fn report(&mut self, step: u64) -> Result<()> {
        let mine = self.progress.take()?;
        let all = lock(&self.shared.reducer).all_gather(&mine)?;
        if self.place.prints() {
            let units = self.progress.write(step, &all)? * self.task.units_per_sample();
            self.progress.print(step, self.steps, units, self.name_of_units);
        }
        Ok(())
    }

    #[allow(clippy::print_stdout, reason = "the output of the program")]
    fn introduce(&self) {
        if self.place.prints() {
            let layout = lock(&self.shared.reducer).layout();
            println!(
                "{} parameters in {} tensors, {} buckets, {} ranks, {} steps ({} per epoch)",
                self.task.parameters().elements(),
                self.task.parameters().list().len(),
                layout.buckets.len(),
                self.place.world_size,
                self.steps,
                self.sampler.steps_per_epoch()
            );
        }
    }

    /// Returns an error unless all ranks have the same parameters, to the last bit.
    #[allow(clippy::print_stdout, reason = "the output of the program")]
    fn compare(&self) -> Result<()> {
        let hash = self.task.parameters().hash()?;
        let all = lock(&self.shared.reducer).all_gather(&hash.to_le_bytes())?;
        println!("rank {}: parameters {hash:016x}", self.place.rank);
        if self.loss_scale.skipped() > 0 && self.place.prints() {
            println!(
                "{} steps skipped because their gradients were not finite; the loss scale is now {}",
                self.loss_scale.skipped(),
                self.loss_scale.factor()
            );
        }
        let different = (0..).zip(&all).filter(|(_, other)| **other != all[0]);
        let different: Vec<String> = different.map(|(rank, _): (u32, _)| rank.to_string()).collect();
        if !different.is_empty() {
            bail!("the parameters of rank {} differ from those of rank 0", different.join(", "));
        }
        Ok(())
    }
}

/// Returns the hook of all parameters: planted trouble first, then the gradient goes to the reducer.
fn hand_over<B: Backend>(shared: &Arc<Shared<B>>, parameters: usize) -> GradientReady {
    let shared = shared.clone();
    Arc::new(move |id: ParamId, gradient: &Tensor| {
        lock(&shared.trouble).backward(parameters);
        let marked = B::lend(gradient, |floats| lock(&shared.reducer).mark_ready(id, floats))?;
        marked.map_err(candle_core::Error::wrap)
    })
}

/// The mean loss of a step on one rank, and the number of its samples.
struct StepLoss {
    mean: Option<Tensor>,
    samples: usize,
}

/// The losses since the last report, and the outputs for them.
struct Progress {
    interval: u64,
    /// Of this rank, by step.
    mine: Vec<StepLoss>,
    last_report: Instant,
    out: Option<BufWriter<File>>,
    last: f64,
    steps: u64,
}

impl Progress {
    fn new(options: &JobOptions, place: WorldRank) -> Result<Self> {
        let path = options.loss_out.as_ref().filter(|_| place.prints());
        let create = |path: &std::path::PathBuf| {
            File::create(path).with_context(|| format!("--loss-out {}", path.display()))
        };
        let mut out = path.map(create).transpose()?.map(BufWriter::new);
        if let Some(out) = &mut out {
            writeln!(out, "step,loss")?;
        }
        Ok(Self {
            interval: options.log_every,
            mine: Vec::new(),
            last_report: Instant::now(),
            out,
            last: 0.0,
            steps: 0,
        })
    }

    fn note(&mut self, loss: Option<Tensor>, samples: usize) {
        self.mine.push(StepLoss { mean: loss, samples });
    }

    /// Returns the sum of losses and the number of samples, by step.
    fn take(&mut self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        for StepLoss { mean, samples } in self.mine.drain(..) {
            let mean = mean.map_or(Ok(0.0), |mean| mean.to_scalar::<f32>())?;
            let samples = samples as f64;
            bytes.extend([f64::from(mean) * samples, samples].into_iter().flat_map(f64::to_le_bytes));
        }
        Ok(bytes)
    }

    /// Averages the losses over ranks, step by step. Returns the number of samples of all ranks and steps.
    fn write(&mut self, last_step: u64, all: &[Vec<u8>]) -> Result<u64> {
        let rank =
            |bytes: &Vec<u8>| bytes.as_chunks().0.iter().map(|b| f64::from_le_bytes(*b)).collect::<Vec<_>>();
        let ranks: Vec<Vec<f64>> = all.iter().map(rank).collect();
        self.steps = ranks[0].len() as u64 / 2;
        let (mut sum_of_means, mut samples) = (0.0, 0.0);
        for index in 0..self.steps {
            let sum =
                |part: u64| ranks.iter().map(|numbers| numbers[(2 * index + part) as usize]).sum::<f64>();
            let mean = sum(0) / sum(1);
            sum_of_means += mean;
            samples += sum(1);
            if let Some(out) = &mut self.out {
                writeln!(out, "{},{mean:.9}", last_step + 1 - self.steps + index)?;
            }
        }
        if let Some(out) = &mut self.out {
            out.flush()?;
        }
        self.last = sum_of_means / self.steps as f64;
        Ok(samples as u64)
    }

    #[allow(clippy::print_stdout, reason = "the output of the program")]
    fn print(&mut self, step: u64, steps: u64, units: u64, name: &str) {
        let seconds = self.last_report.elapsed().as_secs_f64();
        self.last_report = Instant::now();
        println!(
            "step {:>6}/{steps}  loss {:.4}  {:>7.0} {name}/s  {:>6.1} ms/step",
            step + 1,
            self.last,
            units as f64 / seconds,
            seconds * 1e3 / self.steps as f64
        );
    }
}
