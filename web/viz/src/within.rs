//! Clamping without panics. The standard library's `clamp` of floats formats both bounds in its panic message, which
//! adds all float formatting to the download: 15 KB.
#![allow(clippy::manual_clamp, reason = "see above")]

/// Returns `value`, but at least `low` and at most `high`.
#[must_use]
pub fn within(value: f64, low: f64, high: f64) -> f64 {
    value.max(low).min(high)
}

/// Does the same for `f32`.
#[must_use]
pub fn within_f32(value: f32, low: f32, high: f32) -> f32 {
    value.max(low).min(high)
}
