//! The true timeline of a simulated job: the phases and collectives of every rank in true time.

use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;

use super::plan::{Fault, FaultKind, Plan};

/// One rank's step in true time, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankTruth {
    /// The begin of the step.
    pub begin: i64,
    pub input_end: i64,
    /// The begin of forward. The time since the end of input belongs to the host.
    pub forward_begin: i64,
    /// The end of forward and begin of backward.
    pub forward_end: i64,
    /// The end of backward's compute. The thread then waits for the buckets.
    pub backward_end: i64,
    /// The time when the last bucket is reduced and the optimizer begins.
    pub reduced: i64,
    /// The end of the step.
    pub end: i64,
    /// The ready, start and end times of the buckets.
    pub buckets: Vec<(i64, i64, i64)>,
}

/// One step of all ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepTruth {
    /// The ranks, by index.
    pub ranks: Vec<RankTruth>,
}

impl StepTruth {
    /// Returns the end of the last rank's step.
    #[must_use]
    pub fn end(&self) -> i64 {
        self.ranks.iter().map(|rank| rank.end).max().unwrap_or(0)
    }

    /// Returns the true wait of a rank in a bucket.
    #[must_use]
    pub fn wait(&self, rank: usize, bucket: usize) -> i64 {
        let last = self.ranks.iter().map(|rank| rank.buckets[bucket].1).max().unwrap_or(0);
        last - self.ranks[rank].buckets[bucket].1
    }
}

const INPUT: i64 = 300_000;
const HOST: i64 = 50_000;
const OPTIMIZER: i64 = 2_000_000;

/// Simulates all steps. Draws depend on the seed alone, so plans that differ only in their faults share all draws.
pub(super) fn steps(plan: &Plan, faults: &[Fault]) -> Vec<StepTruth> {
    let mut random = ChaCha8Rng::seed_from_u64(plan.seed);
    let mut begins = vec![0; plan.ranks];
    let mut steps: Vec<StepTruth> = Vec::new();
    for step in 0..plan.steps {
        let active = faults.iter().filter(|fault| (fault.from..fault.to).contains(&step));
        let active: Vec<&Fault> = active.collect();
        let truth = one_step(plan, &begins, &active, &mut random);
        begins = truth.ranks.iter().map(|rank| rank.end).collect();
        steps.push(truth);
    }
    steps
}

fn one_step(plan: &Plan, begins: &[i64], faults: &[&Fault], random: &mut ChaCha8Rng) -> StepTruth {
    let extra = |rank: usize, kind: FaultKind| -> i64 {
        faults.iter().filter(|fault| fault.rank == rank && fault.kind == kind).map(|fault| fault.nanos).sum()
    };
    let mut ranks: Vec<RankTruth> = Vec::with_capacity(plan.ranks);
    for (rank, &begin) in begins.iter().enumerate() {
        let length = 1.0 + plan.sequence_spread * normal(random);
        let more = extra(rank, FaultKind::MoreWork) as f64 * (1.0 + 0.5 * normal(random)).max(0.0);
        let mut part = |share: f64| {
            let wanted = plan.compute as f64 * share * length * (1.0 + plan.jitter * normal(random));
            wanted.max(1_000.0) as i64
        };
        let slow = extra(rank, FaultKind::Compute) + more as i64;
        let (forward, backward) = (part(1.0 / 3.0) + slow / 3, part(2.0 / 3.0) + slow - slow / 3);
        let input_end = begin + INPUT + extra(rank, FaultKind::Input);
        let forward_begin = input_end + HOST + extra(rank, FaultKind::Host) + stall(plan, random);
        let forward_end = forward_begin + forward;
        let backward_end = forward_end + backward;
        let ready = |bucket: usize| forward_end + backward * (bucket as i64 + 1) / plan.buckets as i64;
        let buckets = (0..plan.buckets).map(|bucket| (ready(bucket), 0, 0)).collect();
        ranks.push(RankTruth {
            begin,
            input_end,
            forward_begin,
            forward_end,
            backward_end,
            reduced: 0,
            end: 0,
            buckets,
        });
    }
    let delays: Vec<i64> =
        (0..plan.ranks).map(|rank| extra(rank, FaultKind::Network) / plan.buckets as i64).collect();
    reduce(plan, &mut ranks, &delays, random);
    for rank in &mut ranks {
        let last = rank.buckets.last().map_or(rank.backward_end, |bucket| bucket.2);
        rank.reduced = last.max(rank.backward_end);
        rank.end = rank.reduced + OPTIMIZER + random.random_range(0..20_000);
    }
    StepTruth { ranks }
}

/// Simulates the collectives. A bucket starts on a rank once it is ready and the previous bucket is done. The transfer
/// begins when all ranks have started.
fn reduce(plan: &Plan, ranks: &mut [RankTruth], delays: &[i64], random: &mut ChaCha8Rng) {
    let mut free = vec![i64::MIN; ranks.len()];
    for bucket in 0..plan.buckets {
        for (rank, free) in ranks.iter_mut().zip(&free) {
            rank.buckets[bucket].1 = rank.buckets[bucket].0.max(*free) + 5_000;
        }
        let begin = ranks.iter().map(|rank| rank.buckets[bucket].1).max().unwrap_or(0);
        let transfer = plan.alpha + (plan.beta * plan.bytes(bucket) as f64) as i64;
        let transfer = (transfer as f64 * (1.0 + 0.05 * normal(random).abs())) as i64;
        for ((rank, free), delay) in ranks.iter_mut().zip(&mut free).zip(delays) {
            // Ranks leave a collective within some microseconds of each other.
            rank.buckets[bucket].2 = begin + transfer + delay + random.random_range(0..10_000);
            *free = rank.buckets[bucket].2;
        }
    }
}

/// Draws how long a rank stalls in a step.
fn stall(plan: &Plan, random: &mut ChaCha8Rng) -> i64 {
    // Plans without stalls draw nothing, so that their draws are those of plans that know no stalls.
    if plan.stall_one_in == 0 || random.random_range(0..plan.stall_one_in) > 0 {
        return 0;
    }
    (-(1.0 - random.random::<f64>()).ln() * plan.stall as f64) as i64
}

/// Returns a standard normal draw, as the sum of twelve uniform draws (Irwin-Hall). Its tails end at six.
fn normal(random: &mut ChaCha8Rng) -> f64 {
    (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0
}
