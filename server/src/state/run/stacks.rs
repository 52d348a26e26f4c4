//! The stacks of a run's ranks: what they are asked for, and what they sent.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use analysis::hang;
use wire::clock::ServerNanos;
use wire::ids::Rank;
use wire::request::RecordingRequest;
use wire::stacks::{LongStep, SpanLine, Stacks};
use wire::views::{Cause, Culprit, Hang, Report, Verdict};

use super::Run;
use super::own_code::OwnCode;

/// How long stacks are sampled as evidence, in milliseconds.
const EVIDENCE_MILLIS: u16 = 3_000;
/// How long the stacks of ranks that hang are sampled, in milliseconds.
const HANG_MILLIS: u16 = 500;
/// The largest number of ranks that are sampled because of a hang.
pub(super) const MOST_OF_HANG: usize = 64;
/// The shortest time between two samplings of the same rank for the same cause, in nanoseconds.
const AGAIN_NANOS: i64 = 60_000_000_000;

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
    RecordingRequest::new(now, HANG_MILLIS)
}

pub(super) fn request_of_evidence(now: ServerNanos) -> RecordingRequest {
    RecordingRequest::new(now, EVIDENCE_MILLIS)
}

impl Run {
    /// Returns the newest stacks of each rank that has sent any.
    pub fn stacks(&self) -> impl Iterator<Item = (Rank, &Arc<Stacks>)> {
        self.ranks.iter().filter_map(|(rank, state)| Some((Rank(rank as u32), state.stacks.newest()?)))
    }

    /// Returns the stacks of the newest and longest long steps of each of `ranks` ranks, oldest first.
    #[must_use]
    pub fn long_steps(&self, ranks: usize) -> Vec<Vec<Arc<LongStep>>> {
        self.own_code(ranks, OwnCode::long_steps)
    }

    /// Returns the lines of code in which each of `ranks` ranks does what its spans record, as far as they are known.
    #[must_use]
    pub fn span_lines(&self, ranks: usize) -> Vec<Vec<SpanLine>> {
        self.own_code(ranks, OwnCode::lines)
    }

    fn own_code<T>(&self, ranks: usize, read: impl Fn(&OwnCode) -> Vec<T>) -> Vec<Vec<T>> {
        self.ranks
            .first(ranks)
            .map(|rank| rank.map(|rank| read(&rank.own_code)).unwrap_or_default())
            .collect()
    }

    /// Asks ranks (`None`: all) for their stacks, in the answer to their next batch. Returns false if there is no such
    /// rank.
    pub fn ask_for_stacks(&mut self, rank: Option<Rank>, request: RecordingRequest) -> bool {
        let wanted = |at: usize| rank.is_none_or(|rank| rank.0 as usize == at);
        let ranks = self.ranks.iter_mut().filter(|(at, _)| wanted(*at));
        ranks.map(|(_, state)| state.stacks.ask(request)).count() > 0
    }

    /// Asks for the stacks that the verdicts and notes of a report need.
    pub fn want_stacks(&mut self, report: &Report, now: ServerNanos) {
        for rank in self.stacks_wanted.ranks(&report.verdicts, &report.notes, report.ranks, now) {
            self.ask_for_stacks(Some(Rank(rank)), request_of_evidence(now));
        }
    }

    /// Asks the ranks of a hang and some others for their stacks, once per hang, and adds to it where they stand.
    pub(super) fn explain_hang(&mut self, hang: Hang, now: ServerNanos) -> Hang {
        let request = match self.hang_asked {
            Some(request) => request,
            None => self.ask_because_of(&hang, now),
        };
        let answers = self.stacks().filter(|(_, stacks)| stacks.request >= request.number);
        hang::with_stacks(hang, answers.filter_map(|(rank, stacks)| Some((rank, stacks.profile()?))))
    }

    fn ask_because_of(&mut self, hang: &Hang, now: ServerNanos) -> RecordingRequest {
        let request = request_of_hang(now);
        let others = (0..self.world_size()).map(Rank).filter(|rank| !hang.ranks.contains(rank));
        for rank in hang.ranks.iter().copied().chain(others).take(MOST_OF_HANG) {
            self.ask_for_stacks(Some(rank), request);
        }
        self.hang_asked = Some(request);
        request
    }
}

#[cfg(test)]
mod tests;
