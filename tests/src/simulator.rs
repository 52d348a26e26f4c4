//! A simulated job: from a seed, the batches that its agents would send, and the true answers.
//!
//! Ranks draw their input, compute and sequence lengths; buckets become ready during backward; a collective
//! begins when its last rank starts it and takes `alpha + beta * bytes`; the next step begins when the
//! optimizer is done. Hosts have clocks with offsets and drifts, probes have delays that differ by way,
//! batches come late or not at all. Faults are planted, and the same draws are run without them, so that their
//! true cost is known. Nothing here is a measurement, and no figure from here is ever given as one.

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

/// What a seed made.
pub struct Simulation {
    /// What the server receives, in the order it comes.
    pub batches: Vec<Received>,
    /// What truly happened, step by step.
    pub steps: Vec<StepTruth>,
    /// What fixing the planted faults would save in each step, the mean over steps, in nanoseconds.
    pub cost_nanos_per_step: f64,
    /// The hosts' clocks.
    pub clocks: Vec<HostClock>,
}

impl Simulation {
    /// Runs the plan. The same plan makes the same simulation.
    #[must_use]
    pub fn run(plan: &Plan) -> Self {
        let steps = timeline::steps(plan, &plan.faults);
        let without = timeline::steps(plan, &[]);
        let end = |steps: &[StepTruth]| steps.last().map_or(0, StepTruth::end);
        let cost = (end(&steps) - end(&without)) as f64 / plan.steps as f64;
        let mut random = ChaCha8Rng::seed_from_u64(plan.seed ^ 0x5eed_c10c);
        let clocks = clocks::draw(plan, &mut random);
        let batches = sending::batches(plan, &steps, &clocks, &mut random);
        Self { batches, steps, cost_nanos_per_step: cost, clocks }
    }

    /// The server's state after all batches came: the real code, fed as it is fed by a network.
    ///
    /// # Panics
    /// When the server refuses a batch; the simulator makes none that it may refuse.
    #[must_use]
    pub fn received(&self) -> Run {
        let first = &self.batches[0];
        let mut run = Run::new(first.batch.run.clone(), first.batch.world_size, first.at);
        for Received { at, batch } in &self.batches {
            run.apply(batch.clone(), *at).expect("a simulated batch is a good one");
        }
        run
    }

    /// When the last batch came.
    #[must_use]
    pub fn end(&self) -> ServerNanos {
        self.batches.last().map_or(ServerNanos(0), |received| received.at)
    }
}
