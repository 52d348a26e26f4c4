//! Bounds that do not panic. The library's `clamp` of floats says both in its message, and so brings every way of
//! writing a float along: 15 KB of the download.
#![allow(clippy::manual_clamp, reason = "see above")]

/// `value`, but at least `low` and at most `high`.
#[must_use]
pub fn within(value: f64, low: f64, high: f64) -> f64 {
    value.max(low).min(high)
}

/// The same with less room.
#[must_use]
pub fn within_f32(value: f32, low: f32, high: f32) -> f32 {
    value.max(low).min(high)
}
