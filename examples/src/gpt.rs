//! A small GPT: token and position embeddings, blocks of attention and a ReLU network, and a linear head.
//!
//! The model uses plain operations only. candle's fused layer norm and softmax have no backward pass and would silently
//! leave parameters without a gradient. ReLU replaces GELU because GELU takes 40 % of such a step on a processor. Every
//! weight is the right operand of its product (see [`crate::parameters`]).

use agent::Transformer;
use candle_core::{D, DType, Result, Tensor};
use candle_nn::ops::softmax;

use crate::parameters::{ParameterSet, Weights};
use crate::precision::Precision;
use crate::random::Random;

/// The dimensions of the model.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// The number of distinct tokens.
    pub vocabulary: usize,
    /// The context length in tokens.
    pub context: usize,
    /// The width of a token's embedding.
    pub width: usize,
    /// The number of transformer blocks.
    pub layers: usize,
    /// The number of attention heads. Must divide the width.
    pub heads: usize,
    /// The precision of matrix products.
    pub precision: Precision,
}

impl Size {
    /// Returns the floating-point operations of a token, forward and backward, of a model with `parameters` elements. The
    /// embeddings are looked up, and the attention computes all pairs of tokens.
    #[must_use]
    pub fn flops_per_token(&self, parameters: usize) -> u64 {
        let looked_up = (self.vocabulary + self.context) * self.width;
        let transformer = Transformer {
            parameters: (parameters - looked_up) as u64,
            layers: self.layers as u64,
            attention_width: self.width as u64,
            sequence: self.context as u64,
            is_causal: false,
        };
        transformer.flops_per_token()
    }
}

/// The model, as indices into the parameter set.
pub struct Gpt {
    size: Size,
    token: usize,
    position: usize,
    blocks: Vec<Block>,
    norm: Norm,
    head: usize,
    /// The attention mask: 0 where a token may attend, a large negative number elsewhere.
    mask: Tensor,
}

struct Block {
    norm_1: Norm,
    query_key_value: Linear,
    project: Linear,
    norm_2: Norm,
    up: Linear,
    down: Linear,
}

struct Linear {
    weight: usize,
    bias: usize,
}

struct Norm {
    scale: usize,
    shift: usize,
}

/// Creates parameters in the order in which the forward pass uses them.
struct Builder<'a> {
    parameters: &'a mut ParameterSet,
    random: Random,
}

impl Builder<'_> {
    fn linear(&mut self, name: &str, from: usize, to: usize, gain: f64) -> Result<Linear> {
        let deviation = gain / (from as f64).sqrt();
        let weight =
            self.parameters.add_normal(format!("{name}.weight"), &[from, to], deviation, &mut self.random)?;
        Ok(Linear { weight, bias: self.parameters.add_constant(format!("{name}.bias"), &[to], 0.0)? })
    }

    fn norm(&mut self, name: &str, width: usize) -> Result<Norm> {
        let scale = self.parameters.add_constant(format!("{name}.scale"), &[width], 1.0)?;
        Ok(Norm { scale, shift: self.parameters.add_constant(format!("{name}.shift"), &[width], 0.0)? })
    }

    fn block(&mut self, index: usize, size: Size) -> Result<Block> {
        let (width, name) = (size.width, |part: &str| format!("block{index}.{part}"));
        // Outputs to the residual stream start small, so that the stream does not grow with depth.
        let quiet = 1.0 / (2.0 * size.layers as f64).sqrt();
        Ok(Block {
            norm_1: self.norm(&name("norm1"), width)?,
            query_key_value: self.linear(&name("attention.qkv"), width, 3 * width, 1.0)?,
            project: self.linear(&name("attention.project"), width, width, quiet)?,
            norm_2: self.norm(&name("norm2"), width)?,
            up: self.linear(&name("mlp.up"), width, 4 * width, std::f64::consts::SQRT_2)?,
            down: self.linear(&name("mlp.down"), 4 * width, width, quiet)?,
        })
    }
}

