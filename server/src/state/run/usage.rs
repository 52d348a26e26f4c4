//! How the devices and hosts of a run's ranks were used, over time: the samples of the newest hour as they came, and older ones
//! as means, all compressed.

mod history;
mod packed;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use wire::clock::ServerNanos;
use wire::device::DeviceSample;
use wire::host::HostSample;
use wire::ids::Rank;
use wire::usage::{Usage, UsageUnit};
use wire::views::RecentUsage;

use self::packed::{Packed, Points};
use super::{RankState, Run};
use crate::state::budget;
pub use history::{MeasureHistory, Values};

/// The number of samples that are compressed together.
const CHUNK: usize = 120;
/// The number of the newest samples that are summarized: a minute. They are not compressed.
const RECENT: usize = 60;
/// The time for which samples are kept as they came, in nanoseconds.
const FINE_NANOS: i64 = 3_600_000_000_000;
/// The time over which older samples are averaged at first, in nanoseconds. It doubles whenever there are too many means.
const MEAN_NANOS: i64 = 60_000_000_000;
/// The largest number of chunks of means: two days of minutes.
const MAX_CHUNKS_OF_MEANS: usize = 24;
/// The longest time from a sample to the next that it still covers, in nanoseconds. Samples are taken once per second.
const SAMPLE_NANOS: i64 = 3_000_000_000;

/// The samples of one rank.
#[derive(Debug, Default)]
pub struct RankUsage {
    device: Series,
    host: Series,
}

impl RankUsage {
    /// Adds a sample of the rank's device, and drops resolution of old samples until the rank takes at most about `most` bytes.
    pub fn add_device(&mut self, at: ServerNanos, sample: &DeviceSample, most: usize) {
        let values = Usage::ALL.into_iter().filter_map(|usage| Some((usage, usage.device_value(sample)?)));
        self.device.add(at.0, values, most.saturating_sub(self.host.bytes()));
    }

    pub fn add_host(&mut self, at: ServerNanos, sample: &HostSample, most: usize) {
        let values = Usage::ALL.into_iter().filter_map(|usage| Some((usage, usage.host_value(sample)?)));
        self.host.add(at.0, values, most.saturating_sub(self.device.bytes()));
    }

    fn series(&self, usage: Usage) -> &Series {
        if usage.is_of_device() { &self.device } else { &self.host }
    }

    /// Returns one measure over time, to be read outside the hub.
    #[must_use]
    pub fn history(&self, usage: Usage) -> MeasureHistory {
        self.series(usage).history(usage)
    }

    /// Returns the newest sample of the rank's host.
    #[must_use]
    pub fn newest_of_host(&self) -> Vec<(Usage, f32)> {
        self.host.open.newest().collect()
    }

    /// Returns each measure over the last minute of samples, with its largest sample so far.
    fn recent(&self) -> impl Iterator<Item = (Usage, f32, f32)> {
        [&self.device, &self.host].into_iter().flat_map(|series| {
            let recent = series.recent().into_iter();
            recent.map(|(usage, value)| (usage, value, series.most.get(&usage).copied().unwrap_or(value)))
        })
    }

    /// Returns the approximate size, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.device.bytes() + self.host.bytes()
    }
}

/// The samples of one device or one host.
#[derive(Debug, Default)]
struct Series {
    /// The newest samples.
    open: Points,
    /// Those before them, oldest first.
    fine: VecDeque<Arc<Packed>>,
    /// The newest means.
    open_means: Points,
    /// Those before them, oldest first.
    means: VecDeque<Arc<Packed>>,
    /// The samples of the next mean.
    next_mean: Mean,
    /// How often the time of a mean has doubled.
    doubled: u32,
    /// The largest values so far.
    most: BTreeMap<Usage, f32>,
}

