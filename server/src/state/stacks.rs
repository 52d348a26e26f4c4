//! The stacks of a run's ranks: what they are asked for, and what they sent.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use wire::clock::ServerNanos;
use wire::request::RecordingRequest;
use wire::stacks::Stacks;
use wire::views::{Cause, Culprit, Verdict};

/// How long stacks are sampled as evidence, in milliseconds.
const EVIDENCE_MILLIS: u16 = 3_000;
/// How long the stacks of ranks that hang are sampled, in milliseconds.
const HANG_MILLIS: u16 = 500;
/// The largest number of ranks that are sampled because of a hang.
pub(super) const MOST_OF_HANG: usize = 64;
/// The shortest time between two samplings of the same rank for the same cause, in nanoseconds.
const AGAIN_NANOS: i64 = 60_000_000_000;

/// The stacks of one rank.
#[derive(Default)]
pub struct RankStacks {
    newest: Option<Arc<Stacks>>,
    /// The request that the rank has not answered yet.
    asked: Option<RecordingRequest>,
}

impl RankStacks {
    /// Returns the approximate size, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.newest.as_ref().map_or(0, |stacks| stacks.bytes())
    }

    pub(super) fn ask(&mut self, request: RecordingRequest) {
        self.asked = Some(request);
    }

    pub(super) fn asked(&self, now: ServerNanos) -> Option<RecordingRequest> {
        self.asked.filter(|asked| asked.is_current(now))
    }

    pub(super) fn add(&mut self, stacks: Stacks) {
        self.asked = self.asked.filter(|asked| asked.number > stacks.request);
        self.newest = Some(Arc::new(stacks));
    }

    /// Returns the rank's newest answer.
    #[must_use]
    pub fn newest(&self) -> Option<&Arc<Stacks>> {
        self.newest.as_ref()
    }
}

/// The ranks whose stacks were asked for as evidence, with the causes of the verdicts.
#[derive(Default)]
pub struct Wanted(BTreeMap<(u32, Cause), ServerNanos>);

impl Wanted {
    /// Returns the ranks to sample now, once while a verdict or a note on ranks lasts that code may explain: its first culprit and a rank
    /// that is not a culprit, or the first ranks if all of them lose time alike.
    pub(super) fn ranks(
        &mut self,
        verdicts: &[Verdict],
        notes: &[Verdict],
        ranks: u32,
        now: ServerNanos,
    ) -> BTreeSet<u32> {
        // A rank that seems to be slowed by its host may be slow for a line of its own.
        let notes = notes.iter().filter(|note| !matches!(note.culprit, None | Some(Culprit::All)));
        let all = verdicts.iter().chain(notes);
        let sampled = all.filter_map(|verdict| Some((verdict.cause, sampled(verdict, ranks)?)));
        let wanted: BTreeSet<(u32, Cause)> =
            sampled.flat_map(|(cause, ranks)| ranks.into_iter().map(move |rank| (rank, cause))).collect();
        self.0.retain(|key, asked| wanted.contains(key) || now - *asked < AGAIN_NANOS);
        let mut ranks = BTreeSet::new();
        for key in wanted {
            if let Entry::Vacant(new) = self.0.entry(key) {
                new.insert(now);
                ranks.insert(key.0);
            }
        }
        ranks
    }
}

/// Returns the ranks whose stacks may explain a verdict on a run of `ranks` ranks; `None` if code explains nothing of it.
///
/// A rank takes the stacks of what happens now and then by itself, but not those of its loader workers.
fn sampled(verdict: &Verdict, ranks: u32) -> Option<Vec<u32>> {
    use Cause::{Compute, H2d, Host, Input, MoreWork, Optimizer, Processor, Unknown};
    if verdict.recurrence.is_some() && verdict.cause != Input {
        return None;
    }
    match verdict.culprit.as_ref()? {
        // Two ranks say whether loaders do not keep up.
        Culprit::All if verdict.cause == Input => Some((0..ranks.min(2)).collect()),
        Culprit::All => matches!(verdict.cause, Host | Optimizer).then(|| vec![0]),
        named
            if verdict.cause.is_pause()
                || matches!(verdict.cause, Input | H2d | Compute | MoreWork | Host | Processor | Unknown) =>
        {
            let suspects = named.ranks();
            let peer = (0..ranks).find(|rank| !suspects.contains(rank))?;
            Some(vec![*suspects.first()?, peer])
        }
        _ => None,
    }
}

/// Returns the request for the stacks of ranks that hang. They stand still, so few samples are enough.
pub(super) fn request_of_hang(now: ServerNanos) -> RecordingRequest {
    RecordingRequest::at(now, HANG_MILLIS)
}

/// Returns the request for stacks as evidence.
pub(super) fn request_of_evidence(now: ServerNanos) -> RecordingRequest {
    RecordingRequest::at(now, EVIDENCE_MILLIS)
}

#[cfg(test)]
mod tests {
    use wire::views::Recurrence;

    use super::*;

    const NOW: ServerNanos = ServerNanos(1_790_000_000_000_000_000);

    #[test]
    fn each_rank_is_asked_once_for_a_cause_whichever_verdicts_it_is_in() {
        let mut wanted = Wanted::default();
        let mut ask = |culprit, cause, recurrence, seconds: i64| {
            let verdict = Verdict { recurrence, ..Verdict::new(culprit, cause) };
            let asked = wanted.ranks(&[verdict], &[], 4, ServerNanos(NOW.0 + seconds * 1_000_000_000));
            asked.into_iter().collect::<Vec<u32>>()
        };
        assert_eq!(ask(Culprit::All, Cause::Input, None, 0), [0, 1], "two loaders are compared");
        assert_eq!(ask(Culprit::Rank(2), Cause::Input, None, 1), [2], "rank 0, its peer, was asked");
        assert_eq!(ask(Culprit::Rank(2), Cause::Host, None, 2), [0, 2], "for another cause");
        let often =
            Some(Recurrence { times: 9, every_steps: Some(4), nanos: 1, share_of_time: 0.5, steps: vec![3] });
        assert_eq!(
            ask(Culprit::Rank(3), Cause::Host, often.clone(), 3),
            [0_u32; 0],
            "it takes its own stacks"
        );
        assert_eq!(ask(Culprit::Rank(3), Cause::Input, often, 4), [3], "but not those of its workers");
        assert_eq!(ask(Culprit::All, Cause::Input, None, 30), [0_u32; 0]);
        assert_eq!(ask(Culprit::Rank(1), Cause::Compute, None, 90), [0, 1]);
        assert_eq!(
            ask(Culprit::All, Cause::Input, None, 91),
            [0, 1],
            "a minute later, they may do other things"
        );
    }

    #[test]
    fn a_note_on_a_rank_is_followed_up_and_one_on_all_ranks_is_not() {
        let asked = |culprit| {
            let note = Verdict::new(culprit, Cause::Processor);
            Wanted::default().ranks(&[], &[note], 4, NOW).into_iter().collect::<Vec<u32>>()
        };
        assert_eq!(asked(Culprit::Rank(2)), [0, 2]);
        assert_eq!(asked(Culprit::All), [0_u32; 0]);
    }
}
