//! How often to write a checkpoint, from how long one takes and how often a device fails.

/// The failures and the checkpoints of a job; times in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Failures {
    /// The mean time between failures of the job, M.
    pub failure_interval: f64,
    /// The time that training waits for a checkpoint, d.
    pub checkpoint: f64,
}

impl Failures {
    /// Returns the failures of a job on `ranks` devices. Each device fails every `device_between` seconds on average.
    #[must_use]
    pub fn new(ranks: u32, device_between: f64, checkpoint: f64) -> Self {
        Self { failure_interval: device_between / f64::from(ranks), checkpoint }
    }

    /// Returns the time of training between two checkpoints that loses the least: t = sqrt(2 d M) (1 + sqrt(d / 2M) / 3 +
    /// d / 18M) - d, or M if a checkpoint takes longer than 2 M (Daly, 2006; the first factor alone is Young's, 1974).
    #[must_use]
    pub fn interval(&self) -> f64 {
        let Self { failure_interval, checkpoint } = *self;
        if checkpoint >= 2.0 * failure_interval {
            return failure_interval;
        }
        let ratio = checkpoint / (2.0 * failure_interval);
        (2.0 * checkpoint * failure_interval).sqrt() * (1.0 + ratio.sqrt() / 3.0 + ratio / 9.0) - checkpoint
    }

    /// Returns the share of the time that checkpoints and repeated work take, 0 to 1, if `restart` seconds pass from a
    /// failure to the first step. Expected wall time over useful time: M e^(R/M) (e^((t+d)/M) - 1) / t (Daly, 2006).
    #[must_use]
    pub fn lost(&self, restart: f64) -> f64 {
        let (interval, failure_interval) = (self.interval(), self.failure_interval);
        let wall = failure_interval
            * (restart / failure_interval).exp()
            * (((interval + self.checkpoint) / failure_interval).exp_m1());
        1.0 - interval / wall
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt as _, SeedableRng as _};

    use super::*;

    #[test]
    fn an_interval_is_near_that_of_young_if_failures_are_rare() {
        let failures = Failures::new(1_000, 1_000.0 * 86_400.0 * 365.0, 30.0);
        let young = (2.0 * 30.0 * 86_400.0 * 365.0_f64).sqrt();
        assert!((failures.interval() / young - 1.0).abs() < 0.01);
        assert_eq!(Failures { failure_interval: 10.0, checkpoint: 30.0 }.interval(), 10.0);
    }

    /// A simulated job with failures at random times loses what the formula says, and loses more with other intervals.
    #[test]
    fn a_simulated_job_loses_as_much_and_least_at_the_interval() {
        let failures = Failures { failure_interval: 3_600.0, checkpoint: 60.0 };
        let lost = |interval: f64| simulated(&failures, interval, 120.0);
        let at = failures.interval();
        assert!((lost(at) - failures.lost(120.0)).abs() < 0.01, "{} {}", lost(at), failures.lost(120.0));
        assert!(lost(at) < lost(at / 3.0) && lost(at) < lost(at * 3.0));
    }

    fn simulated(failures: &Failures, interval: f64, restart: f64) -> f64 {
        let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(7);
        let (mut wall, mut useful) = (0.0, 0.0);
        let mut until_failure = || -failures.failure_interval * (1.0 - random.random::<f64>()).ln();
        let mut failure = until_failure();
        // A failure may also hit the restart.
        let mut needed = interval + failures.checkpoint;
        while useful < 4e7 {
            if failure >= needed {
                failure -= needed;
                wall += needed;
                useful += interval;
                needed = interval + failures.checkpoint;
            } else {
                wall += failure;
                failure = until_failure();
                needed = restart + interval + failures.checkpoint;
            }
        }
        1.0 - useful / wall
    }
}
