//! The own overhead, in words.

use wire::views::OwnOverhead;

/// Formats the interval of the own overhead.
pub fn interval(overhead: &OwnOverhead) -> String {
    // A number and its unit stay on one line.
    let [low, high] =
        [overhead.low, overhead.high].map(|end| units::signed_percent(end).replace(' ', "\u{a0}"));
    format!("{low} to {high}, {} pairs", overhead.pairs)
}
