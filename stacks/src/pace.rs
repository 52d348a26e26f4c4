//! When samples are taken.

use std::time::{Duration, Instant};

use crate::Window;

/// The time in which one sample is taken.
const EVERY: Duration = Duration::from_millis(40);
/// The golden ratio. Its multiples, without their whole parts, spread evenly over 0 to 1, however many there are.
const GOLDEN: f64 = 1.618_033_988_749_895;

/// One sample in every 40 ms, each time at another place in them. At equal distances, samples of a job with steps of 40 ms
/// would all be of the same place in the step.
pub struct Pace {
    begun: Instant,
    taken: u32,
}

impl Pace {
    /// Begins now.
    #[must_use]
    pub fn begin() -> Self {
        Self { begun: Instant::now(), taken: 0 }
    }

    /// Waits for the time of the next sample, or until the window is over. Late samples are not made up for.
    pub fn wait(&mut self, window: &Window) {
        let elapsed = self.begun.elapsed();
        let passed = (elapsed.as_nanos() / EVERY.as_nanos()) as u32;
        self.taken = passed.max(self.taken + 1);
        window.wait(sample_time(self.taken).saturating_sub(elapsed));
    }
}

/// Returns the time of a sample since the beginning.
fn sample_time(sample: u32) -> Duration {
    EVERY.mul_f64(f64::from(sample) + (f64::from(sample) * GOLDEN).fract())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_spread_over_a_step_of_the_same_length() {
        let mut tenths = [0; 10];
        for sample in 1..=50 {
            let place = sample_time(sample).as_secs_f64() / EVERY.as_secs_f64();
            tenths[(place.fract() * 10.0) as usize] += 1;
        }
        assert!(tenths.iter().all(|count| (3..=7).contains(count)), "{tenths:?}");
    }
}
