//! The devices of a run, and the bursts that their ranks are asked for.

use wire::clock::ServerNanos;
use wire::ids::Rank;
use wire::request::RecordingRequest;
use wire::views::Report;

use super::{RankState, Run};
use crate::state::devices::{self, RankDevices};

impl Run {
    /// Returns the devices of each rank that has sent a batch, by rank.
    pub fn devices(&self) -> impl Iterator<Item = (usize, &RankDevices)> {
        self.ranks.iter().map(|(rank, state)| (rank, &state.devices))
    }

    /// Asks ranks (`None`: all) for a burst, in the answer to their next batch. Returns false if there is no such rank.
    pub fn ask_for_burst(&mut self, rank: Option<Rank>, request: RecordingRequest) -> bool {
        let wanted = |at: usize| rank.is_none_or(|rank| rank.0 as usize == at);
        let ranks = self.ranks.iter_mut().filter(|(at, _)| wanted(*at));
        ranks.map(|(_, state)| state.devices.ask(request)).count() > 0
    }

    /// Asks for the device evidence that a verdict needs, once per culprit.
    pub fn want_evidence(&mut self, report: &Report, now: ServerNanos) {
        let has_device = |rank: Option<&RankState>| rank.is_some_and(|rank| rank.devices.newest().is_some());
        let known: Vec<bool> = self.ranks.world().map(has_device).collect();
        let Some((suspect, peer)) = devices::to_compare(report, &known) else { return };
        if self.evidence_asked.insert(suspect) {
            let request = devices::request_of_evidence(now);
            self.ask_for_burst(Some(Rank(suspect)), request);
            self.ask_for_burst(Some(Rank(peer)), request);
        }
    }
}
