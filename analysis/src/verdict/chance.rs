//! How likely it is that chance alone makes one rank stand out as much as the worst one does.
//!
//! Chance is measured on the recorded delays themselves: in each of many draws, every delay is charged to any of the ranks of
//! its group. The worst rank stands out if it has more than the worst rank has in all but [`MAX_CHANCE`] of the draws.

use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;
use wire::views::Group;

/// The largest probability of a false alarm: that in a job whose ranks are equally often last, some rank is named.
pub(super) const MAX_CHANCE: f64 = 0.01;
/// The number of draws. The probability is known to a tenth of its limit.
const DRAWS: u32 = 20_000;
/// The delay that counts as none, in nanoseconds: kernels on several devices start this far apart without any reason.
const UNSTEADY_NANOS: f64 = 20_000.0;
/// The seed of the draws, so that the same records give the same verdict.
const SEED: u64 = 0x5eed;

/// The rank of a group that was last, and by how much after the one before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delay {
    pub(super) rank: usize,
    pub(super) nanos: f64,
    /// The group, any of whose ranks may be last by chance.
    pub(super) group: Group,
    /// The lowest rank of the group.
    pub(super) first: usize,
}

impl Delay {
    /// Returns the weight of the delay. A logarithm, because one long delay alone says nothing about whose they are.
    fn weight(self) -> f64 {
        (self.nanos / UNSTEADY_NANOS).ln_1p()
    }
}

/// Returns the weight of the delays of each rank.
pub(super) fn scores(delays: &[Delay], ranks: usize) -> Vec<f64> {
    let mut scores = vec![0.0; ranks];
    for delay in delays {
        scores[delay.rank] += delay.weight();
    }
    scores
}

/// Returns the probability that the worst rank has at least `score` if any rank of its group is equally likely to have each
/// delay.
pub(super) fn chance(delays: &[Delay], ranks: usize, score: f64) -> f64 {
    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    let weights: Vec<(f64, &Delay)> = delays.iter().map(|delay| (delay.weight(), delay)).collect();
    let mut drawn = vec![0.0; ranks];
    let mut reached = 0;
    for _ in 0..DRAWS {
        drawn.fill(0.0);
        for (weight, Delay { group, first, .. }) in &weights {
            let place = random.random_range(0..group.ranks as usize);
            drawn[first + place * group.stride as usize] += weight;
        }
        // A sum in another order differs in its last digits.
        reached += u32::from(drawn.iter().any(|rank_score| *rank_score >= score * (1.0 - 1e-9)));
    }
    // The recorded delays are one of the draws (Davison and Hinkley, 1997).
    f64::from(reached + 1) / f64::from(DRAWS + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delay(rank: usize, nanos: f64, ranks: usize) -> Delay {
        Delay { rank, nanos, group: Group::from_ranks(0..ranks), first: 0 }
    }

    fn delays(late: &[(usize, u64)], ranks: usize) -> Vec<Delay> {
        late.iter().map(|&(rank, micros)| delay(rank, micros as f64 * 1e3, ranks)).collect()
    }

    fn chance_of(late: &[(usize, u64)], ranks: usize) -> f64 {
        let delays = delays(late, ranks);
        let worst = scores(&delays, ranks).into_iter().fold(0.0, f64::max);
        chance(&delays, ranks, worst)
    }

    #[test]
    fn chance_is_that_of_equally_likely_ranks() {
        // One of four ranks is last in all three collectives: 4 / 4^3.
        let thrice = chance_of(&[(2, 1_000), (2, 1_000), (2, 1_000)], 4);
        assert!((thrice - 1.0 / 16.0).abs() < 0.01, "{thrice}");
        assert!(chance_of(&[(2, 1_000_000)], 4) > 0.99, "one delay, however long");
        assert!(chance_of(&[(2, 1_000_000), (2, 9), (1, 8), (3, 9), (0, 9)], 4) > 0.5);
        assert!(chance_of(&[(0, 5), (1, 5), (2, 5), (3, 5)], 4) > 0.9);
        assert!(chance_of(&[(2, 900); 6], 4) < MAX_CHANCE);
    }

    /// Draws healthy jobs: in how many is a rank beyond the limit?
    #[test]
    fn in_healthy_jobs_a_rank_stands_out_as_seldom_as_the_limit_says() {
        let mut random = ChaCha8Rng::seed_from_u64(3);
        let jobs = 300;
        let alarms = (0..jobs).filter(|_| {
            let ranks = random.random_range(2..9);
            // Delays of all sizes, a few of them long.
            let delays: Vec<Delay> = (0..random.random_range(3..40))
                .map(|_| {
                    let rank = random.random_range(0..ranks);
                    delay(rank, 10_f64.powf(random.random_range(3.0..9.0)), ranks)
                })
                .collect();
            let worst = scores(&delays, ranks).into_iter().fold(0.0, f64::max);
            chance(&delays, ranks, worst) <= MAX_CHANCE
        });
        // 3 of 300 are expected; 10 are less likely than 0.1 %.
        assert!(alarms.count() < 10);
    }
}
