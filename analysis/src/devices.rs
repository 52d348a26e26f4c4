//! Device samples as evidence: a rank that computes more slowly because its clock was lowered.

use wire::clock::ServerNanos;
use wire::device::{DeviceFigure, DeviceSample, throttle};
use wire::views::{Cause, Confidence, Culprit};

use crate::finding::{Evidence, Finding, Reason, UsualClock};
use crate::stats;

/// The share of the samples that must report throttling for a device to count as throttled.
const MIN_LOWERED_SHARE: f64 = 0.5;
/// The share by which its clock must be below that of the other devices, or below its own maximum.
const LOWER: f64 = 0.05;

/// The fields of one device sample that show whether the device is throttled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClockSample {
    /// When the sample was taken, on the server's clock.
    pub at: ServerNanos,
    /// The clock of the multiprocessors, in megahertz.
    pub clock: u64,
    /// The highest clock of the multiprocessors, in megahertz; 0 if the device does not report it.
    pub most: u64,
    /// The reasons for a lowered clock, as [`throttle`] bits.
    pub reasons: u64,
}

impl ClockSample {
    /// Extracts a `ClockSample` from a sample; `None` if the device does not report its clock.
    #[must_use]
    pub fn new(sample: &DeviceSample, at: ServerNanos) -> Option<Self> {
        Some(Self {
            at,
            clock: sample.get(DeviceFigure::SmClockMegahertz)?,
            most: sample.get(DeviceFigure::SmClockMostMegahertz).unwrap_or(0),
            reasons: sample.get(DeviceFigure::ThrottleReasons).unwrap_or(0),
        })
    }

    fn is_slowed(&self) -> bool {
        !throttle::names(self.reasons).is_empty()
    }
}

/// Changes the cause of a finding from slow compute to lowered clocks if the evidence supports it: in `window`, the
/// rank's device reports that it lowered its clock, and the clock is lower than on the other ranks (or, if no other
/// rank has samples, than the device's maximum). Otherwise leaves the finding unchanged.
pub(crate) fn explain(
    finding: &mut Finding,
    samples: &[Vec<ClockSample>],
    window: (ServerNanos, ServerNanos),
) {
    let verdict = &mut finding.verdict;
    let Some(Culprit::Rank(rank)) = verdict.culprit else { return };
    if verdict.cause != Cause::Compute {
        return;
    }
    let within = |rank: usize| {
        let samples = samples.get(rank).map_or(&[][..], Vec::as_slice);
        samples.iter().filter(move |sample| (window.0..=window.1).contains(&sample.at))
    };
    let own = rank as usize;
    let (all, slowed) = (within(own).count(), within(own).filter(|sample| sample.is_slowed()).count());
    if all == 0 || (slowed as f64) < MIN_LOWERED_SHARE * all as f64 {
        return;
    }
    let clock_of = |rank| stats::median(within(rank).map(|sample| sample.clock as f64));
    let Some(clock) = clock_of(own) else { return };
    let others = stats::median((0..samples.len()).filter(|&rank| rank != own).filter_map(clock_of));
    let most = within(own).map(|sample| sample.most as f64).fold(0.0, f64::max);
    let (usual, of) = match others {
        Some(others) => (others, UsualClock::OfOtherRanks),
        None => (most, UsualClock::Full),
    };
    if clock > usual * (1.0 - LOWER) {
        return;
    }
    let reasons = within(own).fold(0, |reasons, sample| reasons | sample.reasons);
    verdict.cause = Cause::ClockThrottle;
    verdict.confidence = verdict.confidence.max(Confidence::Medium);
    finding.reason = Some(Reason::LoweredClock(reasons));
    finding.evidence.push(Evidence::LoweredClock { lowered: slowed, samples: all, clock, usual, of });
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::views::Verdict;

    use crate::verdict::fixture::against_rank_1;
    use crate::wording;

    fn samples(clock: u64, reasons: u64) -> Vec<ClockSample> {
        (0..10).map(|at| ClockSample { at: ServerNanos(at), clock, most: 1_980, reasons }).collect()
    }

    fn explained(samples: &[Vec<ClockSample>]) -> Verdict {
        let mut finding = against_rank_1(Cause::Compute);
        explain(&mut finding, samples, (ServerNanos(2), ServerNanos(7)));
        wording::verdict(finding)
    }

    #[test]
    fn a_lowered_clock_is_the_cause_if_the_device_reports_it() {
        let found = explained(&[samples(1_980, 0), samples(1_200, throttle::THERMAL), samples(1_950, 0)]);
        assert_eq!(found.cause, Cause::ClockThrottle);
        assert_eq!(
            found.sentence,
            "Rank 1 computes more slowly because its GPU lowered its clock (temperature), which costs 5.00 ms per step \
             (10.0 % of step time)."
        );
        assert_eq!(
            found.evidence,
            ["its GPU reports a lowered clock in 6 of 6 samples: 1200 MHz, against 1965 MHz on other ranks"]
        );
    }

    #[test]
    fn without_evidence_the_cause_stays_slow_compute() {
        let idle = 1;
        for samples in [
            vec![],
            // The clock is lower, but for no reason that slows a busy device.
            vec![samples(1_980, 0), samples(1_200, idle), samples(1_980, 0)],
            // There is a reason, but the clock is as high as on the other ranks: all devices draw their power limit.
            vec![samples(1_500, throttle::POWER_CAP), samples(1_490, throttle::POWER_CAP)],
        ] {
            assert_eq!(explained(&samples), wording::verdict(against_rank_1(Cause::Compute)));
        }
    }

    #[test]
    fn a_single_device_is_compared_with_its_maximum_clock() {
        let found = explained(&[vec![], samples(1_200, throttle::POWER_CAP)]);
        assert_eq!(found.cause, Cause::ClockThrottle);
        assert!(found.evidence[0].ends_with("against 1980 MHz at full clock"), "{:?}", found.evidence);
    }
}
