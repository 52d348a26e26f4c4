//! The assignment of samples to ranks and steps.
//!
//! Every epoch visits all samples in a new order. The order depends on seed and epoch only, so it is the same on all
//! ranks. A step uses the next `batch` samples, and the ranks divide them evenly: together they see what a single
//! process would see. The last step of an epoch may be smaller and its shares uneven; the share passed to the reducer
//! keeps the average exact. No sample is dropped or repeated.

use std::ops::Range;

use reducer::Share;

use crate::random::Random;

/// Assigns samples to one rank.
pub struct Sampler {
    samples: usize,
    batch: usize,
    ranks: usize,
    rank: usize,
    seed: u64,
    /// Stored because consecutive steps need the same order.
    order: Option<EpochOrder>,
}

/// The order of the samples in one epoch.
struct EpochOrder {
    epoch: u64,
    samples: Vec<u32>,
}

/// The samples of one rank in one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepSamples {
    /// The index of the epoch.
    pub epoch: u64,
    /// The samples of this rank.
    pub mine: Vec<u32>,
    /// The number of samples of all ranks in this step.
    pub total: usize,
}

impl StepSamples {
    /// Returns the weight of this rank's mean gradient.
    #[must_use]
    pub fn share(&self) -> Share {
        if self.mine.is_empty() {
            Share::nothing()
        } else {
            Share::new(self.mine.len() as u64, self.total as u64)
        }
    }
}

impl Sampler {
    /// Creates the sampler of `rank`. Each step uses `batch` of `samples` samples over all ranks.
    ///
    /// # Panics
    /// Panics if `samples` or `batch` is 0, or if `rank` is not below `ranks`.
    #[must_use]
    pub fn new(samples: usize, batch: usize, ranks: u32, rank: u32, seed: u64) -> Self {
        assert!(
            samples > 0 && batch > 0 && rank < ranks,
            "{samples} samples, batch {batch}, rank {rank} of {ranks}"
        );
        Self { samples, batch, ranks: ranks as usize, rank: rank as usize, seed, order: None }
    }

    /// Returns the number of steps in an epoch.
    #[must_use]
    pub fn steps_per_epoch(&self) -> u64 {
        self.samples.div_ceil(self.batch) as u64
    }

    /// Returns this rank's part of `step`, which is counted over all epochs.
    pub fn part(&mut self, step: u64) -> StepSamples {
        let epoch = step / self.steps_per_epoch();
        let start = (step % self.steps_per_epoch()) as usize * self.batch;
        let total = self.batch.min(self.samples - start);
        let mine = share_of(total, self.ranks, self.rank);
        let order = self.order(epoch);
        StepSamples { epoch, mine: order[start + mine.start..start + mine.end].to_vec(), total }
    }

    fn order(&mut self, epoch: u64) -> &[u32] {
        if self.order.as_ref().is_none_or(|order| order.epoch != epoch) {
            let mut samples: Vec<u32> = (0..self.samples as u32).collect();
            Random::new(self.seed, epoch).shuffle(&mut samples);
            self.order = Some(EpochOrder { epoch, samples });
        }
        self.order.as_ref().map_or(&[], |order| &order.samples)
    }
}

/// Returns one rank's range of an even division of `total` items. The first ranks have one item more.
fn share_of(total: usize, ranks: usize, rank: usize) -> Range<usize> {
    let (base, extra) = (total / ranks, total % ranks);
    let start = rank * base + rank.min(extra);
    start..start + base + usize::from(rank < extra)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_epoch_uses_each_sample_once(
            samples in 1_usize..300, batch in 1_usize..40, ranks in 1_u32..6, seed: u64, epoch in 0_u64..3,
        ) {
            let mut alone = Sampler::new(samples, batch, 1, 0, seed);
            let mut world: Vec<_> = (0..ranks).map(|rank| Sampler::new(samples, batch, ranks, rank, seed)).collect();
            let steps = alone.steps_per_epoch();
            let mut seen = Vec::new();
            for step in epoch * steps..(epoch + 1) * steps {
                let parts: Vec<_> = world.iter_mut().map(|sampler| sampler.part(step)).collect();
                let union: Vec<u32> = parts.iter().flat_map(|part| part.mine.clone()).collect();
                let whole = alone.part(step);
                prop_assert_eq!(whole.epoch, epoch);
                prop_assert_eq!(&union, &whole.mine);
                prop_assert!(parts.iter().all(|part| part.total == union.len()));
                let shares: f32 = parts.iter().map(|part| part.share().factor()).sum();
                prop_assert!((shares - 1.0).abs() < 1e-6);
                let sizes = parts.iter().map(|part| part.mine.len());
                prop_assert!(sizes.clone().max().unwrap() - sizes.min().unwrap() <= 1);
                seen.extend(union);
            }
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..samples as u32).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_order_depends_on_epoch_and_seed_only() {
        let mut a = Sampler::new(100, 100, 1, 0, 7);
        let mut b = Sampler::new(100, 100, 1, 0, 8);
        assert_ne!(a.part(0).mine, a.part(1).mine);
        assert_ne!(a.part(0).mine, b.part(0).mine);
        assert_eq!(a.part(0), Sampler::new(100, 100, 1, 0, 7).part(0));
    }
}
