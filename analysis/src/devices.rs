//! What device samples say of the ranks: the clocks of their devices, and how often their allocators ran out of memory.

use wire::clock::ServerNanos;
use wire::device::{DeviceFigure, DeviceSample, throttle};

use crate::finding::{Evidence, UsualClock};
use crate::stats;

/// The share of the samples that must report throttling for a device to count as throttled.
pub(crate) const MIN_LOWERED_SHARE: f64 = 0.5;
/// The share by which its clock must be below that of the other devices, or below its own maximum.
pub(crate) const LOWER: f64 = 0.05;

/// The least share of the ranks whose devices must be slowed for all ranks to be.
const MOST_RANKS: f64 = 0.75;

/// The fields of one device sample that show why a device computes slowly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceState {
    /// When the sample was taken, on the server's clock.
    pub at: ServerNanos,
    /// The clock of the multiprocessors, in megahertz; `None` if the device does not report it.
    pub clock: Option<u64>,
    /// The highest clock of the multiprocessors, in megahertz; 0 if the device does not report it.
    pub most: u64,
    /// The reasons for a lowered clock, as [`throttle`] bits.
    pub reasons: u64,
    /// How often PyTorch's allocator ran out of memory and emptied its cache; `None` if it is not observed.
    pub retries: Option<u64>,
}

impl DeviceState {
    /// Extracts the state from a sample that arrived at `at`.
    #[must_use]
    pub fn new(sample: &DeviceSample, at: ServerNanos) -> Self {
        Self {
            at,
            clock: sample.get(DeviceFigure::SmClockMegahertz),
            most: sample.get(DeviceFigure::SmClockMostMegahertz).unwrap_or(0),
            reasons: sample.get(DeviceFigure::ThrottleReasons).unwrap_or(0),
            retries: sample.get(DeviceFigure::AllocationRetries),
        }
    }

    pub(crate) fn is_slowed(&self) -> bool {
        !throttle::names(self.reasons).is_empty()
    }
}

/// Clocks that are lowered on all ranks.
#[derive(Clone, Debug)]
pub(crate) struct LoweredClocks {
    /// The reasons, as bits of [`wire::device::throttle`].
    pub(crate) reasons: u64,
    /// The share by which the clock is below the highest one: the median over ranks.
    pub(crate) below: f64,
    pub(crate) evidence: Evidence,
}

/// Returns the lowered clocks of the devices of most of the ranks. A power cap is none: large matrix multiplications reach it on a
/// device that works as it should.
pub(crate) fn lowered_on_all(samples: &Samples<'_>, ranks: usize) -> Option<LoweredClocks> {
    let most = |rank| {
        samples.in_window(rank).map(|sample| sample.most as f64).reduce(f64::max).filter(|most| *most > 0.0)
    };
    let lowered = lowered(samples, ranks, most, UsualClock::Full)?;
    (lowered.reasons & !throttle::POWER_CAP != 0).then_some(lowered)
}

/// A device that runs slower than it could.
struct Lowered {
    /// The share of its samples that report it.
    share: f64,
    /// In megahertz, as is the usual clock.
    clock: f64,
    usual: f64,
}

/// Returns the lowered clocks of most of the ranks' devices, compared with what `usual` returns of a rank.
pub(crate) fn lowered(
    samples: &Samples<'_>,
    ranks: usize,
    usual: impl Fn(usize) -> Option<f64>,
    usual_clock: UsualClock,
) -> Option<LoweredClocks> {
    let lowered = |rank: usize| {
        let clocks: Vec<f64> =
            samples.in_window(rank).filter_map(|sample| Some(sample.clock? as f64)).collect();
        let slowed =
            samples.in_window(rank).filter(|sample| sample.clock.is_some() && sample.is_slowed()).count();
        let (share, usual) = (slowed as f64 / clocks.len().max(1) as f64, usual(rank)?);
        let clock = stats::median(clocks)?;
        (share >= MIN_LOWERED_SHARE && clock <= usual * (1.0 - LOWER)).then_some(Lowered {
            share,
            clock,
            usual,
        })
    };
    let found: Vec<Lowered> = (0..ranks).filter_map(lowered).collect();
    if found.is_empty() || (found.len() as f64) < MOST_RANKS * ranks as f64 {
        return None;
    }
    let median = |value: fn(&Lowered) -> f64| stats::median(found.iter().map(value));
    let (share, clock, usual) =
        (median(|device| device.share)?, median(|device| device.clock)?, median(|device| device.usual)?);
    let own = (0..ranks).flat_map(|rank| samples.in_window(rank)).filter(|sample| sample.is_slowed());
    let evidence = Evidence::LoweredClocks { devices: found.len(), ranks, share, clock, usual, usual_clock };
    Some(LoweredClocks {
        reasons: own.fold(0, |all, sample| all | sample.reasons),
        below: 1.0 - clock / usual,
        evidence,
    })
}

/// The samples of all ranks, of which those in a window count.
#[derive(Clone, Copy)]
pub(crate) struct Samples<'a> {
    pub(crate) ranks: &'a [Vec<DeviceState>],
    pub(crate) window: (ServerNanos, ServerNanos),
}

impl Samples<'_> {
    pub(crate) fn in_window(&self, rank: usize) -> impl Iterator<Item = &DeviceState> {
        let samples = self.ranks.get(rank).map_or(&[][..], Vec::as_slice);
        samples.iter().filter(|sample| (self.window.0..=self.window.1).contains(&sample.at))
    }

    /// Returns the median clock of a rank before the window.
    pub(crate) fn clock_before(&self, rank: usize) -> Option<f64> {
        let samples = self.ranks.get(rank)?.iter().filter(|sample| sample.at < self.window.0);
        stats::median(samples.filter_map(|sample| Some(sample.clock? as f64)))
    }

    pub(crate) fn ranks_but(&self, own: usize) -> impl Iterator<Item = usize> {
        (0..self.ranks.len()).filter(move |&rank| rank != own)
    }

    /// Returns how often the allocator of a rank emptied its cache within the window.
    pub(crate) fn retries(&self, rank: usize) -> Option<u64> {
        let mut counts = self.in_window(rank).filter_map(|sample| sample.retries);
        let first = counts.next()?;
        Some(counts.last()?.saturating_sub(first))
    }
}
