//! Rasterization of columns. Each module draws one kind of chart into a [`Frame`].

pub mod area;
pub mod gantt;
pub mod heatmap;
pub mod line;

use std::ops::Range;

use crate::palette::Rgba;
use crate::span::Span;

/// A buffer of pixels to draw into, row by row from the top.
pub struct Frame<'a> {
    pixels: &'a mut [Rgba],
    width: usize,
    height: usize,
}

impl<'a> Frame<'a> {
    /// Creates a frame over `pixels` and clears it.
    ///
    /// # Panics
    /// Panics if the length of `pixels` is not `width * height`.
    #[must_use]
    pub fn new(pixels: &'a mut [Rgba], width: usize, height: usize) -> Self {
        assert_eq!(pixels.len(), width * height, "a frame of {width} x {height}");
        pixels.fill(crate::palette::CLEAR);
        Self { pixels, width, height }
    }

    /// Returns the number of pixels in a row.
    #[must_use]
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns the number of rows.
    #[must_use]
    pub fn height(&self) -> usize {
        self.height
    }

    fn row(&mut self, y: usize) -> &mut [Rgba] {
        &mut self.pixels[y * self.width..(y + 1) * self.width]
    }

    /// Blends `color` over the share `coverage` of a pixel.
    fn blend(&mut self, x: usize, y: usize, color: Rgba, coverage: f32) {
        let pixel = &mut self.pixels[y * self.width + x];
        let [r0, g0, b0, a0] = pixel.to_le_bytes().map(f32::from);
        let [r1, g1, b1, a1] = color.to_le_bytes().map(f32::from);
        let above_alpha = a1 * coverage.clamp(0.0, 1.0);
        // Shares of one pixel are adjacent: they add up and do not hide each other.
        let below_alpha = a0.min(255.0 - above_alpha);
        let alpha = above_alpha + below_alpha;
        if alpha <= 0.0 {
            return;
        }
        let mix =
            |below: f32, above: f32| ((below * below_alpha + above * above_alpha) / alpha).round() as u8;
        *pixel = u32::from_le_bytes([mix(r0, r1), mix(g0, g1), mix(b0, b1), alpha.round() as u8]);
    }

    /// Fills column `x` from `top` to `bottom`, in fractional pixels from the top.
    fn fill_column(&mut self, x: usize, top: f32, bottom: f32, color: Rgba) {
        let top = top.clamp(0.0, self.height as f32);
        let bottom = bottom.clamp(0.0, self.height as f32);
        if bottom <= top {
            return;
        }
        let (first, last) = (top as usize, (bottom.ceil() as usize).min(self.height));
        for y in first..last {
            let coverage = bottom.min(y as f32 + 1.0) - top.max(y as f32);
            if coverage >= 0.999 && color >> 24 == 0xff {
                self.pixels[y * self.width + x] = color;
            } else {
                self.blend(x, y, color, coverage);
            }
        }
    }
}

/// Returns the rows of an ascending `step` column that each pixel column shows. Every visible step belongs to at least
/// one pixel. Where steps are wider than pixels, a pixel shows the step that contains it.
pub fn columns(step: &[u64], view: Span, width: usize) -> impl Iterator<Item = Range<usize>> {
    let per_pixel = view.len() / width as f64;
    let mut begin = step.partition_point(|&s| (s as f64) < view.start.floor());
    (0..width).map(move |x| {
        let (first, past) = whole(view.start + x as f64 * per_pixel, per_pixel);
        while begin < step.len() && (step[begin] as f64) < first {
            begin += 1;
        }
        let len = step[begin..].iter().take_while(|&&s| (s as f64) < past).count();
        begin..begin + len
    })
}

/// Returns the range of whole numbers that a pixel shows, which begins at `start` and is `len` wide: those that begin
/// in the pixel, or the one that contains it.
fn whole(start: f64, len: f64) -> (f64, f64) {
    // Rounding must not move a boundary that two pixels share.
    let first = (start + 1e-9).floor();
    let past = (start + len + 1e-9).floor();
    (first, past.max(first + 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_visible_step_has_a_pixel(
            gaps in prop::collection::vec(1u64..5, 1..200), width in 1usize..300, from in 0.0..0.9, len in 0.05..1.0,
        ) {
            let step: Vec<u64> = gaps.iter().scan(100, |at, gap| { *at += gap; Some(*at) }).collect();
            let all = Span::new(step[0] as f64, step[step.len() - 1] as f64 + 1.0);
            let view = Span::new(all.start + from * all.len(), all.start + (from + len) * all.len());
            let shown: Vec<usize> = columns(&step, view, width).flatten().collect();
            for (row, &number) in step.iter().enumerate() {
                let number = number as f64;
                if number >= view.start && number + 1.0 <= view.end {
                    prop_assert!(shown.contains(&row), "no pixel shows step {number}");
                }
            }
        }
    }

    #[test]
    fn coverages_of_one_pixel_add_up() {
        let mut pixels = [0];
        let mut frame = Frame::new(&mut pixels, 1, 1);
        frame.fill_column(0, 0.0, 0.5, 0xff00_0000);
        frame.fill_column(0, 0.5, 1.0, 0xffff_ffff);
        let [r, _, _, a] = pixels[0].to_le_bytes();
        assert!(a >= 254 && (126..=129).contains(&r), "{:x}", pixels[0]);
    }
}
