//! The own overhead, in words.

use units::signed;
use wire::views::OwnOverhead;

/// The definition of the own overhead.
pub const OVERHEAD_MEANS: &str =
    "median of (observed step / neighboring shadow step) - 1, with its 95 % interval";

/// Formats the interval of the own overhead.
pub fn interval(overhead: &OwnOverhead) -> String {
    // A number and its unit stay on one line.
    let [low, high] = [overhead.low, overhead.high].map(|end| signed_percent(end).replace(' ', "\u{a0}"));
    format!("{low} to {high}, {} pairs", overhead.pairs)
}

/// Formats a share in percent with its sign. A negative overhead is noise.
pub fn signed_percent(ratio: f64) -> String {
    format!("{} %", signed(ratio * 100.0, 2))
}
