//! Whether a training fits into the memory of a device: the states of the model, split over ranks or not, and the
//! activations of a transformer.

/// How the states of the model are split over data-parallel ranks (Rajbhandari et al., 2020, "ZeRO").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharding {
    /// Each rank has all states: DDP.
    None,
    /// Each rank has a part of the optimizer's states: ZeRO stage 1.
    Optimizer,
    /// And a part of the gradients: ZeRO stage 2.
    Gradients,
    /// And a part of the parameters: ZeRO stage 3, FSDP.
    Parameters,
}

/// The bytes of a parameter in mixed precision: as a 16-bit number that computes,
const PARAMETER_BYTES: f64 = 2.0;
/// its gradient,
const GRADIENT_BYTES: f64 = 2.0;
/// and what Adam keeps: a 32-bit copy and two 32-bit moments (the same paper).
const OPTIMIZER_BYTES: f64 = 12.0;

impl Sharding {
    /// All of them, with the most memory per rank first.
    pub const ALL: [Self; 4] = [Self::None, Self::Optimizer, Self::Gradients, Self::Parameters];

    /// Returns the name shown to users.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "DDP",
            Self::Optimizer => "ZeRO 1",
            Self::Gradients => "ZeRO 2",
            Self::Parameters => "ZeRO 3, FSDP",
        }
    }

    /// Returns the bytes of the states of `parameters` on one of `ranks` ranks: 16 per parameter without sharding.
    #[must_use]
    pub fn state_bytes(self, parameters: f64, ranks: u32) -> f64 {
        let split = |is_split: bool, bytes: f64| if is_split { bytes / f64::from(ranks) } else { bytes };
        let per_parameter = split(self == Self::Parameters, PARAMETER_BYTES)
            + split(matches!(self, Self::Gradients | Self::Parameters), GRADIENT_BYTES)
            + split(self != Self::None, OPTIMIZER_BYTES);
        parameters * per_parameter
    }
}

/// The shape of a transformer and of its batch on one rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// The number of layers, L.
    pub layers: f64,
    /// The width of the model, h.
    pub hidden: f64,
    /// The number of attention heads, a.
    pub heads: f64,
    /// The tokens of a sequence, s.
    pub sequence: f64,
    /// The sequences of a micro-batch, b.
    pub micro_batch: f64,
}

/// What the forward pass keeps for the backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Everything: s b h L (34 + 5 a s / h) bytes.
    All,
    /// Everything but the scores of attention, as with fused attention kernels: 34 s b h L bytes.
    NoScores,
    /// The input of each layer: 2 s b h L bytes. The rest is computed again.
    Inputs,
}

impl Kept {
    /// All of them, with the most memory first.
    pub const ALL: [Self; 3] = [Self::All, Self::NoScores, Self::Inputs];

    /// Returns the name shown to users.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::All => "all activations",
            Self::NoScores => "without attention scores",
            Self::Inputs => "inputs of layers",
        }
    }

    /// Returns the bytes of the activations of one micro-batch in 16 bits (Korthikanti et al., 2022).
    #[must_use]
    pub fn bytes(self, shape: &Shape) -> f64 {
        let inputs = shape.sequence * shape.micro_batch * shape.hidden * shape.layers;
        inputs
            * match self {
                Self::All => 34.0 + 5.0 * shape.heads * shape.sequence / shape.hidden,
                Self::NoScores => 34.0,
                Self::Inputs => 2.0,
            }
    }
}

/// The model, or a stage of it, on one rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OnRank {
    /// The parameters of the model, or of the rank's stage.
    pub parameters: f64,
    /// The number of copies of the model.
    pub replicas: u32,
    /// The shape of the model; without it, no activations are counted.
    pub shape: Option<Shape>,
}

impl OnRank {
    /// Returns the bytes of the states and of the activations.
    #[must_use]
    pub fn bytes(&self, sharding: Sharding, kept: Option<Kept>) -> f64 {
        // A stage of S has a layer in S, and keeps S micro-batches.
        let activations = self.shape.zip(kept).map_or(0.0, |(shape, kept)| kept.bytes(&shape));
        sharding.state_bytes(self.parameters, self.replicas) + activations
    }

    /// Returns the fewest bytes that the model can take.
    #[must_use]
    pub fn least_bytes(&self) -> f64 {
        self.bytes(Sharding::Parameters, Some(Kept::Inputs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figures of the ZeRO paper for 7.5 B parameters on 64 ranks.
    #[test]
    fn states_take_what_the_paper_says() {
        let gigabytes = |sharding: Sharding| (sharding.state_bytes(7.5e9, 64) / 1e8).round() / 10.0;
        assert_eq!(Sharding::ALL.map(gigabytes), [120.0, 31.4, 16.6, 1.9]);
    }

    /// GPT-3 of the paper: 5 a s / h is 5 x 96 x 2,048 / 12,288, which is 80.
    #[test]
    fn activations_take_what_the_paper_says() {
        let shape =
            Shape { layers: 96.0, hidden: 12_288.0, heads: 96.0, sequence: 2_048.0, micro_batch: 1.0 };
        let per_input = |kept: Kept| kept.bytes(&shape) / (2_048.0 * 12_288.0 * 96.0);
        assert_eq!(Kept::ALL.map(per_input), [34.0 + 80.0, 34.0, 2.0]);
    }
}
