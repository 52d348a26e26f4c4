//! Axes of charts that are not over steps: linear or logarithmic, with their ticks.

use crate::span::Span;
use crate::ticks::{self, Tick};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Axis {
    /// The first and the last value.
    pub span: Span,
    /// The base of a logarithmic axis; `None` for a linear one.
    base: Option<f64>,
}

impl Axis {
    #[must_use]
    pub fn linear(start: f64, end: f64) -> Self {
        Self { span: Span::new(start, if end > start { end } else { start + 1.0 }), base: None }
    }

    /// Creates a logarithmic axis from `start` to `end`, with equal lengths for the powers of `base`. Both ends must be
    /// above 0.
    #[must_use]
    pub fn log(start: f64, end: f64, base: f64) -> Self {
        let start = start.max(f64::MIN_POSITIVE);
        Self { span: Span::new(start, if end > start { end } else { start * base }), base: Some(base) }
    }

    fn place(self, value: f64) -> f64 {
        if self.base.is_some() { value.max(f64::MIN_POSITIVE).ln() } else { value }
    }

    #[must_use]
    pub fn to_pixel(self, value: f64, pixels: f64) -> f64 {
        Span::new(self.place(self.span.start), self.place(self.span.end)).to_pixel(self.place(value), pixels)
    }

    /// Returns about `most` ticks at most.
    #[must_use]
    pub fn ticks(self, most: usize, write: impl Fn(f64) -> String) -> Vec<Tick> {
        let values = match self.base {
            None => linear(self.span, most),
            Some(base) => match powers(self.span, base, most) {
                // Less than two decades have too few powers.
                few if few.len() < 3 && base == 10.0 => decades(self.span),
                powers => powers,
            },
        };
        values.into_iter().map(|value| Tick { value, label: write(value) }).collect()
    }
}

fn linear(span: Span, most: usize) -> Vec<f64> {
    let step = ticks::spacing(span.len(), most);
    let first = (span.start / step - 1e-9).ceil() as i64;
    let last = (span.end / step + 1e-9).floor() as i64;
    (first..=last).map(|n| n as f64 * step).collect()
}

/// Returns every power of the base; every second, third, ... if there are many.
fn powers(span: Span, base: f64, most: usize) -> Vec<f64> {
    let exponent = |value: f64| value.ln() / base.ln();
    let first = (exponent(span.start) - 1e-9).ceil() as i32;
    let last = (exponent(span.end) + 1e-9).floor() as i32;
    let interval = ((last - first + 1).max(1) as usize).div_ceil(most.max(1)) as i32;
    (first..=last).filter(|power| power.rem_euclid(interval) == 0).map(|power| base.powi(power)).collect()
}

/// Returns 1, 2 and 5 times every power of ten.
fn decades(span: Span) -> Vec<f64> {
    let (first, last) = (span.start.log10().floor() as i32, span.end.log10().ceil() as i32);
    let all = (first..=last).flat_map(|power| [1.0, 2.0, 5.0].map(|times| times * 10f64.powi(power)));
    all.filter(|value| (span.start..=span.end).contains(value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(axis: Axis, most: usize) -> Vec<f64> {
        axis.ticks(most, |_| String::new()).into_iter().map(|tick| tick.value).collect()
    }

    #[test]
    fn less_than_two_decades_have_ticks_between_the_powers() {
        assert_eq!(values(Axis::log(0.4, 3.0, 10.0), 8), [0.5, 1.0, 2.0]);
        assert_eq!(values(Axis::log(0.4, 300.0, 10.0), 8), [1.0, 10.0, 100.0]);
    }

    #[test]
    fn powers_are_evenly_spaced() {
        let axis = Axis::log(1.0, 1024.0, 2.0);
        assert!((axis.to_pixel(32.0, 100.0) - 50.0).abs() < 1e-9);
        assert_eq!(values(axis, 20).len(), 11);
        assert_eq!(values(axis, 4), [1.0, 8.0, 64.0, 512.0]);
    }

    #[test]
    fn a_linear_axis_has_round_ticks() {
        assert_eq!(values(Axis::linear(0.0, 1.0), 5), [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
        assert_eq!(Axis::linear(3.0, 3.0).span, Span::new(3.0, 4.0), "an axis is never empty");
    }
}
