//! A small residual network for small images: an initial convolution, two stages of one block each, and a linear head
//! over the remaining pixels.
//!
//! The network has no batch normalization, which would keep statistics per rank that are not gradients.

use candle_core::{Result, Tensor};

use crate::parameters::{ParameterSet, Weights};
use crate::random::Random;

/// The channels of the first stage. The second stage has twice as many.
const CHANNELS: usize = 16;

/// The network, as indices into the parameter set.
pub struct ConvNet {
    first: Convolution,
    block_1: [Convolution; 2],
    down: Convolution,
    block_2: [Convolution; 2],
    head_weight: usize,
    head_bias: usize,
    /// The multiplications of the forward pass per image.
    multiplications: usize,
}

struct Convolution {
    weight: usize,
    bias: usize,
    stride: usize,
}

struct Builder<'a> {
    parameters: &'a mut ParameterSet,
    random: Random,
    /// The height and the width of the layer's input.
    area: [usize; 2],
    multiplications: usize,
}

impl Builder<'_> {
    fn convolution(
        &mut self,
        name: &str,
        from: usize,
        to: usize,
        stride: usize,
        gain: f64,
    ) -> Result<Convolution> {
        let deviation = gain * (2.0 / (9.0 * from as f64)).sqrt();
        let weight = self.parameters.add_normal(
            format!("{name}.weight"),
            &[to, from, 3, 3],
            deviation,
            &mut self.random,
        )?;
        let bias = self.parameters.add_constant(format!("{name}.bias"), &[1, to, 1, 1], 0.0)?;
        self.area = self.area.map(|length| length.div_ceil(stride));
        self.multiplications += 9 * from * to * self.area[0] * self.area[1];
        Ok(Convolution { weight, bias, stride })
    }

    /// Adds two convolutions. With small weights in the second, the block's output starts close to its input.
    fn block(&mut self, name: &str, channels: usize) -> Result<[Convolution; 2]> {
        Ok([
            self.convolution(&format!("{name}.conv1"), channels, channels, 1, 1.0)?,
            self.convolution(&format!("{name}.conv2"), channels, channels, 1, 0.3)?,
        ])
    }
}

impl ConvNet {
    /// Adds the model's parameters to `parameters`, for images of `shape` in `classes` classes.
    ///
    /// # Errors
    /// Returns an error if a size is 0.
    pub fn new(shape: [usize; 3], classes: usize, parameters: &mut ParameterSet, seed: u64) -> Result<Self> {
        let [colors, height, width] = shape;
        let area = [height, width];
        let mut build =
            Builder { parameters, random: Random::new(seed, 0x636f_6e76), area, multiplications: 0 };
        let first = build.convolution("first", colors, CHANNELS, 1, 1.0)?;
        let block_1 = build.block("block1", CHANNELS)?;
        let down = build.convolution("down", CHANNELS, 2 * CHANNELS, 2, 1.0)?;
        let block_2 = build.block("block2", 2 * CHANNELS)?;
        let Builder { parameters, mut random, area, mut multiplications } = build;
        let features = 2 * CHANNELS * area[0] * area[1];
        multiplications += features * classes;
        let deviation = (features as f64).powf(-0.5);
        let head_weight =
            parameters.add_normal("head.weight", &[features, classes], deviation, &mut random)?;
        let head_bias = parameters.add_constant("head.bias", &[classes], 0.0)?;
        Ok(Self { first, block_1, down, block_2, head_weight, head_bias, multiplications })
    }

    /// Returns the floating-point operations of an image, forward and backward: a multiplication and an addition each,
    /// and the backward pass has twice as many as the forward pass.
    #[must_use]
    pub fn flops_per_image(&self) -> u64 {
        3 * 2 * self.multiplications as u64
    }

    /// Returns the score of every class for every image.
    ///
    /// # Errors
    /// Returns an error if the images have another shape.
    pub fn forward(&self, weights: &Weights, images: &Tensor) -> Result<Tensor> {
        let stream = convolve(weights, &self.first, images)?.relu()?;
        let stream = residual(weights, &self.block_1, stream)?;
        let stream = convolve(weights, &self.down, &stream)?.relu()?;
        let stream = residual(weights, &self.block_2, stream)?;
        stream.flatten_from(1)?.matmul(&weights[self.head_weight])?.broadcast_add(&weights[self.head_bias])
    }
}

fn convolve(weights: &Weights, layer: &Convolution, input: &Tensor) -> Result<Tensor> {
    input.conv2d(&weights[layer.weight], 1, layer.stride, 1, 1)?.broadcast_add(&weights[layer.bias])
}

fn residual(weights: &Weights, [first, second]: &[Convolution; 2], stream: Tensor) -> Result<Tensor> {
    let inner = convolve(weights, first, &stream)?.relu()?;
    (&stream + convolve(weights, second, &inner)?)?.relu()
}
