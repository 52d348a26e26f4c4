//! How much longer a step takes than it would with other ranks.

use wire::views::what_if::WhatIf;

/// Says what is wasted, and how that differs from the slowdown against even ranks.
#[must_use]
pub fn slowdowns(what_if: &WhatIf) -> [String; 2] {
    let alike = format!(
        "A step takes {} times as long as it would if no rank were slower than the others like it: {} of it is wasted.",
        units::significant(what_if.slowdown),
        units::percent(what_if.wasted_share)
    );
    let of_slowest = match what_if.slowest_share.known() {
        Some(share) => {
            format!(", and the slowest 3 % of the ranks make {} of the difference", units::percent(*share))
        }
        None => String::new(),
    };
    let even = format!(
        "It takes {} times as long as with every duration at its mean or median over all ranks{of_slowest}.",
        units::significant(what_if.even_slowdown)
    );
    [alike, even]
}
