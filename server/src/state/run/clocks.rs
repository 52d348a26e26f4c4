//! The clocks of a run's ranks.

use timing::clocks::ClockFit;
use wire::clock::Probe;
use wire::ids::Rank;

use super::{RankState, Run};

impl Run {
    /// Adds probes to a rank's clock, and so to the clock of all ranks that share it.
    pub(super) fn add_probes(&mut self, rank: Rank, probes: &[Probe]) {
        if probes.is_empty() {
            return;
        }
        let clock = self.clock_of(rank);
        self.clocks.add(clock, probes);
    }

    /// Returns the index of a rank's clock. A rank whose clock is unnamed or unknown gets a new one.
    pub(super) fn clock_of(&mut self, rank: Rank) -> u32 {
        let state = self.ranks.get(rank.0 as usize);
        if let Some(clock) = state.and_then(|state| state.clock) {
            return clock;
        }
        let name = state.and_then(|state| state.hello.as_ref()).map_or("", |hello| hello.clock.as_str());
        let used: Vec<Option<u32>> = self.ranks.ever().map(|rank| rank.and_then(|rank| rank.clock)).collect();
        let clock = self.clocks.number(name, used.into_iter());
        self.ranks.speaking(rank.0 as usize).clock = Some(clock);
        clock
    }

    /// Returns the fit of each rank's clock to its probes, even of ranks that the world no longer has.
    pub(super) fn fits(&self) -> Vec<Option<ClockFit>> {
        let fit = |rank: Option<&RankState>| {
            let rank = rank?;
            let device_nanos = rank.devices.clock_bound_nanos();
            Some(ClockFit { device_nanos, ..self.clocks.fit(rank.clock?)? })
        };
        self.ranks.ever().map(fit).collect()
    }
}
