//! How much a rank's gradient counts in the average.

/// The fraction of a step's samples that this rank (or one of its micro-batches) worked through.
///
/// Each rank's gradient is multiplied by its share and the sum over ranks is the result. With a gradient that
/// is the mean over the rank's own samples, `Share::of(mine, total)` gives the exact mean over all samples,
/// also at the uneven end of an epoch. All shares of a step must sum to 1, which the reducer checks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share(f32);

impl Share {
    /// Every one of `parts` counts the same; parts = ranks x micro-batches.
    ///
    /// # Panics
    /// When `parts` is 0.
    #[must_use]
    pub fn even(parts: u32) -> Self {
        assert!(parts > 0, "a step has at least one part");
        Self((1.0 / f64::from(parts)) as f32)
    }

    /// `mine` of `total` samples.
    ///
    /// # Panics
    /// When `total` is 0 or less than `mine`: no sampler that agrees with the other ranks says so.
    #[must_use]
    pub fn of(mine: u64, total: u64) -> Self {
        assert!(total > 0 && mine <= total, "{mine} of {total} samples is not a share");
        Self((mine as f64 / total as f64) as f32)
    }

    /// This rank has no samples in this step: it takes part with zeros and marks no gradient.
    #[must_use]
    pub fn nothing() -> Self {
        Self(0.0)
    }

    /// The factor that a gradient is multiplied by.
    #[must_use]
    pub fn factor(self) -> f32 {
        self.0
    }

    pub(crate) fn is_nothing(self) -> bool {
        self.0 == 0.0
    }
}
