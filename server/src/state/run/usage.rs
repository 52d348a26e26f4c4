//! How the devices and hosts of a run's ranks were used over time.

use wire::clock::ServerNanos;
use wire::device::DeviceSample;
use wire::host::HostSample;
use wire::ids::Rank;
use wire::usage::Usage;
use wire::views::RecentUsage;

use super::{RankState, Run};
use crate::state::budget;
use crate::state::usage::{self, MeasureHistory, RankUsage};

/// A sample that arrived.
pub(super) enum Sample {
    /// Of a rank's device.
    Device(DeviceSample),
    /// Of a rank's host.
    Host(HostSample),
}

impl Run {
    /// Adds a rank's samples, which arrived at `now`, at their times on the server's clock. Before the rank's clock is aligned, the
    /// time of arrival stands for them.
    pub(super) fn add_samples(&mut self, rank: Rank, samples: Vec<Sample>, now: ServerNanos) {
        if samples.is_empty() {
            return;
        }
        let most = budget::USAGE_BYTES / self.ranks.world_size().max(1);
        let clock = self.clock_of(rank);
        let fit = self.clocks.fit(clock);
        let usage = &mut self.ranks.speaking(rank.0 as usize).usage;
        let before = usage.bytes();
        for sample in samples {
            // Whatever the sender's clock says, a sample was taken before it arrived. One from the future would hide later ones.
            let at = |local| fit.map_or(now, |fit| fit.align(local).min(now));
            match sample {
                Sample::Device(sample) => usage.add_device(at(sample.at), &sample, most),
                Sample::Host(sample) => usage.add_host(at(sample.at), &sample, most),
            }
        }
        self.usage_bytes = (self.usage_bytes + usage.bytes()).saturating_sub(before);
    }

    /// Returns the size of each rank's samples, in bytes.
    pub fn usage_bytes_by_rank(&self) -> impl Iterator<Item = (u32, usize)> {
        self.ranks.iter().map(|(rank, state)| (rank as u32, state.usage.bytes()))
    }

    /// Summarizes the last minute of all ranks.
    #[must_use]
    pub fn recent_usage(&self) -> Vec<RecentUsage> {
        usage::recent(self.ranks.iter().map(|(rank, state)| (rank as u32, &state.usage)))
    }

    /// Returns one measure over time of every rank that the run ever had, to be read outside the hub. A rank that has not sent
    /// anything has an empty one.
    #[must_use]
    pub fn usage(&self, usage: Usage) -> Vec<MeasureHistory> {
        let empty = RankUsage::default();
        let of_rank = |state: Option<&RankState>| state.map_or(&empty, |state| &state.usage).history(usage);
        self.ranks.ever().map(of_rank).collect()
    }
}
