//! The part of a step that all ranks have, where the file of one lacks its first or its last collectives.

use std::collections::BTreeMap;

use wire::clock::MonoNanos;
use wire::event::Event;
use wire::ids::Step;

use super::clocks::Proof;
use super::matching::Places;

/// The part of a step that counts, on the clock of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    begin: MonoNanos,
    end: MonoNanos,
}

/// The collectives of a step that some rank lacks, and the others, by the times at which the first and the last of them end.
#[derive(Clone, Copy, Default)]
struct Ends {
    lacking: Option<(MonoNanos, MonoNanos)>,
    common: Option<(MonoNanos, MonoNanos)>,
}

/// Returns the windows of the steps in which what some rank lacks comes before or after all that every rank has. `proofs` are the collectives
/// of a rank as they were counted, and `places` is what became of them.
pub(super) fn windows(proofs: &[Proof], places: &Places) -> BTreeMap<Step, Window> {
    let mut steps: BTreeMap<Step, Ends> = BTreeMap::new();
    for proof in proofs {
        let ends = steps.entry(proof.step).or_default();
        let is_lacking = places.get(&(proof.comm, proof.seq)) == Some(&None);
        let range = if is_lacking { &mut ends.lacking } else { &mut ends.common };
        let (first, last) = range.get_or_insert((proof.end, proof.end));
        (*first, *last) = ((*first).min(proof.end), (*last).max(proof.end));
    }
    let window = |(step, ends): (Step, Ends)| {
        let ((first_lacking, last_lacking), (first, last)) = (ends.lacking?, ends.common?);
        let (begin, end) = (MonoNanos(i64::MIN), MonoNanos(i64::MAX));
        match (last_lacking < first, last < first_lacking) {
            (true, _) => Some((step, Window { begin: last_lacking, end })),
            (_, true) => Some((step, Window { begin, end: last })),
            (false, false) => None,
        }
    };
    steps.into_iter().filter_map(window).collect()
}

/// Cuts a record to the window of its step. Returns false if nothing of it is left.
pub(super) fn clip(event: &mut Event, windows: &BTreeMap<Step, Window>) -> bool {
    let (step, from, to) = match event {
        Event::Step(record) => (record.step, &mut record.begin, &mut record.end),
        Event::Span(span) => (span.step, &mut span.begin, &mut span.end),
        Event::Bucket(bucket) => {
            let window = windows.get(&bucket.step);
            return window.is_none_or(|window| bucket.start < window.end && bucket.end > window.begin);
        }
        Event::Started(_) => return true,
    };
    let Some(window) = windows.get(&step) else { return true };
    (*from, *to) = ((*from).max(window.begin), (*to).min(window.end));
    from < to
}

#[cfg(test)]
mod tests;
