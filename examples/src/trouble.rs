//! Planted slowness: makes one rank slow in a known way, to check the analysis against the truth.
//!
//! Ranks may share cores, so input, compute and host trouble use *processor time of the training thread*, with the kind
//! of work that is slow in practice. A sleep would cost nothing on a busy machine. A slow network uses no processor
//! time, so network trouble does sleep.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use agent::clock::thread_cpu_nanos;
use anyhow::{Result, bail};
use candle_core::{Device, Tensor};
use clap::{Args, ValueEnum};
use reducer::{AbortHandle, CommError, Communicator, Control};
use wire::ids::{Rank, Seq};

use crate::random::Random;
use crate::world_rank::WorldRank;

/// The options for planted slowness.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Planted trouble")]
pub struct TroubleOptions {
    /// Make this rank slow; several ranks, separated by commas, are slow together
    #[arg(long, value_name = "RANK", value_delimiter = ',', requires_all = ["slow_phase", "slow_ms"])]
    pub slow_rank: Vec<u32>,
    /// Kind of slowness
    #[arg(long, value_enum, value_name = "PHASE", requires = "slow_rank")]
    pub slow_phase: Option<SlowPhase>,
    /// Extra time in each step, in milliseconds
    #[arg(long, value_name = "MS", requires = "slow_rank", value_parser = millis)]
    pub slow_ms: Option<f64>,
    /// First slow step
    #[arg(long, value_name = "STEP", requires = "slow_rank", default_value_t = 0)]
    pub slow_from: u64,
    /// Step at which the slowness ends (exclusive)
    #[arg(long, value_name = "STEP", requires = "slow_rank", default_value_t = u64::MAX, hide_default_value = true)]
    pub slow_to: u64,
    /// Alternate: slow for this many steps, then healthy for as many
    #[arg(long, value_name = "STEPS", requires = "slow_rank", value_parser = clap::value_parser!(u64).range(1..))]
    pub slow_every: Option<u64>,
}

fn millis(text: &str) -> std::result::Result<f64, String> {
    let reasonable = |millis: &f64| (0.0..=600_000.0).contains(millis);
    text.parse().ok().filter(reasonable).ok_or_else(|| "must be a number from 0 to 600000".into())
}

/// The kind of slowness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SlowPhase {
    /// Slower decoding and shuffling before each step (processor time)
    Input,
    /// More matrix products: a third in forward, the rest spread over backward (processor time)
    Compute,
    /// A varying amount of extra work, from a tenth to almost twice the mean per step, as with sequences of uneven
    /// length (processor time)
    Work,
    /// A walk over memory between forward and backward, outside any phase, as in a garbage collection (processor time)
    Host,
    /// Late delivery of every bucket by the network adapter, after the collective began (sleeps)
    Network,
}

/// The planted slowness of one rank. On other ranks it does nothing.
pub struct Trouble {
    planted: Option<Planted>,
    adapter: Arc<AtomicU64>,
}

struct Planted {
    phase: SlowPhase,
    nanos: f64,
    when: When,
    active: bool,
    /// The amount of slowness in this step relative to the mean: 1, except for uneven work.
    amount: f64,
    uneven: Uneven,
    work: Work,
}

impl Trouble {
    /// Creates the trouble that `options` plant on the rank at `place`.
    ///
    /// # Errors
    /// Returns an error if a named rank does not exist.
    pub fn new(options: &TroubleOptions, place: WorldRank) -> Result<Self> {
        let WorldRank { rank, world_size } = place;
        if let Some(slow) = options.slow_rank.iter().find(|slow| **slow >= world_size) {
            bail!("--slow-rank {slow}: the ranks are 0 to {}", world_size - 1);
        }
        let planted = match (options.slow_phase, options.slow_ms) {
            (Some(phase), Some(millis)) if options.slow_rank.contains(&rank.0) => Some(Planted {
                phase,
                nanos: millis * 1e6,
                when: When { from: options.slow_from, to: options.slow_to, interval: options.slow_every },
                active: false,
                amount: 1.0,
                uneven: Uneven::default(),
                work: Work::new()?,
            }),
            _ => None,
        };
        Ok(Self { planted, adapter: Arc::new(AtomicU64::new(0)) })
    }

    /// Puts the network adapter between the reducer and `comm`. The adapter is slow on a slow rank.
    #[must_use]
    pub fn wrap<C: Communicator>(&self, comm: C) -> SlowAdapter<C> {
        SlowAdapter { comm, delay_nanos: self.adapter.clone() }
    }

    /// Begins a step with its index and number of buckets.
    pub fn begin_step(&mut self, step: u64, buckets: usize) {
        let Some(planted) = &mut self.planted else { return };
        planted.active = planted.when.has(step);
        if planted.phase == SlowPhase::Work {
            planted.amount = planted.uneven.draw(&mut planted.work.random);
        }
        let is_slow = planted.active && planted.phase == SlowPhase::Network;
        let delay = if is_slow { planted.nanos / buckets.max(1) as f64 } else { 0.0 };
        self.adapter.store(delay as u64, Ordering::Relaxed);
    }

    /// Returns true if slowness is planted between forward and backward.
    #[must_use]
    pub fn is_host(&self) -> bool {
        self.planted.as_ref().is_some_and(|planted| planted.active && planted.phase == SlowPhase::Host)
    }

