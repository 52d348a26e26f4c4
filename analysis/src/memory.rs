//! Memory that grows all along: of processes on hosts, and on devices. It costs nothing until it is full, and then it costs the job.
//!
//! What a job takes while it warms up, and what allocators keep, levels off. [`crate::trend`] asks for growth in each third of the
//! time, so that this is none.

use std::sync::Arc;

use wire::clock::MonoNanos;
use wire::device::{DeviceFigure, DeviceSample};
use wire::host::{HostFigure, HostSample};
use wire::views::{HostRanks, MemoryGrowth, MemoryKind, Missing, TimeLeft};

use crate::trend::{Trend, rising_levels};
use crate::wording;

/// The number of samples that are kept; beyond it, every second one goes. Half of them are four for each block of a trend.
const MOST: usize = 192;
/// One in this many samples, the oldest ones, is of the start: imports, data, the first steps.
const START: usize = 8;
/// The least growth, as a share of the memory before: allocators keep that much in reserve.
const MIN_SHARE: f64 = 0.05;
/// The share of the fastest growth from which a rank's memory grows too.
const GROWS_TOO: f64 = 0.5;
/// A growth is extrapolated to at most this many times the time for which it was watched. The caches and allocators of a young process
/// fill up for minutes, at a rate that would fill the host in hours.
const FORESEEN: f64 = 100.0;
/// The time left from which it is urgent: a job is looked at once a day.
const URGENT_SECONDS: f64 = 86_400.0;

/// The memory that one rank uses, over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Levels {
    levels: Vec<Level>,
    /// One in two to the power of this many samples is kept.
    thinned: u32,
    /// The number of samples.
    seen: u64,
    /// The age of the process at the newest sample, in nanoseconds; 0 if it is not known.
    age: u64,
    /// The memory that is left, and that can be freed without asking the process, in bytes.
    left: Option<u64>,
    /// The newest sample.
    newest: Option<Level>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Level {
    /// On the clock of the process.
    at: MonoNanos,
    bytes: u64,
}

impl Levels {
    /// Adds the memory of the process, without the pages of mapped files: they grow with what is read, and the kernel drops them where
    /// memory is short.
    pub(crate) fn add_host(&mut self, sample: &HostSample) {
        let Some(resident) = sample.get(HostFigure::ResidentBytes) else { return };
        let bytes = resident.saturating_sub(sample.get(HostFigure::SharedBytes).unwrap_or(0));
        let age = sample.get(HostFigure::ProcessAge).unwrap_or(0);
        if age < self.age {
            // Another process speaks for the rank.
            *self = Self::default();
        }
        self.age = age;
        self.add(Level { at: sample.at, bytes }, sample.get(HostFigure::MemoryAvailableBytes));
    }

    /// Adds the memory of the device: what tensors use if PyTorch's allocator says so, or else what all processes use.
    pub fn add_device(&mut self, sample: &DeviceSample) {
        let get = |figure| sample.get(figure);
        let free = get(DeviceFigure::MemoryTotalBytes)
            .zip(get(DeviceFigure::MemoryUsedBytes))
            .map(|(total, used)| total.saturating_sub(used));
        let allocated = get(DeviceFigure::AllocatedBytes);
        let cached = allocated
            .zip(get(DeviceFigure::ReservedBytes))
            .map_or(0, |(allocated, reserved)| reserved.saturating_sub(allocated));
        let Some(bytes) = allocated.or(get(DeviceFigure::MemoryUsedBytes)) else { return };
        self.add(Level { at: sample.at, bytes }, free.map(|free| free.saturating_add(cached)));
    }

    fn add(&mut self, level: Level, left: Option<u64>) {
        (self.left, self.newest) = (left, Some(level));
        if self.seen.is_multiple_of(1 << self.thinned) {
            self.levels.push(level);
        }
        self.seen += 1;
        if self.levels.len() >= MOST {
            let mut at = 0;
            self.levels.retain(|_| {
                at += 1;
                at % 2 == 1
            });
            self.thinned = (self.thinned + 1).min(u64::BITS - 1);
        }
    }

    /// Returns the approximate size, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.levels.capacity() * size_of::<Level>()
    }

    /// Returns the growth since the start, in bytes and seconds; `None` if the memory does not grow all along.
    fn growth(&self) -> Option<Growth> {
        let after_start = &self.levels[self.levels.len() / START..];
        let begin = after_start.first()?.at;
        let seconds = |at: MonoNanos| (at - begin) as f64 / 1e9;
        let points: Vec<(f64, f64)> =
            after_start.iter().map(|level| (seconds(level.at), level.bytes as f64)).collect();
        let (trend, newest) = (rising_levels(&points)?, self.newest?);
        let seconds = seconds(newest.at);
        // Memory that was taken at once, in the first seconds for instance, says nothing about later.
        let is_steady = trend.slope * seconds >= MIN_SHARE * trend.from;
        (is_steady && trend.to >= (1.0 + MIN_SHARE) * trend.from).then_some(Growth {
            trend,
            from: trend.from as u64,
            to: newest.bytes,
            seconds,
            left: self.left,
        })
    }
}

