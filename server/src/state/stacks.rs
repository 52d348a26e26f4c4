//! The stacks of a run's ranks: what they are asked for, and what they sent.

use std::collections::BTreeMap;
use std::sync::Arc;

use wire::clock::ServerNanos;
use wire::request::RecordingRequest;
use wire::stacks::Stacks;
use wire::views::{Cause, Culprit, Report};

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

/// The ranks whose stacks were asked for as evidence, by the cause of the verdict.
#[derive(Default)]
pub struct Wanted(BTreeMap<(u32, Cause), ServerNanos>);

impl Wanted {
    /// Returns the ranks to sample now: the culprit of each verdict that code may explain, once while the verdict
    /// lasts, and a rank that is no culprit.
    pub(super) fn ranks(&mut self, report: &Report, now: ServerNanos) -> Vec<u32> {
        let explained = |cause| {
            matches!(
                cause,
                Cause::Input | Cause::H2d | Cause::Compute | Cause::MoreWork | Cause::Host | Cause::Unknown
            )
        };
        let verdicts = report.verdicts.iter().filter(|verdict| explained(verdict.cause));
        let blamed: Vec<(&[u32], Cause)> = verdicts
            .filter_map(|verdict| Some((verdict.culprit.as_ref().map(Culprit::ranks)?, verdict.cause)))
            .filter(|(ranks, _)| !ranks.is_empty())
            .collect();
        let is_blamed = |key: &(u32, Cause)| blamed.iter().any(|(ranks, cause)| (ranks[0], *cause) == *key);
        self.0.retain(|key, asked| is_blamed(key) || now - *asked < AGAIN_NANOS);
        let mut ranks = Vec::new();
        for (suspects, cause) in &blamed {
            let key = (suspects[0], *cause);
            let peer = (0..report.ranks).find(|rank| !suspects.contains(rank));
            if let Some(peer) = peer.filter(|_| !self.0.contains_key(&key)) {
                self.0.insert(key, now);
                ranks.extend([key.0, peer]);
            }
        }
        ranks.sort_unstable();
        ranks.dedup();
        ranks
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
