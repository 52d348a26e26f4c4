//! The weight of a rank's gradient in the average.

/// The fraction of a step's samples that this rank, or one of its micro-batches, processed.
///
/// The result is the sum over ranks of share x gradient. If each gradient is the mean over the rank's own samples,
/// `Share::new(mine, total)` gives the exact mean over all samples, even at the uneven end of an epoch. All shares of a
/// step must sum to 1, which the reducer checks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share(f32);

impl Share {
    /// Returns one of `parts` equal shares, where `parts` is ranks x micro-batches.
    ///
    /// # Panics
    /// Panics if `parts` is 0.
    #[must_use]
    pub fn even(parts: u32) -> Self {
        assert!(parts > 0, "a step has at least one part");
        Self((1.0 / f64::from(parts)) as f32)
    }

    /// Returns the share of `mine` out of `total` samples.
    ///
    /// # Panics
    /// Panics if `total` is 0 or less than `mine`. No sampler that agrees with the other ranks passes such numbers.
    #[must_use]
    pub fn new(mine: u64, total: u64) -> Self {
        assert!(total > 0 && mine <= total, "{mine} of {total} samples is not a share");
        Self((mine as f64 / total as f64) as f32)
    }

    /// Returns the share of a rank without samples in this step, which marks no gradient and contributes zeros.
    #[must_use]
    pub fn nothing() -> Self {
        Self(0.0)
    }

    /// Returns the factor by which a gradient is multiplied.
    #[must_use]
    pub fn factor(self) -> f32 {
        self.0
    }

    pub(crate) fn is_nothing(self) -> bool {
        self.0 == 0.0
    }
}