impl Gpt {
    /// Adds the model's parameters to `parameters`.
    ///
    /// # Errors
    /// Returns an error if the width is not a multiple of the number of heads, or if a size is 0.
    pub fn new(size: Size, parameters: &mut ParameterSet, seed: u64) -> Result<Self> {
        let Size { vocabulary, context, width, layers, heads, .. } = size;
        if heads == 0 || width == 0 || width % heads != 0 || context == 0 {
            candle_core::bail!("{heads} heads must divide width {width}; context {context} must not be 0");
        }
        let mut build = Builder { parameters, random: Random::new(seed, 0x67_70_74) };
        let token = build.parameters.add_normal("token", &[vocabulary, width], 0.1, &mut build.random)?;
        let position = build.parameters.add_normal("position", &[context, width], 0.1, &mut build.random)?;
        let blocks = (0..layers).map(|index| build.block(index, size)).collect::<Result<_>>()?;
        let norm = build.norm("norm", width)?;
        let head = build.parameters.add_normal(
            "head",
            &[width, vocabulary],
            (width as f64).powf(-0.5),
            &mut build.random,
        )?;
        let allowed = |index: usize| if index % context <= index / context { 0.0 } else { -1e9 };
        let mask: Vec<f32> = (0..context * context).map(allowed).collect();
        let mask = Tensor::from_vec(mask, (1, 1, context, context), parameters.device())?;
        Ok(Self { size, token, position, blocks, norm, head, mask })
    }

    /// Returns the score of every token at every position: `(batch * context, vocabulary)` for `(batch, context)`
    /// tokens.
    ///
    /// # Errors
    /// Returns an error if the tokens have another shape.
    pub fn forward(&self, weights: &Weights, tokens: &Tensor) -> Result<Tensor> {
        let Size { context, width, .. } = self.size;
        let batch = tokens.dim(0)?;
        let embedded = weights[self.token].index_select(&tokens.flatten_all()?, 0)?;
        let embedded = embedded.reshape((batch, context, width))?.broadcast_add(&weights[self.position])?;
        let mut stream = embedded.reshape((batch * context, width))?;
        for block in &self.blocks {
            let normed = norm(weights, &block.norm_1, &stream)?;
            stream = (stream + self.attend(weights, block, &normed, batch)?)?;
            let normed = norm(weights, &block.norm_2, &stream)?;
            let hidden = self.linear(weights, &block.up, &normed)?.relu()?;
            stream = (stream + self.linear(weights, &block.down, &hidden)?)?;
        }
        self.size.precision.matmul(&norm(weights, &self.norm, &stream)?, &weights[self.head])
    }

    fn attend(&self, weights: &Weights, block: &Block, input: &Tensor, batch: usize) -> Result<Tensor> {
        let Size { context, width, heads, precision, .. } = self.size;
        let all = self.linear(weights, &block.query_key_value, input)?;
        let part = |index: usize| {
            let part = all.narrow(1, index * width, width)?;
            part.reshape((batch, context, heads, width / heads))?.transpose(1, 2)?.contiguous()
        };
        let scale = ((width / heads) as f64).powf(-0.5);
        let scores = precision.matmul(&(part(0)? * scale)?, &part(1)?.transpose(2, 3)?.contiguous()?)?;
        let seen = softmax(&scores.broadcast_add(&self.mask)?, D::Minus1)?;
        let seen = precision.matmul(&seen, &part(2)?)?;
        let seen = seen.transpose(1, 2)?.reshape((batch * context, width))?;
        self.linear(weights, &block.project, &seen)
    }

    fn linear(&self, weights: &Weights, layer: &Linear, input: &Tensor) -> Result<Tensor> {
        self.size.precision.matmul(input, &weights[layer.weight])?.broadcast_add(&weights[layer.bias])
    }
}

fn norm(weights: &Weights, layer: &Norm, input: &Tensor) -> Result<Tensor> {
    let centerd = input.broadcast_sub(&input.mean_keepdim(D::Minus1)?)?;
    let deviation = (centerd.sqr()?.mean_keepdim(D::Minus1)? + 1e-5)?.sqrt()?;
    let normed = centerd.broadcast_div(&deviation)?;
    normed.broadcast_mul(&weights[layer.scale])?.broadcast_add(&weights[layer.shift])
}

/// Returns the mean cross-entropy of the scores and the actual tokens over all positions.
///
/// # Errors
/// Returns an error if the shapes do not match.
pub fn cross_entropy(scores: &Tensor, came: &Tensor) -> Result<Tensor> {
    debug_assert_eq!(scores.dtype(), DType::F32);
    candle_nn::loss::cross_entropy(scores, came)
}
