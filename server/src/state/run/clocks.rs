//! The clocks of a run's ranks. Ranks on one host share a clock and its probes.

use std::collections::VecDeque;

use timing::clocks::{self, ClockFit};
use wire::clock::Probe;
use wire::ids::Rank;

use super::{RankState, Run};
use crate::state::budget;

/// A clock that one or more ranks use for their timestamps.
#[derive(Default)]
struct Clock {
    name: String,
    probes: VecDeque<Probe>,
    fit: Option<ClockFit>,
}

/// The clocks of a run, by index.
#[derive(Default)]
pub struct Clocks {
    clocks: Vec<Clock>,
}

impl Clocks {
    /// Returns the index of the clock named `name`. An empty name always means a clock of its own. A new clock replaces
    /// one that no rank uses, if there is one: `used` holds each rank's clock.
    pub fn number(&mut self, name: &str, used: impl ExactSizeIterator<Item = Option<u32>>) -> u32 {
        let known = self.clocks.iter().position(|clock| !name.is_empty() && clock.name == name);
        let number = known.or_else(|| self.unused(used)).unwrap_or(self.clocks.len());
        if known.is_none() {
            let clock = Clock { name: name.to_owned(), ..Clock::default() };
            match self.clocks.get_mut(number) {
                Some(unused) => *unused = clock,
                None => self.clocks.push(clock),
            }
        }
        number as u32
    }

    /// Returns the index of a clock that no rank uses. While there are fewer clocks than ranks, returns `None` without
    /// a search.
    fn unused(&self, used: impl ExactSizeIterator<Item = Option<u32>>) -> Option<usize> {
        if self.clocks.len() < used.len() {
            return None;
        }
        let mut is_used = vec![false; self.clocks.len()];
        used.flatten().for_each(|number| is_used[number as usize] = true);
        is_used.iter().position(|used| !used)
    }

    /// Adds probes and fits the clock again.
    pub fn add(&mut self, number: u32, probes: &[Probe]) {
        let most = (budget::PROBES / self.clocks.len().max(1)).clamp(16, budget::CLOCK_PROBES);
        let (Some(first), Some(clock)) = (probes.first(), self.clocks.get_mut(number as usize)) else {
            return;
        };
        // Ranks of one clock send in any order. The fit needs the newest probe roughly last.
        let at = clock.probes.partition_point(|probe| probe.sent <= first.sent);
        let newer = clock.probes.split_off(at);
        clock.probes.extend(probes.iter().copied().chain(newer));
        let excess = clock.probes.len().saturating_sub(most);
        clock.probes.drain(..excess);
        clock.fit = clocks::fit(number, clock.probes.make_contiguous());
    }

    /// Returns the fit of a clock to its probes.
    #[must_use]
    pub fn fit(&self, number: u32) -> Option<ClockFit> {
        self.clocks.get(number as usize)?.fit
    }

    /// Returns the size of all probes and names, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.clocks.iter().map(|clock| clock.probes.capacity() * size_of::<Probe>() + clock.name.len()).sum()
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_no_rank_uses_is_replaced() {
        let mut clocks = Clocks::default();
        for start in 0..100 {
            // A single rank, which restarts with a new clock each time.
            let number = clocks.number(&format!("boot-{start}"), [None].into_iter());
            assert_eq!(number, 0);
        }
        assert_eq!(clocks.number("boot-99", [Some(0)].into_iter()), 0, "the name is known");
        assert_eq!(clocks.number("", [Some(0), None].into_iter()), 1);
        assert_eq!(clocks.number("", [Some(0), Some(1)].into_iter()), 2, "a nameless clock is a rank's own");
    }
}
