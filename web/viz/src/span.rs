//! The visible range of an axis: zoom, pan, and the conversion between data and pixels.

/// The visible range of an axis, in data units. `end > start` wherever a chart draws.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// The value at the first pixel.
    pub start: f64,
    /// The value after the last pixel.
    pub end: f64,
}

impl Span {
    /// Creates the range from `start` to `end`.
    #[must_use]
    pub fn new(start: f64, end: f64) -> Self {
        Self { start, end }
    }

    /// Returns the length of the range, in data units.
    #[must_use]
    pub fn len(self) -> f64 {
        self.end - self.start
    }

    /// Returns true if nothing is visible.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.end <= self.start
    }

    /// Returns true if `start <= value < end`.
    #[must_use]
    pub fn contains(self, value: f64) -> bool {
        (self.start..self.end).contains(&value)
    }

    /// Returns the position of `value` on an axis of `pixels` pixels.
    #[must_use]
    pub fn to_pixel(self, value: f64, pixels: f64) -> f64 {
        (value - self.start) / self.len() * pixels
    }

    /// Returns the value at `pixel` on an axis of `pixels` pixels.
    #[must_use]
    pub fn to_value(self, pixel: f64, pixels: f64) -> f64 {
        self.start + pixel / pixels * self.len()
    }

    /// Scales the visible length by `factor`. The value at fraction `anchor` keeps its position.
    #[must_use]
    pub fn zoom(self, anchor: f64, factor: f64) -> Self {
        let fixed = self.start + anchor * self.len();
        Self::new(fixed - (fixed - self.start) * factor, fixed + (self.end - fixed) * factor)
    }

    /// Moves by a fraction of the visible length.
    #[must_use]
    pub fn pan(self, fraction: f64) -> Self {
        let distance = fraction * self.len();
        Self::new(self.start + distance, self.end + distance)
    }

    /// Returns the nearest range within `bounds` that is at least `min_len` long; all of `bounds` if they are shorter.
    #[must_use]
    pub fn clamp(self, bounds: Self, min_len: f64) -> Self {
        let len = self.len().max(min_len);
        if len >= bounds.len() {
            return bounds;
        }
        // A range that is too short grows around its middle.
        let start = self.start + (self.len() - len) / 2.0;
        // Rounding can make `bounds.end - len` smaller than `bounds.start`, for which `f64::clamp` panics.
        let start = start.min(bounds.end - len).max(bounds.start);
        Self::new(start, start + len)
    }

    /// Moves as little as possible to make `[from, to)` visible.
    #[must_use]
    pub fn reveal(self, from: f64, to: f64) -> Self {
        let distance = if from < self.start {
            from - self.start
        } else if to > self.end {
            (to - self.end).min(from - self.start)
        } else {
            0.0
        };
        Self::new(self.start + distance, self.end + distance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reveal_moves_no_further_than_needed() {
        let span = Span::new(10.0, 20.0);
        assert_eq!(span.reveal(12.0, 13.0), span);
        assert_eq!(span.reveal(20.0, 21.0), Span::new(11.0, 21.0));
        assert_eq!(span.reveal(3.0, 4.0), Span::new(3.0, 13.0));
    }

    proptest! {
        #[test]
        fn zoom_keeps_the_anchor(anchor in 0.0..1.0, factor in 0.1..10.0) {
            let span = Span::new(100.0, 300.0);
            let fixed = span.to_value(anchor, 1.0);
            let zoomed = span.zoom(anchor, factor);
            prop_assert!((zoomed.to_pixel(fixed, 1.0) - anchor).abs() < 1e-9);
            prop_assert!((zoomed.len() - span.len() * factor).abs() < 1e-9);
        }

        #[test]
        fn clamped_spans_are_within_their_bounds(start in -500.0..500.0, len in 0.0..500.0, min_len in 1.0..50.0) {
            let bounds = Span::new(0.0, 200.0);
            let span = Span::new(start, start + len).clamp(bounds, min_len);
            prop_assert!(span.start >= bounds.start && span.end <= bounds.end + 1e-9);
            prop_assert!(span.len() + 1e-9 >= min_len.min(bounds.len()));
        }
    }
}