impl Series {
    fn add(&mut self, at: i64, values: impl Iterator<Item = (Usage, f32)>, most: usize) {
        // Clocks are aligned better over time, so that a sample may seem to be older than the one before it.
        let newest = self.open.last().or_else(|| self.fine.back().map(|packed| packed.last_at));
        if newest.is_some_and(|newest| at < newest) {
            return;
        }
        let largest = &mut self.most;
        let values = values.inspect(|(usage, value)| {
            largest.entry(*usage).and_modify(|most| *most = most.max(*value)).or_insert(*value);
        });
        self.open.push(at, values);
        // The newest samples stay in memory as they are. They may take at most a quarter of it.
        if self.open.len() >= CHUNK + RECENT || self.open.bytes() > most / 4 {
            let rest = self.open.split_off(self.open.len().saturating_sub(RECENT).max(self.open.len() / 2));
            self.fine.extend(Packed::new(&std::mem::replace(&mut self.open, rest)));
        }
        while self.fine.front().is_some_and(|oldest| at.saturating_sub(oldest.last_at) > FINE_NANOS)
            || self.bytes() > most
        {
            if !self.drop_resolution() {
                break;
            }
        }
    }

    /// Averages the oldest samples, or else compresses or averages means. Returns false if nothing is left but the newest samples.
    fn drop_resolution(&mut self) -> bool {
        if let Some(oldest) = self.fine.pop_front() {
            oldest.unpack().rows().for_each(|(at, values)| self.average(at, values));
        } else if self.open_means.len() > 1 {
            self.means.extend(Packed::new(&std::mem::take(&mut self.open_means)));
        } else if self.means.len() > 1 {
            self.double();
        } else {
            return self.means.pop_front().is_some();
        }
        true
    }

    fn mean_nanos(&self) -> i64 {
        MEAN_NANOS << self.doubled.min(20)
    }

    /// Adds a sample to the means.
    fn average(&mut self, at: i64, values: impl Iterator<Item = (Usage, f32)>) {
        if self.next_mean.begin.is_some_and(|begin| at.saturating_sub(begin) >= self.mean_nanos()) {
            std::mem::take(&mut self.next_mean).finish(&mut self.open_means);
        }
        self.next_mean.add(at, values);
        if self.open_means.len() >= CHUNK {
            self.means.extend(Packed::new(&std::mem::take(&mut self.open_means)));
        }
        if self.means.len() > MAX_CHUNKS_OF_MEANS {
            self.double();
        }
    }

    /// Averages all means again, over twice the time.
    fn double(&mut self) {
        self.doubled += 1;
        let means = std::mem::take(&mut self.means);
        let newest = std::mem::take(&mut self.open_means);
        let pending = std::mem::take(&mut self.next_mean);
        for points in means.into_iter().map(|packed| packed.unpack()).chain([newest]) {
            points.rows().for_each(|(at, values)| self.average(at, values));
        }
        let mut rest = Points::default();
        pending.finish(&mut rest);
        rest.rows().for_each(|(at, values)| self.average(at, values));
    }

    /// Averages the newest samples.
    fn recent(&self) -> BTreeMap<Usage, f32> {
        let mut mean = Mean::default();
        let rows = self.open.rows();
        rows.skip(self.open.len().saturating_sub(RECENT)).for_each(|(at, values)| mean.add(at, values));
        mean.values().collect()
    }

    fn history(&self, usage: Usage) -> MeasureHistory {
        let having = |packed: &&Arc<Packed>| packed.has(usage);
        let mut newest_means = self.open_means.clone();
        self.next_mean.clone().finish(&mut newest_means);
        MeasureHistory {
            usage,
            means: self.means.iter().filter(having).cloned().collect(),
            newest_means: newest_means.column(usage),
            mean_nanos: self.mean_nanos(),
            fine: self.fine.iter().filter(having).cloned().collect(),
            newest: self.open.column(usage),
        }
    }

    fn bytes(&self) -> usize {
        let packed = |all: &VecDeque<Arc<Packed>>| all.iter().map(|packed| packed.bytes).sum::<usize>();
        self.open.bytes() + packed(&self.fine) + self.open_means.bytes() + packed(&self.means)
    }
}

