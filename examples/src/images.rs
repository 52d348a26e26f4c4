//! Labeled images in memory: the handwritten digits that ship with smartcore, and random shifts of images.

use anyhow::{Result, bail};
use candle_core::{Device, Result as CandleResult, Tensor};

use crate::random::Random;

/// Images of one size with one label byte each. Pixels are ordered by channel, row and column.
pub struct Images {
    /// The number of channels, the height and the width.
    pub shape: [usize; 3],
    /// The pixel values, scaled to a mean near 0 and a standard deviation near 1.
    pub pixels: Vec<f32>,
    /// The class of each image.
    pub labels: Vec<u8>,
    /// The number of classes.
    pub classes: usize,
}

/// A data set, split for training and evaluation.
pub struct Split {
    /// The training images: four fifths of the data, or the data set's own choice.
    pub training: Images,
    /// The images for evaluation.
    pub held_out: Images,
}

impl Images {
    fn pixels_each(&self) -> usize {
        self.shape.iter().product()
    }

    /// Returns the number of images.
    #[must_use]
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Returns true if there are no images.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Returns the chosen images and their labels. With `vary`, which provides each image's random numbers, each image
    /// is shifted by up to one pixel in each direction.
    ///
    /// # Errors
    /// Returns an error if memory is exhausted.
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

/// Appends `image` shifted down and right. Pixels from outside the image repeat the border.
fn shift(
    image: &[f32],
    [channels, height, width]: [usize; 3],
    down: isize,
    right: isize,
    out: &mut Vec<f32>,
) {
    let source = |at: usize, shift: isize, size: usize| at.saturating_add_signed(-shift).min(size - 1);
    for channel in 0..channels {
        for row in 0..height {
            let line = &image[(channel * height + source(row, down, height)) * width..][..width];
            out.extend((0..width).map(|column| line[source(column, right, width)]));
        }
    }
}

/// Returns 1,797 handwritten digits of 8 x 8 pixels (UCI), shuffled. Every fifth is held out.
///
/// # Errors
/// Returns an error if the data in the library has another format.
pub fn digits(seed: u64) -> Result<Split> {
    let data = smartcore::dataset::digits::load_dataset();
    if data.num_features != 64 || data.data.len() != data.num_samples * 64 {
        bail!("the digits of this version of smartcore have {} features, not 64", data.num_features);
    }
    let mut order: Vec<usize> = (0..data.num_samples).collect();
    Random::new(seed, 0x6469_6769_7473).shuffle(&mut order);
    let (held_out, training): (Vec<_>, Vec<_>) =
        order.into_iter().enumerate().partition(|(place, _)| place % 5 == 0);
    let choose = |chosen: Vec<(usize, usize)>| Images {
        shape: [1, 8, 8],
        // Pixels range from 0 to 16, with a mean of 4.9 and a standard deviation of 6.
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
    fn the_digits_are_complete_and_balanced() {
        let split = digits(1).unwrap();
        assert_eq!((split.training.len(), split.held_out.len()), (1_437, 360));
        for class in 0..10 {
            assert!(split.held_out.labels.iter().filter(|label| **label == class).count() > 15);
        }
        let mean = split.training.pixels.iter().sum::<f32>() / split.training.pixels.len() as f32;
        assert!(mean.abs() < 0.02, "{mean}");
    }

    #[test]
    fn images_shift_by_one_pixel() {
        let mut out = Vec::new();
        shift(&[1.0, 2.0, 3.0, 4.0], [1, 2, 2], 1, 0, &mut out);
        assert_eq!(out, [1.0, 2.0, 1.0, 2.0]);
        out.clear();
        shift(&[1.0, 2.0, 3.0, 4.0], [1, 2, 2], 0, -1, &mut out);
        assert_eq!(out, [2.0, 2.0, 4.0, 4.0]);
    }
}
