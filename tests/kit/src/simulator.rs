//! A simulated job. From a seed, it produces the batches that the job's agents would send, and the true answers.
//!
//! Ranks draw their input time, compute time and sequence lengths. Buckets become ready during backward. A collective
//! begins when its last rank starts it and takes `alpha + beta * bytes`. The next step begins when the optimizer is
//! done. The clocks of hosts have offsets and drifts, the two directions of a probe have different delays, and batches
//! arrive late or not at all. The same draws run with and without the planted faults, which gives the true cost of the
//! faults. Simulated figures are never presented as measurements.

mod clocks;
mod plan;
mod sending;
mod timeline;

pub use clocks::HostClock;
pub use plan::{Fault, FaultKind, Plan};
pub use timeline::{RankTruth, StepTruth};

use paceline::state::run::Run;
use paceline::store::segment::Received;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;
use wire::clock::ServerNanos;

/// The result of a simulation.
pub struct Simulation {
    /// The batches that the server receives, in order of arrival.
    pub batches: Vec<Received>,
    /// The true times, step by step.
    pub steps: Vec<StepTruth>,
    /// The true saving from fixing the planted faults, in nanoseconds per step on average.
    pub cost_nanos_per_step: f64,
    pub clocks: Vec<HostClock>,
}

impl Simulation {
    /// Runs the plan. The same plan gives the same simulation.
    #[must_use]
    pub fn run(plan: &Plan) -> Self {
        let steps = timeline::steps(plan, &plan.faults);
        let healthy = timeline::steps(plan, &[]);
        let end = |steps: &[StepTruth]| steps.last().map_or(0, StepTruth::end);
        let cost = (end(&steps) - end(&healthy)) as f64 / plan.steps as f64;
        let mut random = ChaCha8Rng::seed_from_u64(plan.seed ^ 0x5eed_c10c);
        let clocks = clocks::draw(plan, &mut random);
        let batches = sending::batches(plan, &steps, &clocks, &mut random);
        Self { batches, steps, cost_nanos_per_step: cost, clocks }
    }

    /// Returns the true times of a plan, without what the agents send.
    #[must_use]
    pub fn truth(plan: &Plan) -> Vec<StepTruth> {
        timeline::steps(plan, &plan.faults)
    }

    /// Returns the server's state after all batches. The real code processes them as if they came over the network.
    ///
    /// # Panics
    /// Panics if the server rejects a batch; it must accept all simulated batches.
    #[must_use]
    pub fn received(&self) -> Run {
        let first = &self.batches[0];
        let mut run = Run::new(first.batch.run.clone(), first.batch.world_size, first.at);
        for Received { at, batch } in &self.batches {
            run.apply(batch.clone(), *at).expect("a simulated batch is valid");
        }
        run
    }

    /// Returns the arrival time of the last batch.
    #[must_use]
    pub fn end(&self) -> ServerNanos {
        self.batches.last().map_or(ServerNanos(0), |received| received.at)
    }
}