/// The growth of one rank's memory, in bytes and seconds.
struct Growth {
    trend: Trend,
    from: u64,
    to: u64,
    seconds: f64,
    left: Option<u64>,
}

/// The memory of all ranks, and where they run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory<'a> {
    pub(crate) ranks: u32,
    /// That of processes, by rank.
    pub(crate) hosts: &'a [Option<&'a Levels>],
    /// That of devices, by rank.
    pub(crate) devices: &'a [Option<Arc<Levels>>],
    pub(crate) placement: &'a [HostRanks],
}

/// Returns the memory that grows. What is full first comes first.
pub(crate) fn growth(memory: &Memory<'_>) -> Vec<MemoryGrowth> {
    let hosts = (0..).zip(memory.hosts).filter_map(|(rank, levels)| Some((rank, levels.as_ref()?.growth()?)));
    let devices =
        (0..).zip(memory.devices).filter_map(|(rank, levels)| Some((rank, levels.as_ref()?.growth()?)));
    let host_of = |rank: u32| {
        memory
            .placement
            .iter()
            .find(|host| (host.ranks.0..=host.ranks.1).contains(&rank))
            .map(|host| &host.host)
    };
    let on_one_host = |a: u32, b: u32| a == b || host_of(a).is_some() && host_of(a) == host_of(b);
    let mut found: Vec<MemoryGrowth> = [
        kind_growth(MemoryKind::Host, hosts.collect(), on_one_host),
        kind_growth(MemoryKind::Device, devices.collect(), |a, b| a == b),
    ]
    .into_iter()
    .flatten()
    .collect();
    let soonest =
        |growth: &MemoryGrowth| growth.time_left.known().map_or(f64::INFINITY, |left| left.soonest_seconds);
    found.sort_by(|a, b| soonest(a).total_cmp(&soonest(b)));
    for growth in &mut found {
        (growth.sentence, growth.advice) = wording::memory::words(growth, memory.ranks);
    }
    found
}

/// Returns the growth of one kind of memory. `shares` says whether two ranks share it.
fn kind_growth(
    kind: MemoryKind,
    mut grown: Vec<(u32, Growth)>,
    shares: impl Fn(u32, u32) -> bool,
) -> Option<MemoryGrowth> {
    let most = grown.iter().map(|(_, growth)| growth.trend.slope).fold(0.0, f64::max);
    grown.retain(|(_, growth)| growth.trend.slope >= GROWS_TOO * most);
    let time_left = |rank: u32, growth: &Growth| -> Option<TimeLeft> {
        let left = growth.left? as f64;
        let rate = |slope: fn(&Trend) -> f64| -> f64 {
            grown
                .iter()
                .filter(|(other, _)| shares(rank, *other))
                .map(|(_, growth)| slope(&growth.trend))
                .sum()
        };
        let (low, high) = (rate(|trend| trend.slope_range.0), rate(|trend| trend.slope_range.1));
        Some(TimeLeft { soonest_seconds: left / high, latest_seconds: left / low })
    };
    let soonest = |(rank, growth): &&(u32, Growth)| {
        time_left(*rank, growth).map_or(f64::INFINITY, |left| left.soonest_seconds)
    };
    let (rank, first) = grown.iter().min_by(|a, b| soonest(a).total_cmp(&soonest(b)))?;
    let left = time_left(*rank, first);
    if left.is_some_and(|left| left.soonest_seconds > FORESEEN * first.seconds) {
        return None;
    }
    Some(MemoryGrowth {
        kind,
        ranks: grown.iter().map(|(rank, _)| *rank).collect(),
        first_rank: *rank,
        from_bytes: first.from,
        to_bytes: first.to,
        over_seconds: first.seconds,
        bytes_per_second: first.trend.slope,
        left_bytes: first.left.ok_or(Missing::NoMemoryLimit).into(),
        time_left: left.ok_or(Missing::NoMemoryLimit).into(),
        is_urgent: left.is_some_and(|left| left.soonest_seconds < URGENT_SECONDS),
        sentence: String::new(),
        advice: String::new(),
    })
}

#[cfg(test)]
mod tests;
