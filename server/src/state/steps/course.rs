//! The course of a run's step time in few values, for the list of runs.
//!
//! The values are kept up to date step by step, because the list is sent every second with up to 10,000 runs.

use wire::views::RunSummary;

/// The sum and the number of the step times that one value stands for.
#[derive(Clone, Copy, Default)]
struct Bin {
    nanos: f64,
    steps: u64,
}

/// Means of equally many consecutive step times. Once all bins are full, each pair becomes one bin, so a longer run has
/// coarser values.
#[derive(Default)]
pub struct Course {
    bins: Vec<Bin>,
    /// The logarithm (base 2) of the number of steps in a full bin.
    doublings: u32,
}

impl Course {
    /// Adds the next step time, in nanoseconds.
    pub fn push(&mut self, nanos: f64) {
        let full = 1 << self.doublings;
        if self.bins.last().is_none_or(|bin| bin.steps >= full) {
            if self.bins.len() >= RunSummary::COURSE {
                self.halve();
            }
            self.bins.push(Bin::default());
        }
        if let Some(bin) = self.bins.last_mut() {
            bin.nanos += nanos;
            bin.steps += 1;
        }
    }

    fn halve(&mut self) {
        let joined = |pair: &[Bin]| Bin {
            nanos: pair.iter().map(|bin| bin.nanos).sum(),
            steps: pair.iter().map(|bin| bin.steps).sum(),
        };
        self.bins = self.bins.chunks(2).map(joined).collect();
        self.doublings += 1;
    }

    /// Returns the mean step time of each bin, in nanoseconds, oldest first.
    #[must_use]
    pub fn means(&self) -> Vec<f32> {
        self.bins.iter().map(|bin| (bin.nanos / bin.steps as f64) as f32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn course(values: impl Iterator<Item = u32>) -> Vec<f32> {
        let mut course = Course::default();
        values.for_each(|value| course.push(value.into()));
        course.means()
    }

    #[test]
    fn a_short_run_has_every_step_time() {
        assert!(course(0..0).is_empty());
        assert_eq!(course(1..4), [1.0, 2.0, 3.0]);
        assert_eq!(course(0..32).len(), RunSummary::COURSE);
    }

    #[test]
    fn a_longer_run_has_means_of_equally_many_steps() {
        // 33 steps: 16 pairs, and the newest step alone.
        let pairs = course(0..33);
        assert_eq!((pairs.len(), pairs[0], pairs[15], pairs[16]), (17, 0.5, 30.5, 32.0));
        // The second half of the run takes twice as long.
        let halves = course((0..1_024).map(|step| if step < 512 { 10 } else { 20 }));
        assert_eq!(halves.len(), 32);
        assert!(
            halves[..16].iter().all(|&mean| mean == 10.0) && halves[16..].iter().all(|&mean| mean == 20.0)
        );
    }

    #[test]
    fn the_number_of_values_is_bounded() {
        for steps in [100, 1_000, 100_000] {
            let values = course(0..steps).len();
            assert!((RunSummary::COURSE / 2..=RunSummary::COURSE).contains(&values), "{steps}: {values}");
        }
    }
}
