//! Stacked areas: the mean step ledger over steps.

use crate::palette::Rgba;
use crate::span::Span;

use super::{Frame, columns};

/// The content of a chart of stacked areas.
pub struct Area<'a> {
    /// Step indices, ascending.
    pub step: &'a [u64],
    /// The columns from the bottom up, with one value per step. A step with a NaN is left out.
    pub parts: &'a [Vec<f32>],
    /// One color per column.
    pub colors: &'a [Rgba],
    /// The visible steps.
    pub view: Span,
    /// The value at the top of the frame.
    pub top: f32,
}

/// The width in pixels from which steps are drawn as separate bars.
const BARS_FROM_PIXELS: f64 = 8.0;

/// Draws the areas. Each pixel column shows the mean of its steps.
pub fn draw(frame: &mut Frame<'_>, area: &Area<'_>) {
    let (width, height) = (frame.width(), frame.height() as f32);
    if area.view.is_empty() {
        return;
    }
    let per_pixel = area.view.len() / width as f64;
    let bars = per_pixel * BARS_FROM_PIXELS <= 1.0;
    for (x, rows) in columns(area.step, area.view, width).enumerate() {
        let begin = area.view.start + x as f64 * per_pixel;
        if bars && (begin + 1e-9).floor() < (begin + per_pixel + 1e-9).floor() {
            continue;
        }
        let known: Vec<usize> =
            rows.filter(|&row| area.parts.iter().all(|part| !part[row].is_nan())).collect();
        if known.is_empty() {
            continue;
        }
        let mut bottom = height;
        for (part, &color) in area.parts.iter().zip(area.colors) {
            let mean = known.iter().map(|&row| part[row]).sum::<f32>() / known.len() as f32;
            let top = bottom - mean / area.top * height;
            frame.fill_column(x, top, bottom, color);
            bottom = top;
        }
    }
}

/// Returns the largest sum of parts in `rows`, for the axis.
#[must_use]
pub fn largest(parts: &[Vec<f32>], rows: std::ops::Range<usize>) -> f32 {
    rows.map(|row| parts.iter().map(|part| part[row]).sum::<f32>())
        .filter(|sum| !sum.is_nan())
        .fold(0.0, f32::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(step: &[u64], parts: [Vec<f32>; 2], width: usize, expected: &str) {
        let mut pixels = vec![0; width * 4];
        let colors = [0xff00_0001, 0xff00_0002];
        let view = Span::new(step[0] as f64, step[step.len() - 1] as f64 + 1.0);
        let area = Area { step, parts: &parts, colors: &colors, view, top: 4.0 };
        draw(&mut Frame::new(&mut pixels, width, 4), &area);
        let letter = |p: &Rgba| [' ', 'a', 'b'].get((p & 0xff) as usize).copied().unwrap_or('!');
        let picture: String =
            pixels.chunks(width).map(|row| row.iter().map(letter).collect::<String>() + "\n").collect();
        assert_eq!(picture, expected);
    }

    #[test]
    fn parts_are_stacked() {
        check(&[0, 1], [vec![1.0, 2.0], vec![2.0, 1.0]], 2, "  \nbb\nba\naa\n");
    }

    #[test]
    fn an_unknown_step_is_a_gap() {
        check(&[0, 1, 2], [vec![1.0, f32::NAN, 1.0], vec![1.0; 3]], 3, "   \n   \nb b\na a\n");
    }

    #[test]
    fn a_pixel_shows_the_mean_of_its_steps() {
        check(&[0, 1], [vec![1.0, 3.0], vec![1.0, 1.0]], 1, " \nb\na\na\n");
    }

    #[test]
    fn the_largest_sum_ignores_unknown_steps() {
        assert_eq!(largest(&[vec![1.0, 2.0, f32::NAN], vec![1.0, 5.0, 9.0]], 0..3), 7.0);
    }
}
