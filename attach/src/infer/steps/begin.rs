//! Where a step begins in a repeating sequence of collectives, by what all ranks share.

use std::collections::VecDeque;

use wire::clock::MonoNanos;

use super::{Seen, Token};

/// The factor by which the longest pause must exceed the second longest to begin a step.
const CLEAR_PAUSE: f64 = 2.0;

/// Returns the position of the token after the only update of a step; `None` if there is no update or more than one.
pub(super) fn first_after_update(period: &[Seen]) -> Option<usize> {
    let mut updates = period.iter().enumerate().filter(|(_, seen)| seen.begins.is_some());
    let (first, _) = updates.next()?;
    updates.next().is_none().then_some(first)
}

/// Returns the position of the token before which the host reads input in most repeats; `None` if it reads none, or at several
/// positions.
pub(super) fn first_after_input(
    repeats: &[Seen],
    length: usize,
    inputs: &VecDeque<MonoNanos>,
) -> Option<usize> {
    let reads = |&at: &usize| {
        let read = inputs.partition_point(|&end| end <= repeats[at].launch);
        read.checked_sub(1).is_some_and(|newest| inputs[newest] > repeats[at - 1].launch)
    };
    // Nothing is known of the time before the first collective.
    let times = |position: usize| {
        (position..repeats.len()).step_by(length).filter(|&at| at > 0).filter(reads).count()
    };
    let mut positions = (0..length).filter(|&position| 2 * length * times(position) > repeats.len());
    let position = positions.next()?;
    positions.next().is_none().then_some(position)
}

/// Returns the position of the token after the longest pause, if all tokens reduce and that pause is clearly the longest.
///
/// A pause is what passes from the end of a collective to the end of the next one, less the time that the bytes of that one
/// take, at the highest rate of the sequence. Ranks measure it alike, but for some ten or hundred microseconds: they leave a
/// reduction together, whichever of them came last. The median over repeats counts, because ranks may have watched different ones.
pub(super) fn first_after_pause(repeats: &[Seen], length: usize) -> Option<usize> {
    if !repeats[..length].iter().all(|seen| seen.token.reduces()) {
        return None;
    }
    let median = |position: usize| -> Option<f64> {
        let took = repeats[position..].iter().step_by(length).map(|seen| seen.took);
        let mut took = took.collect::<Option<Vec<i64>>>()?;
        took.sort_unstable();
        Some(took[took.len() / 2] as f64)
    };
    let took = (0..length).map(median).collect::<Option<Vec<f64>>>()?;
    let bytes = |at: usize| repeats[at].token.bytes as f64;
    let per_byte = (0..length).filter(|&at| bytes(at) > 0.0).map(|at| took[at] / bytes(at));
    let per_byte = per_byte.min_by(f64::total_cmp).unwrap_or(0.0);
    let mut pauses: Vec<(f64, usize)> =
        took.iter().enumerate().map(|(at, took)| (took - per_byte * bytes(at), at)).collect();
    pauses.sort_by(|a, b| b.0.total_cmp(&a.0));
    match pauses.as_slice() {
        [_] => Some(0),
        [longest, second, ..] if longest.0 > CLEAR_PAUSE * second.0 => Some(longest.1),
        _ => None,
    }
}

/// Returns the position at which a step begins by the order of its collectives alone. That is the same on all ranks.
///
/// Of all rotations, the one is chosen in which collectives that reduce nothing come first for the longest, since those of
/// the forward pass gather or exchange and those of gradients reduce. Function and bytes decide between equal ones: layers and
/// the first bucket are small.
pub(super) fn first_by_order(period: &[Seen]) -> usize {
    let rotation = |first: usize| period[first..].iter().chain(&period[..first]).map(|seen| seen.token);
    let reduces = |first: usize| rotation(first).map(Token::reduces);
    let order =
        |&a: &usize, &b: &usize| reduces(a).cmp(reduces(b)).then_with(|| rotation(a).cmp(rotation(b)));
    (0..period.len()).min_by(order).unwrap_or(0)
}
