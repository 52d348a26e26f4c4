//! Predictions for other world sizes, compared with the truth: jobs are simulated on a few ranks, the model is fitted to what
//! the server recorded of them, and the same jobs are simulated on other numbers of ranks.

use analysis::scaling::Model;
use analysis::step::StepAnalysis;
use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;
use wire::views::Missing;
use wire::views::scaling::ScalingPrediction;

use crate::simulator::{Plan, Simulation, StepTruth};

/// The numbers of ranks that are predicted.
pub const WORLDS: [usize; 7] = [1, 4, 8, 16, 64, 256, 1_024];
/// The steps of the run that the model is fitted to.
const STEPS: u64 = 300;
/// The least number of steps of a run that is predicted, and of such steps on all its ranks together. The truth is their
/// mean, so it needs many.
const TRUE_STEPS: (u64, u64) = (200, 40_000);

/// How the latency of a collective grows with the number of ranks.
#[derive(Clone, Copy, Debug)]
pub enum Latency {
    /// With the number of ranks less 1.
    Ring,
    /// With its logarithm.
    Tree,
}

impl Latency {
    fn hops(self, ranks: usize) -> f64 {
        match self {
            Self::Ring => ranks as f64 - 1.0,
            Self::Tree => (ranks as f64).log2(),
        }
    }
}

/// A drawn job.
pub struct Job {
    /// The job on the ranks that the model is fitted to.
    pub plan: Plan,
    /// How the latency of its collectives grows.
    pub latency: Latency,
}

/// A prediction and the truth.
pub struct Checked {
    /// The true efficiency, against one rank.
    pub truth: f64,
    /// What the model says.
    pub predicted: ScalingPrediction,
}

impl Checked {
    /// Returns whether the truth is in the band.
    #[must_use]
    pub fn is_inside(&self) -> bool {
        (self.predicted.efficiency_low..=self.predicted.efficiency_high).contains(&self.truth)
    }
}

impl Job {
    /// Draws a job. With stalls, a rank stalls in one of 20 to 200 steps.
    #[must_use]
    pub fn draw(seed: u64, has_stalls: bool) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed ^ 0x7261_6e6b);
        let mut log_uniform =
            |least: f64, most: f64| (least.ln() + random.random::<f64>() * (most / least).ln()).exp();
        let compute = log_uniform(10e6, 200e6);
        let bucket_bytes = log_uniform(256e3, 25e6) as u64;
        let buckets = log_uniform(2.0, 12.9) as usize;
        // Together, all transfers take this share of backward, which is two thirds of compute.
        let transfers = log_uniform(0.05, 1.2) * compute * 2.0 / 3.0 / buckets as f64;
        let latency_share = log_uniform(0.01, 0.3);
        let jitter = log_uniform(0.002, 0.04);
        let sequence_spread = log_uniform(0.002, 0.08);
        let stall = log_uniform(0.2, 2.0) * compute;
        let stall_one_in = if has_stalls { log_uniform(20.0, 200.0) as u64 } else { 0 };
        let ranks = [2, 4, 8][random.random_range(0..3)];
        let latency = if random.random() { Latency::Ring } else { Latency::Tree };
        let plan = Plan {
            ranks,
            steps: STEPS,
            buckets,
            bucket_bytes,
            first_bucket_bytes: bucket_bytes / 4,
            compute: compute as i64,
            jitter,
            sequence_spread: if random.random() { sequence_spread } else { 0.0 },
            alpha: (transfers * latency_share) as i64,
            beta: transfers * (1.0 - latency_share) / bucket_bytes as f64,
            stall_one_in,
            stall: stall as i64,
            ..Plan::small(seed)
        };
        Self { plan, latency }
    }

    /// Returns the job on another number of ranks, with the batch per rank unchanged.
    fn scaled_to(&self, ranks: usize) -> Plan {
        let share = |ranks: usize| 1.0 - 1.0 / ranks as f64;
        let hops = self.latency.hops(ranks) / self.latency.hops(self.plan.ranks);
        let volume = share(ranks) / share(self.plan.ranks);
        Plan {
            ranks,
            steps: TRUE_STEPS.0.max(TRUE_STEPS.1 / ranks as u64),
            alpha: (self.plan.alpha as f64 * hops) as i64,
            beta: self.plan.beta * volume,
            seed: self.plan.seed ^ ((ranks as u64) << 32),
            ..self.plan.clone()
        }
    }

    /// Returns the mean step time on so many ranks, in nanoseconds.
    fn truth(&self, ranks: usize) -> f64 {
        let steps = Simulation::truth(&self.scaled_to(ranks));
        let ends =
            steps.first().zip(steps.last()).map(|(first, last)| StepTruth::end(last) - StepTruth::end(first));
        ends.unwrap_or(0) as f64 / (steps.len() - 1) as f64
    }

    /// Fits the model to the job and predicts it on other numbers of ranks ([`WORLDS`]).
    ///
    /// # Errors
    /// Returns the reason if the job cannot be modeled.
    pub fn check(&self) -> Result<Vec<Checked>, Missing> {
        let simulation = Simulation::run(&self.plan);
        let run = simulation.received();
        let report = run.report(usize::MAX, simulation.end());
        let steps = run.steps().newest(usize::MAX);
        let steps: Vec<&StepAnalysis> = steps.iter().map(AsRef::as_ref).collect();
        let model = Model::from_report(&report, &steps)?;
        let alone = self.truth(1);
        let others = WORLDS.into_iter().filter(|ranks| *ranks != self.plan.ranks);
        Ok(others
            .map(|ranks| Checked { truth: alone / self.truth(ranks), predicted: model.predict(ranks as u32) })
            .collect())
    }
}
