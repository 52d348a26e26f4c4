//! The values of a run for its metrics.

use wire::batch::{DropReason, total};
use wire::clock::ServerNanos;

use super::{REPORTING_NANOS, RankState, Run};
use crate::metrics::RunValues;
use crate::state::snapshot::RunSnapshot;

impl Run {
    /// Returns the values that the run's gauges are set to. `shown` is the run's newest snapshot.
    #[must_use]
    pub fn values<'a>(&'a self, shown: &'a RunSnapshot, now: ServerNanos) -> RunValues<'a> {
        let devices = self.devices().filter_map(|(rank, devices)| Some((rank, devices.newest()?)));
        RunValues {
            summary: &shown.summary,
            report: shown.report.as_deref(),
            newest: shown.steps.last().map(AsRef::as_ref),
            is_over: self.is_over(now),
            late_records: self.late_records(),
            unanalyzed_steps: self.unanalyzed_steps(),
            reporting: self.reporting(now).collect(),
            clock_bounds: self.clock_bounds().collect(),
            drops: self.drop_counts(),
            devices: devices.collect(),
            hosts: self.ranks.iter().map(|(rank, state)| (rank, state.usage.newest_of_host())).collect(),
        }
    }

    /// Returns the ranks without an end-of-run message, and whether each was heard from recently.
    fn reporting(&self, now: ServerNanos) -> impl Iterator<Item = (usize, bool)> {
        let is_here = |rank: Option<&RankState>| rank.is_none_or(|rank| rank.bye.is_none());
        let here = self.ranks.world().enumerate().filter(move |(_, rank)| is_here(*rank));
        here.map(move |(rank, state)| {
            let last_seen = state.and_then(|state| state.last_seen);
            (rank, last_seen.is_some_and(|seen| now - seen < REPORTING_NANOS))
        })
    }

    /// Returns the error bound of each rank's clock, in nanoseconds.
    fn clock_bounds(&self) -> impl Iterator<Item = (usize, u64)> {
        let fits = self.fits().into_iter().take(self.ranks.world_size());
        fits.enumerate().filter_map(|(rank, fit)| Some((rank, fit?.bound())))
    }

    /// Returns the records that each rank dropped, over all its incarnations, by reason.
    fn drop_counts(&self) -> Vec<(usize, DropReason, u64)> {
        let by_reason = |state: &RankState, reason| {
            let drops = state.incarnations.drops();
            let counts = drops.iter().filter(|drop| drop.reason == reason).map(|drop| drop.count);
            total(counts)
        };
        let counts = self
            .ranks
            .iter()
            .flat_map(|(rank, state)| DropReason::ALL.map(|reason| (rank, reason, by_reason(state, reason))));
        counts.filter(|&(_, _, count)| count > 0).collect()
    }

    /// Returns the number of records that arrived after their step had closed, or that were too many for one step.
    #[must_use]
    pub fn late_records(&self) -> u64 {
        self.incoming.late().records + self.incoming.excess_records
    }

    /// Returns the number of steps that were not analyzed: too few ranks had sent them, or they arrived faster than
    /// this machine analyzes them.
    #[must_use]
    pub fn unanalyzed_steps(&self) -> u64 {
        self.incoming.sparse_steps + self.steps.given_up()
    }
}
