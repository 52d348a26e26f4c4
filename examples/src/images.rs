//! Labelled images in memory: the handwritten digits that come with smartcore, and how images are varied.

use anyhow::{Result, bail};
use candle_core::{Device, Result as CandleResult, Tensor};

use crate::random::Random;

/// Images of one size, one byte-sized label each. Pixels lie by channel, row, column.
pub struct Images {
    /// Channels, height and width.
    pub shape: [usize; 3],
    /// Around 0, about as wide as a normal distribution.
    pub pixels: Vec<f32>,
    /// The class of each image.
    pub labels: Vec<u8>,
    /// How many classes there are.
    pub classes: usize,
}

/// What is trained on, and what the model is judged by.
pub struct Split {
    /// Four fifths, or what the data set says.
    pub training: Images,
    /// The rest.
    pub held_out: Images,
}

impl Images {
    fn pixels_each(&self) -> usize {
        self.shape.iter().product()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// True when there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// The chosen images and their labels. With `vary`, which gives each image its own random numbers, each is
    /// moved by up to a pixel each way.
    ///
    /// # Errors
    /// When candle is out of memory.
    pub fn batch(
        &self,
        chosen: &[u32],
        vary: Option<&dyn Fn(u32) -> Random>,
    ) -> CandleResult<(Tensor, Tensor)> {
        let [channels, height, width] = self.shape;
        let mut pixels = Vec::with_capacity(chosen.len() * self.pixels_each());
        for &number in chosen {
            let image = &self.pixels[number as usize * self.pixels_each()..][..self.pixels_each()];
            if let Some(mut random) = vary.map(|vary| vary(number)) {
                let (down, right) = (random.below(3) as isize - 1, random.below(3) as isize - 1);
                shift(image, self.shape, down, right, &mut pixels);
            } else {
                pixels.extend_from_slice(image);
            }
        }
        let pixels = Tensor::from_vec(pixels, (chosen.len(), channels, height, width), &Device::Cpu)?;
        let labels: Vec<u32> = chosen.iter().map(|image| u32::from(self.labels[*image as usize])).collect();
        Ok((pixels, Tensor::from_vec(labels, chosen.len(), &Device::Cpu)?))
    }
}

/// Appends `image` moved down and right; what comes in from outside is the pixel at the border.
fn shift(
    image: &[f32],
    [channels, height, width]: [usize; 3],
    down: isize,
    right: isize,
    out: &mut Vec<f32>,
) {
    let from = |at: usize, by: isize, size: usize| at.saturating_add_signed(-by).min(size - 1);
    for channel in 0..channels {
        for row in 0..height {
            let line = &image[(channel * height + from(row, down, height)) * width..][..width];
            out.extend((0..width).map(|column| line[from(column, right, width)]));
        }
    }
}

/// 1,797 handwritten digits of 8 x 8 pixels (UCI), every fifth of a shuffled order held out.
///
/// # Errors
/// When the data in the library is not what it was.
pub fn digits(seed: u64) -> Result<Split> {
    let data = smartcore::dataset::digits::load_dataset();
    if data.num_features != 64 || data.data.len() != data.num_samples * 64 {
        bail!("the digits of this smartcore have {} features, not 64", data.num_features);
    }
    let mut order: Vec<usize> = (0..data.num_samples).collect();
    Random::new(seed, 0x6469_6769_7473).shuffle(&mut order);
    let (held_out, training): (Vec<_>, Vec<_>) =
        order.into_iter().enumerate().partition(|(place, _)| place % 5 == 0);
    let choose = |chosen: Vec<(usize, usize)>| Images {
        shape: [1, 8, 8],
        // Pixels go from 0 to 16, with a mean of 4.9 and a deviation of 6.
        pixels: chosen
            .iter()
            .flat_map(|(_, image)| &data.data[image * 64..][..64])
            .map(|p| (p - 4.9) / 6.0)
            .collect(),
        labels: chosen.iter().map(|(_, image)| data.target[*image] as u8).collect(),
        classes: 10,
    };
    Ok(Split { training: choose(training), held_out: choose(held_out) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_all_there() {
        let split = digits(1).unwrap();
        assert_eq!((split.training.len(), split.held_out.len()), (1_437, 360));
        for class in 0..10 {
            assert!(split.held_out.labels.iter().filter(|label| **label == class).count() > 15);
        }
        let mean = split.training.pixels.iter().sum::<f32>() / split.training.pixels.len() as f32;
        assert!(mean.abs() < 0.02, "{mean}");
    }

    #[test]
    fn images_move_by_a_pixel() {
        let mut out = Vec::new();
        shift(&[1.0, 2.0, 3.0, 4.0], [1, 2, 2], 1, 0, &mut out);
        assert_eq!(out, [1.0, 2.0, 1.0, 2.0]);
        out.clear();
        shift(&[1.0, 2.0, 3.0, 4.0], [1, 2, 2], 0, -1, &mut out);
        assert_eq!(out, [2.0, 2.0, 4.0, 4.0]);
    }
}
