//! A line over steps, with a band of extremes where a pixel covers several steps.

use crate::palette::{Rgba, with_alpha};
use crate::span::Span;

use super::{Frame, columns};

/// The content of a line chart.
pub struct Line<'a> {
    /// Step indices, ascending.
    pub step: &'a [u64],
    /// One value per step; NaN is a gap.
    pub values: &'a [f32],
    /// The visible steps.
    pub view: Span,
    /// The value at the top of the frame. The bottom is 0.
    pub top: f32,
    pub color: Rgba,
    /// The thickness of the line, in pixels.
    pub thickness: f32,
}

/// The smallest, mean and largest value of a pixel column.
#[derive(Clone, Copy)]
struct Pooled {
    low: f32,
    mean: f32,
    high: f32,
}

/// Draws the band, then the line through the means.
pub fn draw(frame: &mut Frame<'_>, line: &Line<'_>) {
    if line.view.is_empty() {
        return;
    }
    let (width, height) = (frame.width(), frame.height() as f32);
    let y = |value: f32| height - value / line.top * height;
    let mut last: Option<(usize, f32)> = None;
    let mut shown = usize::MAX;
    let pixels_a_step = width as f64 / line.view.len();
    for (x, rows) in columns(line.step, line.view, width).enumerate() {
        let Some(pooled) = pool(&line.values[rows.clone()]) else {
            if !rows.is_empty() {
                last = None;
            }
            continue;
        };
        if rows.len() > 1 {
            frame.fill_column(x, y(pooled.high), y(pooled.low), with_alpha(line.color, 70));
        }
        // If a step is wider than a pixel, the line bends in the middle of the step.
        if rows.start == shown {
            continue;
        }
        shown = rows.start;
        let center = if pixels_a_step > 1.0 {
            (line.view.to_pixel(line.step[rows.start] as f64 + 0.5, width as f64)).max(0.0) as usize
        } else {
            x
        };
        let here = y(pooled.mean);
        match last {
            // A gap of whole steps stays a gap.
            Some((from, level))
                if (center - from.min(center)) as f64 <= pixels_a_step.max(1.0) * 1.5 + 1.0 =>
            {
                segment(frame, (from, level), (center, here), line);
            }
            _ => segment(frame, (center, here), (center, here), line),
        }
        last = Some((center, here));
    }
}

fn pool(values: &[f32]) -> Option<Pooled> {
    let mut known = values.iter().copied().filter(|v| !v.is_nan());
    let first = known.next()?;
    let (mut low, mut high, mut sum, mut count) = (first, first, first, 1.0);
    for value in known {
        low = low.min(value);
        high = high.max(value);
        sum += value;
        count += 1.0;
    }
    Some(Pooled { low, mean: sum / count, high })
}

/// Draws one segment of the line. Each column covers the levels that the line passes through, plus half its thickness
/// on either side.
fn segment(frame: &mut Frame<'_>, from: (usize, f32), to: (usize, f32), line: &Line<'_>) {
    let half = line.thickness / 2.0;
    let across = (to.0 - from.0.min(to.0)).max(1) as f32;
    let level = |x: f32| from.1 + (to.1 - from.1) * ((x - from.0 as f32) / across).clamp(0.0, 1.0);
    let first = if from.0 == to.0 { from.0 } else { from.0 + 1 };
    for x in first..=to.0.min(frame.width() - 1) {
        let (a, b) = (level(x as f32 - 1.0), level(x as f32));
        let (top, bottom) = if from.0 == to.0 { (to.1, to.1) } else { (a.min(b), a.max(b)) };
        frame.fill_column(x, top - half, bottom + half, line.color);
    }
}

/// Returns the largest known value of `rows`, for the axis.
#[must_use]
pub fn largest(values: &[f32], rows: std::ops::Range<usize>) -> f32 {
    values[rows].iter().copied().filter(|v| v.is_finite()).fold(0.0, f32::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(step: &[u64], values: &[f32], width: usize, expected: &str) {
        let mut pixels = vec![0; width * 5];
        let view = Span::new(step[0] as f64, step[step.len() - 1] as f64 + 1.0);
        let line = Line { step, values, view, top: 5.0, color: 0xff00_0000, thickness: 1.0 };
        draw(&mut Frame::new(&mut pixels, width, 5), &line);
        let letter = |p: &Rgba| match p >> 24 {
            0..20 => ' ',
            20..100 => '.',
            _ => '#',
        };
        let picture: String =
            pixels.chunks(width).map(|row| row.iter().map(letter).collect::<String>() + "\n").collect();
        assert_eq!(picture, expected);
    }

    #[test]
    fn a_line_has_no_holes() {
        check(&[0, 1, 2], &[0.5, 4.5, 4.5], 3, " ##\n # \n # \n # \n## \n");
    }

    #[test]
    fn extremes_are_drawn_as_a_band() {
        check(&[0, 1, 2, 3], &[0.5, 0.5, 0.5, 4.5], 2, " .\n .\n #\n #\n##\n");
    }

    #[test]
    fn a_gap_stays_a_gap() {
        check(&[0, 1, 2], &[2.5, f32::NAN, 2.5], 3, "   \n   \n# #\n   \n   \n");
    }
}
