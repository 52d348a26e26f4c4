//! The stacks that the ranks of a run are asked for.

use std::sync::Arc;

use analysis::hang;
use wire::clock::ServerNanos;
use wire::ids::Rank;
use wire::request::RecordingRequest;
use wire::stacks::Stacks;
use wire::views::{Hang, Report};

use super::Run;
use crate::state::stacks;

impl Run {
    /// Returns the newest stacks of each rank that has sent any.
    pub fn stacks(&self) -> impl Iterator<Item = (Rank, &Arc<Stacks>)> {
        self.ranks.iter().filter_map(|(rank, state)| Some((Rank(rank as u32), state.stacks.newest()?)))
    }

    /// Asks ranks (`None`: all) for their stacks, in the answer to their next batch. Returns false if there is no such
    /// rank.
    pub fn ask_for_stacks(&mut self, rank: Option<Rank>, request: RecordingRequest) -> bool {
        let wanted = |at: usize| rank.is_none_or(|rank| rank.0 as usize == at);
        let ranks = self.ranks.iter_mut().filter(|(at, _)| wanted(*at));
        ranks.map(|(_, state)| state.stacks.ask(request)).count() > 0
    }

    /// Asks for the stacks that the verdicts of a report need.
    pub fn want_stacks(&mut self, report: &Report, now: ServerNanos) {
        for rank in self.stacks_wanted.ranks(report, now) {
            self.ask_for_stacks(Some(Rank(rank)), stacks::request_of_evidence(now));
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
        let request = stacks::request_of_hang(now);
        let others = (0..self.world_size()).map(Rank).filter(|rank| !hang.ranks.contains(rank));
        for rank in hang.ranks.iter().copied().chain(others).take(stacks::MOST_OF_HANG) {
            self.ask_for_stacks(Some(rank), request);
        }
        self.hang_asked = Some(request);
        request
    }
}
