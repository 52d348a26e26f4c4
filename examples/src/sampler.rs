//! Which samples a rank works on in which step.
//!
//! Every epoch is a new order of all samples, the same on all ranks because it comes from seed and epoch. A
//! step takes the next `batch` of them, and each rank an even share in the order of ranks: together the ranks
//! see what a single process would. The last step of an epoch may be smaller and its shares uneven; the share
//! that the reducer is told keeps the average exact. No rank drops or repeats a sample.

use std::ops::Range;

use reducer::Share;

use crate::random::Random;

/// Deals samples to ranks.
pub struct Sampler {
    samples: usize,
    batch: usize,
    ranks: usize,
    rank: usize,
    seed: u64,
    /// The order of one epoch, kept because consecutive steps ask for the same.
    epoch: Option<(u64, Vec<u32>)>,
}

/// One rank's part of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The epoch, from 0.
    pub epoch: u64,
    /// This rank's samples.
    pub mine: Vec<u32>,
    /// How many samples all ranks have in this step.
    pub total: usize,
}

impl Part {
    /// How much this rank's mean gradient counts.
    #[must_use]
    pub fn share(&self) -> Share {
        if self.mine.is_empty() {
            Share::nothing()
        } else {
            Share::of(self.mine.len() as u64, self.total as u64)
        }
    }
}

impl Sampler {
    /// Deals `samples` samples, `batch` a step over all ranks.
    ///
    /// # Panics
    /// When there is no sample, no rank or no batch.
    #[must_use]
    pub fn new(samples: usize, batch: usize, ranks: u32, rank: u32, seed: u64) -> Self {
        assert!(
            samples > 0 && batch > 0 && rank < ranks,
            "{samples} samples, batch {batch}, rank {rank} of {ranks}"
        );
        Self { samples, batch, ranks: ranks as usize, rank: rank as usize, seed, epoch: None }
    }

    /// Steps of one epoch.
    #[must_use]
    pub fn steps_per_epoch(&self) -> u64 {
        self.samples.div_ceil(self.batch) as u64
    }

    /// This rank's part of `step`, counted over all epochs.
    pub fn part(&mut self, step: u64) -> Part {
        let epoch = step / self.steps_per_epoch();
        let start = (step % self.steps_per_epoch()) as usize * self.batch;
        let total = self.batch.min(self.samples - start);
        let mine = share_of(total, self.ranks, self.rank);
        let order = self.order(epoch);
        Part { epoch, mine: order[start + mine.start..start + mine.end].to_vec(), total }
    }

    fn order(&mut self, epoch: u64) -> &[u32] {
        if self.epoch.as_ref().is_none_or(|(current, _)| *current != epoch) {
            let mut order: Vec<u32> = (0..self.samples as u32).collect();
            Random::new(self.seed, epoch).shuffle(&mut order);
            self.epoch = Some((epoch, order));
        }
        self.epoch.as_ref().map_or(&[], |(_, order)| order)
    }
}

/// An even cut of `total` things: the first ranks have one more.
fn share_of(total: usize, ranks: usize, rank: usize) -> Range<usize> {
    let (each, extra) = (total / ranks, total % ranks);
    let start = rank * each + rank.min(extra);
    start..start + each + usize::from(rank < extra)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_sample_comes_once_an_epoch(
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
    fn epochs_and_seeds_differ() {
        let mut a = Sampler::new(100, 100, 1, 0, 7);
        let mut b = Sampler::new(100, 100, 1, 0, 8);
        assert_ne!(a.part(0).mine, a.part(1).mine);
        assert_ne!(a.part(0).mine, b.part(0).mine);
        assert_eq!(a.part(0), Sampler::new(100, 100, 1, 0, 7).part(0));
    }
}
