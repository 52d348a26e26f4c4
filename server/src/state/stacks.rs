//! The stacks of a run's ranks: what they are asked for, and what they sent.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use wire::clock::ServerNanos;
use wire::request::RecordingRequest;
use wire::stacks::Stacks;
use wire::views::{Cause, Culprit, Report, Verdict};

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
    /// Returns the ranks to sample now, once while a verdict lasts that code may explain: its first culprit and a rank that is no
    /// culprit, or the first ranks if all of them lose time alike.
    pub(super) fn ranks(&mut self, report: &Report, now: ServerNanos) -> BTreeSet<u32> {
        let sampled = report
            .verdicts
            .iter()
            .filter_map(|verdict| Some((verdict.cause, sampled(verdict, report.ranks)?)));
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
    use Cause::{Compute, H2d, Host, Input, MoreWork, Optimizer, Unknown};
    if verdict.recurrence.is_some() && verdict.cause != Input {
        return None;
    }
    match verdict.culprit.as_ref()? {
        // Two ranks say whether loaders do not keep up.
        Culprit::All if verdict.cause == Input => Some((0..ranks.min(2)).collect()),
        Culprit::All => matches!(verdict.cause, Host | Optimizer).then(|| vec![0]),
        named
            if verdict.cause.is_pause()
                || matches!(verdict.cause, Input | H2d | Compute | MoreWork | Host | Unknown) =>
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