/// Summarizes the last minute of all ranks, by measure.
#[must_use]
pub fn recent<'a>(ranks: impl Iterator<Item = (u32, &'a RankUsage)>) -> Vec<RecentUsage> {
    let mut values: BTreeMap<Usage, (Vec<(f32, u32)>, f32)> = BTreeMap::new();
    for (rank, usage) in ranks {
        for (usage, value, so_far) in usage.recent() {
            let (all, most) = values.entry(usage).or_insert((Vec::new(), f32::NEG_INFINITY));
            all.push((value, rank));
            *most = most.max(so_far);
        }
    }
    let summary = |(usage, (mut all, most)): (Usage, (Vec<(f32, u32)>, f32))| {
        all.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let (low, largest) = (*all.first()?, all.last()?.0);
        let high = *all.iter().find(|(value, _)| *value == largest)?;
        Some(RecentUsage {
            usage,
            ranks: all.len() as u32,
            median: all[(all.len() - 1) / 2].0,
            low,
            high,
            most,
        })
    };
    values.into_iter().filter_map(summary).collect()
}

/// A mean over samples: of a count, the largest.
#[derive(Clone, Debug, Default)]
struct Mean {
    begin: Option<i64>,
    end: i64,
    sums: BTreeMap<Usage, Sum>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    /// Of a count, the largest value.
    sum: f64,
    /// The number of samples; of a count, 1.
    samples: u32,
}

impl Mean {
    fn add(&mut self, at: i64, values: impl Iterator<Item = (Usage, f32)>) {
        self.begin.get_or_insert(at);
        self.end = at;
        for (usage, value) in values {
            let entry = self.sums.entry(usage).or_default();
            let (sum, samples) = match usage.unit() {
                UsageUnit::Count => (entry.sum.max(f64::from(value)), 1),
                _ => (entry.sum + f64::from(value), entry.samples + 1),
            };
            *entry = Sum { sum, samples };
        }
    }

    fn finish(self, means: &mut Points) {
        if self.begin.is_some() {
            means.push(self.end, self.values());
        }
    }

    fn values(&self) -> impl Iterator<Item = (Usage, f32)> {
        self.sums.iter().map(|(usage, entry)| (*usage, (entry.sum / f64::from(entry.samples)) as f32))
    }
}

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
        let bytes_before = usage.bytes();
        for sample in samples {
            // Whatever the sender's clock says, a sample was taken before it arrived. One from the future would hide later ones.
            let at = |local| fit.map_or(now, |fit| fit.align(local).min(now));
            match sample {
                Sample::Device(sample) => usage.add_device(at(sample.at), &sample, most),
                Sample::Host(sample) => usage.add_host(at(sample.at), &sample, most),
            }
        }
        self.usage_bytes = (self.usage_bytes + usage.bytes()).saturating_sub(bytes_before);
    }

    /// Returns the size of each rank's samples, in bytes.
    pub fn usage_bytes_by_rank(&self) -> impl Iterator<Item = (u32, usize)> {
        self.ranks.iter().map(|(rank, state)| (rank as u32, state.usage.bytes()))
    }

    /// Summarizes the last minute of all ranks.
    #[must_use]
    pub fn recent_usage(&self) -> Vec<RecentUsage> {
        recent(self.ranks.iter().map(|(rank, state)| (rank as u32, &state.usage)))
    }

    /// Returns one measure over time of every rank that the run ever had, to be read outside the hub. A rank that has not sent
    /// anything has an empty one.
    #[must_use]
    pub fn usage(&self, usage: Usage) -> Vec<MeasureHistory> {
        let empty = RankUsage::default();
        let history = |state: Option<&RankState>| state.map_or(&empty, |state| &state.usage).history(usage);
        self.ranks.ever().map(history).collect()
    }
}

#[cfg(test)]
mod tests;
