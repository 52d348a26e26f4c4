//! Mixed precision: matrix products in 16 bits; the weights and everything else in 32 bits.

use candle_core::{DType, Result, Tensor};
use clap::ValueEnum;

/// The precision of matrix products.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Precision {
    /// 32-bit floats
    #[default]
    Fp32,
    /// bfloat16: the range of 32-bit floats with 8 bits of precision
    Bf16,
    /// 16-bit floats with dynamic loss scaling, because small gradients would become 0 and large ones infinite
    Fp16,
}

impl Precision {
    /// Multiplies two matrices and returns the product in 32-bit floats.
    ///
    /// # Errors
    /// Returns an error if the shapes do not match.
    pub fn matmul(self, left: &Tensor, right: &Tensor) -> Result<Tensor> {
        let short = match self {
            Self::Fp32 => return left.matmul(right),
            Self::Bf16 => DType::BF16,
            Self::Fp16 => DType::F16,
        };
        left.to_dtype(short)?.matmul(&right.to_dtype(short)?)?.to_dtype(DType::F32)
    }
}

/// The number of consecutive finite steps after which the scale doubles.
const PATIENCE: u32 = 2_000;
/// The usual initial scale.
pub const FIRST_SCALE: f64 = 65_536.0;

/// The factor of the loss that keeps gradients within 16 bits (Micikevicius et al. 2018). The factor doubles now and
/// then. A step with a gradient that is not finite halves it, and all ranks skip that step. The ranks decide alike
/// without communicating, because they see the same reduced gradients to the last bit.
#[derive(Clone, Debug)]
pub struct LossScale {
    scale: f32,
    is_dynamic: bool,
    good: u32,
    skipped: u64,
}

impl LossScale {
    /// Creates the scale for a precision. Only 16-bit floats need scaling.
    #[must_use]
    pub fn new(precision: Precision, first: f64) -> Self {
        let is_dynamic = precision == Precision::Fp16;
        Self { scale: if is_dynamic { first as f32 } else { 1.0 }, is_dynamic, good: 0, skipped: 0 }
    }

    /// Returns the factor that the loss is multiplied by and gradients are divided by.
    #[must_use]
    pub fn factor(&self) -> f32 {
        self.scale
    }

    /// Returns the number of skipped steps.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Updates the scale from whether the reduced gradients of a step are finite. Returns false if the step must be
    /// skipped.
    ///
    /// # Errors
    /// Returns the errors of `are_finite`.
    pub fn accepts(&mut self, are_finite: impl FnOnce() -> Result<bool>) -> Result<bool> {
        if !self.is_dynamic {
            return Ok(true);
        }
        let is_good = are_finite()?;
        if is_good {
            self.good += 1;
            if self.good == PATIENCE {
                (self.scale, self.good) = (self.scale * 2.0, 0);
            }
        } else {
            (self.scale, self.good) = (self.scale / 2.0, 0);
            self.skipped += 1;
        }
        Ok(is_good)
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    #[test]
    fn a_step_with_an_infinite_gradient_is_skipped_and_halves_the_scale() {
        let mut scale = LossScale::new(Precision::Fp16, 1_024.0);
        assert!(scale.accepts(|| Ok(true)).unwrap());
        assert!(!scale.accepts(|| Ok(false)).unwrap());
        assert_eq!((scale.factor(), scale.skipped()), (512.0, 1));
        (0..PATIENCE).for_each(|_| assert!(scale.accepts(|| Ok(true)).unwrap()));
        assert_eq!(scale.factor(), 1_024.0);
        let mut none = LossScale::new(Precision::Bf16, 1_024.0);
        assert!(none.accepts(|| Ok(false)).unwrap(), "bfloat16 needs no scaling");
        assert_eq!(none.factor(), 1.0);
    }

    #[test]
    fn the_error_of_a_product_matches_its_precision() {
        let tensor = |values: Vec<f32>, shape| Tensor::from_vec(values, shape, &Device::Cpu).unwrap();
        let left = tensor((0..64).map(|at| 1.0 + at as f32 / 1_000.0).collect(), (8, 8));
        let right = tensor((0..64).map(|at| 1.0 - at as f32 / 3_000.0).collect(), (8, 8));
        let exact = Precision::Fp32.matmul(&left, &right).unwrap();
        for (precision, most) in [(Precision::Bf16, 0.05), (Precision::Fp16, 0.01)] {
            let found = precision.matmul(&left, &right).unwrap();
            let error =
                (found - &exact).unwrap().abs().unwrap().max_all().unwrap().to_scalar::<f32>().unwrap();
            assert!(error > 0.0 && error < most, "{precision:?} is off by {error}");
        }
    }
}