    /// Runs planted slowness of the input phase.
    pub fn input(&mut self) {
        self.burn(SlowPhase::Input, 1.0, Work::decode);
    }

    /// Runs planted slowness of the forward pass.
    pub fn forward(&mut self) {
        self.burn(SlowPhase::Compute, 1.0 / 3.0, Work::multiply);
        self.burn(SlowPhase::Work, 1.0 / 3.0, Work::multiply);
    }

    /// Runs planted slowness outside all phases.
    pub fn host(&mut self) {
        self.burn(SlowPhase::Host, 1.0, Work::walk);
    }

    /// Runs planted slowness of the backward pass. Called once for each of `parameters` parameters.
    pub fn backward(&mut self, parameters: usize) {
        self.burn(SlowPhase::Compute, 2.0 / 3.0 / parameters as f64, Work::multiply);
        self.burn(SlowPhase::Work, 2.0 / 3.0 / parameters as f64, Work::multiply);
    }

    fn burn(&mut self, phase: SlowPhase, share: f64, piece: fn(&mut Work)) {
        let Some(planted) = self.planted.as_mut().filter(|planted| planted.active && planted.phase == phase)
        else {
            return;
        };
        let end = thread_cpu_nanos() + (planted.nanos * planted.amount * share) as u64;
        while thread_cpu_nanos() < end {
            piece(&mut planted.work);
        }
    }
}

/// The steps that are slow.
struct When {
    from: u64,
    to: u64,
    interval: Option<u64>,
}

impl When {
    fn has(&self, step: u64) -> bool {
        (self.from..self.to).contains(&step)
            && self.interval.is_none_or(|steps| ((step - self.from) / steps).is_multiple_of(2))
    }
}

/// The amounts of uneven work. Every ten steps have the same ten amounts in a new order, so the mean is exactly 1.
#[derive(Default)]
struct Uneven(Vec<f64>);

impl Uneven {
    fn draw(&mut self, random: &mut Random) -> f64 {
        if self.0.is_empty() {
            self.0.extend((0..10).map(|tenth| 0.1 + 0.2 * f64::from(tenth)));
            random.shuffle(&mut self.0);
        }
        self.0.pop().unwrap_or(1.0)
    }
}

/// Work of several kinds, in pieces of some tens of microseconds.
struct Work {
    random: Random,
    text: Vec<u8>,
    matrix: Tensor,
    /// A cycle through all memory in an order that no cache can predict: `next[i]` follows `i`.
    next: Vec<u32>,
    at: u32,
}

impl Work {
    fn new() -> Result<Self> {
        let mut random = Random::new(1, 1);
        let mut order: Vec<u32> = (0..1 << 20).collect();
        random.shuffle(&mut order);
        let mut next = vec![0; order.len()];
        for (index, here) in order.iter().enumerate() {
            next[*here as usize] = order[(index + 1) % order.len()];
        }
        let matrix = Tensor::from_vec(random.normal(64 * 64, 0.1), (64, 64), &Device::Cpu)?;
        let text = (0..8_192).map(|_| random.next_u64() as u8).collect();
        Ok(Self { random, text, matrix, next, at: 0 })
    }

    fn decode(&mut self) {
        self.random.shuffle(&mut self.text);
        black_box(self.text.iter().fold(0_u32, |sum, byte| sum.rotate_left(5) ^ u32::from(*byte)));
    }

    fn multiply(&mut self) {
        // Two matrices of equal size can always be multiplied. An error would only make the loop take longer.
        let _product = black_box(self.matrix.matmul(&self.matrix));
    }

    fn walk(&mut self) {
        for _ in 0..2_000 {
            self.at = self.next[self.at as usize];
        }
        black_box(self.at);
    }
}

/// A communicator that delivers every all-reduce late to this rank. The other ranks have their result in time and then
/// wait for this rank in the next collective or the next step.
pub struct SlowAdapter<C> {
    comm: C,
    delay_nanos: Arc<AtomicU64>,
}

impl<C: Communicator> Communicator for SlowAdapter<C> {
    fn rank(&self) -> Rank {
        self.comm.rank()
    }

    fn world_size(&self) -> u32 {
        self.comm.world_size()
    }

    fn next_seq(&self) -> Seq {
        self.comm.next_seq()
    }

    fn all_reduce(&mut self, data: &mut [f32]) -> Result<(), CommError> {
        self.comm.all_reduce(data)?;
        let nanos = self.delay_nanos.load(Ordering::Relaxed);
        if nanos > 0 {
            std::thread::sleep(Duration::from_nanos(nanos));
        }
        Ok(())
    }

    fn broadcast(&mut self, root: Rank, bytes: &mut Vec<u8>) -> Result<(), CommError> {
        self.comm.broadcast(root, bytes)
    }

    fn all_gather(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, CommError> {
        self.comm.all_gather(bytes)
    }

    fn abort_handle(&self) -> AbortHandle {
        self.comm.abort_handle()
    }
}

impl<C: Control> Control for SlowAdapter<C> {
    fn count(&mut self) -> Result<Seq, CommError> {
        self.comm.count()
    }

    fn verdict(&self) -> Option<CommError> {
        self.comm.verdict()
    }

    fn overdue(&mut self, seq: Seq, waited: Duration) -> CommError {
        self.comm.overdue(seq, waited)
    }
}
