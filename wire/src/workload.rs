//! The workload of a rank: what a training step computes, and how much its device could compute. Model FLOPs utilization
//! (MFU) needs both.

use serde::{Deserialize, Serialize};

/// The longest name of a unit of samples, in bytes.
pub const MAX_UNIT_BYTES: usize = 64;

/// The workload of a rank, as the job states it. A later workload replaces an earlier one. 0 stands for what the job does
/// not state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Workload {
    /// The number of samples that the rank processes in a step, for jobs that do not count them step by step. A step with
    /// a count of its own keeps it.
    pub samples_per_step: u64,
    /// The unit of a sample: `tokens`, `images`. Empty if the job does not state it here
    /// ([`Hello::sample_unit`](crate::batch::Hello::sample_unit)).
    pub sample_unit: String,
    /// The floating-point operations of a sample in the forward and the backward pass, without recomputation. A
    /// multiplication and an addition are two.
    pub flops_per_sample: u64,
    /// The floating-point operations of a sample that the device executes: [`Self::flops_per_sample`] and what is
    /// computed again, such as activations that were not kept.
    pub hardware_flops_per_sample: u64,
    /// The precision of the matrix multiplications. It selects the peak of a known device.
    pub precision: Option<Precision>,
    /// The most floating-point operations per second that the rank's device can execute in this precision.
    pub peak_flops_per_second: u64,
    /// True if the job measured the peak; false if it states it.
    pub is_peak_measured: bool,
}

impl Workload {
    /// Returns the size of the texts in memory, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.sample_unit.len()
    }
}

/// The precision of the inputs of matrix multiplications.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Precision {
    /// 32 bits, on the units for 32 bits.
    Fp32 = 1,
    /// 32 bits, rounded to 19 bits on tensor cores.
    Tf32 = 2,
    /// 16 bits, with 5 bits of exponent.
    Fp16 = 3,
    /// 16 bits, with 8 bits of exponent.
    Bf16 = 4,
    /// 8 bits.
    Fp8 = 5,
}

impl Precision {
    /// All precisions, in the order of their codes.
    pub const ALL: [Self; 5] = [Self::Fp32, Self::Tf32, Self::Fp16, Self::Bf16, Self::Fp8];

    /// Returns the name used in reports and by jobs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Fp32 => "fp32",
            Self::Tf32 => "tf32",
            Self::Fp16 => "fp16",
            Self::Bf16 => "bf16",
            Self::Fp8 => "fp8",
        }
    }
}

/// The dimensions of a decoder-only transformer, for [`Transformer::flops_per_token`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transformer {
    /// The parameters that take part in matrix multiplications for every token: all but lookup tables. Of a mixture of
    /// experts, the active ones.
    pub parameters: u64,
    /// The number of layers.
    pub layers: u64,
    /// The width of the attention of a layer: heads times the width of a head.
    pub attention_width: u64,
    /// The length of a sequence, in tokens.
    pub sequence: u64,
    /// Whether a token attends only to the tokens before it, and the kernel skips the others.
    pub is_causal: bool,
}

impl Transformer {
    /// Returns the floating-point operations of one token, forward and backward: 6 N + 12 L H Q T, as in appendix B of
    /// the PaLM paper (Chowdhery et al., 2022), with half of the attention term if [`Self::is_causal`].
    #[must_use]
    pub fn flops_per_token(&self) -> u64 {
        let attention =
            [12 / if self.is_causal { 2 } else { 1 }, self.layers, self.attention_width, self.sequence];
        let attention = attention.into_iter().fold(1, u64::saturating_mul);
        self.parameters.saturating_mul(6).saturating_add(attention)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_of_palm_540b_takes_3_3_tflop() {
        // 540.35e9 parameters, 118 layers, 48 heads of 256, sequences of 2,048: 6 N + 12 L H Q T.
        let palm = Transformer {
            parameters: 540_350_000_000,
            layers: 118,
            attention_width: 48 * 256,
            sequence: 2_048,
            is_causal: false,
        };
        assert_eq!(palm.flops_per_token(), 3_242_100_000_000 + 35_634_806_784);
        let causal = Transformer { is_causal: true, ..palm };
        assert_eq!(causal.flops_per_token(), 3_242_100_000_000 + 17_817_403_392);
    }
}
