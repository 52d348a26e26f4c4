//! How much longer a step takes than it would with other ranks.

use wire::views::what_if::WhatIf;

use crate::what_if::MAX_RANKS;

/// Says what is wasted, and how that differs from the slowdown against even ranks.
#[must_use]
pub fn slowdowns(what_if: &WhatIf) -> [String; 2] {
    let alike = format!(
        "A step takes {} times as long as it would if no rank were slower than the others like it: {} of it is wasted.",
        units::significant(what_if.slowdown),
        units::percent(what_if.wasted_share)
    );
    let slowest = match what_if.slowest_share.known() {
        Some(share) => {
            // The list has all ranks of a small job, of which 3 % are one rank.
            let slowest = if what_if.ranks.len() < MAX_RANKS {
                "slowest rank makes"
            } else {
                "slowest 3 % of the ranks make"
            };
            format!(", and the {slowest} {} of the difference", units::percent(*share))
        }
        None => String::new(),
    };
    let even = format!(
        "It takes {} times as long as with every duration at its mean or median over all ranks{slowest}.",
        units::significant(what_if.even_slowdown)
    );
    [alike, even]
}
