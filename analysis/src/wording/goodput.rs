//! Goodput in words.

use wire::views::goodput::{Attempt, Goodput, TimeUse, Uses};

/// The largest number of uses that the sentence names.
const MAX_NAMED: usize = 4;
/// The smallest share that the sentence names.
const MIN_SHARE: f64 = 0.001;

/// Returns what the time that is no goodput went to, largest first: `setup 9.1 %, recovery 4.0 %`. Empty if all of it is
/// goodput.
#[must_use]
pub fn badput(goodput: &Goodput) -> String {
    let uses = TimeUse::ALL.into_iter().filter(|of| !of.is_productive());
    let mut named: Vec<(TimeUse, f64)> = uses.map(|of| (of, goodput.share(of))).collect();
    named.retain(|(_, share)| *share >= MIN_SHARE);
    named.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    let named = named.iter().take(MAX_NAMED);
    named
        .map(|(of, share)| format!("{} {}", of.title(), units::percent(*share)))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Returns what an attempt did, in a sentence: `Steps 80 to 119 on 2 ranks, of which 20 were done before.`
#[must_use]
pub fn attempt(attempt: &Attempt) -> String {
    let ranks = units::ranks(attempt.ranks);
    let Some((first, last)) = attempt.steps else { return format!("No step yet, on {ranks}.") };
    let steps = format!("Steps {} to {} on {ranks}", units::count(first), units::count(last));
    match attempt.repeated_steps {
        0 => format!("{steps}."),
        1 => format!("{steps}, of which 1 was done before."),
        repeated => format!("{steps}, of which {} were done before.", units::count(repeated)),
    }
}

/// Returns the uses and their times in nanoseconds, the productive ones first.
#[must_use]
pub fn listed(uses: &Uses) -> Vec<(TimeUse, u64)> {
    TimeUse::ALL.into_iter().filter_map(|of| Some((of, *uses.get(&of)?))).collect()
}
