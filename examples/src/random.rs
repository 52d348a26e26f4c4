//! Random numbers that are the same on every rank, machine and version: SplitMix64 (Steele, Lea, Flood 2014).

/// A stream of random numbers from a seed.
#[derive(Clone)]
pub struct Random(u64);

impl Random {
    /// Creates the stream of `seed` for one purpose. Streams of different purposes are independent.
    #[must_use]
    pub fn new(seed: u64, purpose: u64) -> Self {
        let mut random = Self(seed ^ purpose.wrapping_mul(0xd1b5_4a32_d192_ed03));
        random.next_u64();
        random
    }

    /// Returns 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Returns a number below `bound`. The bias of the multiplication is below 2^-32 for any data set that fits in
    /// memory.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next_u64()) * bound as u128) >> 64) as usize
    }

    /// Returns a number in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns `len` normally distributed values with mean 0.
    pub fn normal(&mut self, len: usize, deviation: f64) -> Vec<f32> {
        let mut normal = || {
            // Box-Muller transform. 1 - unit is never 0.
            let (radius, angle) =
                ((-2.0 * (1.0 - self.unit()).ln()).sqrt(), std::f64::consts::TAU * self.unit());
            (deviation * radius * angle.cos()) as f32
        };
        (0..len).map(|_| normal()).collect()
    }

    /// Shuffles `items` (Fisher-Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_matches_published_values() {
        // The first outputs of SplitMix64 from state 0.
        let mut random = Random(0);
        assert_eq!([random.next_u64(), random.next_u64()], [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4]);
    }

    #[test]
    fn normal_values_have_the_expected_mean_and_variance() {
        let values = Random::new(1, 2).normal(100_000, 2.0);
        let mean = values.iter().sum::<f32>() / 1e5;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f32>() / 1e5;
        assert!(mean.abs() < 0.03 && (variance - 4.0).abs() < 0.1, "mean {mean}, variance {variance}");
    }
}
