//! What devices say about themselves, as evidence: a rank that computes longer because its clock was lowered.

use wire::clock::ServerNanos;
use wire::device::{DeviceFigure, DeviceSample, throttle};
use wire::views::{Cause, Confidence, Culprit, Verdict};

use crate::stats;
use crate::verdict::says::SLOW_COMPUTE;

/// A device is held to be throttled when it says so in this share of the looks at it.
const MOSTLY: f64 = 0.5;
/// And its clock is lower than the others', or than it can be, by this share.
const LOWER: f64 = 0.05;

/// What of one look at a device speaks for or against throttling.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    /// When the server had it.
    pub at: ServerNanos,
    /// Clock of the multiprocessors, in megahertz.
    pub clock: u64,
    /// The most that it can be; 0 where the device does not say.
    pub most: u64,
    /// Why it is lower, as [`throttle`] bits.
    pub reasons: u64,
}

impl Look {
    /// Of a sample; `None` where the device does not tell its clock.
    #[must_use]
    pub fn of(sample: &DeviceSample, at: ServerNanos) -> Option<Self> {
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

/// Turns a verdict of slow compute into one of lowered clocks, where the rank's device says that it lowered them in
/// `window` and they were lower than those of the other ranks (or, of a rank alone with a device, than they can be).
/// Without that evidence a verdict stays what it was.
pub fn explain(verdict: &mut Verdict, looks: &[Vec<Look>], window: (ServerNanos, ServerNanos)) {
    let Some(Culprit::Rank(rank)) = verdict.culprit else { return };
    if verdict.cause != Cause::Compute {
        return;
    }
    let within = |rank: usize| {
        let looks = looks.get(rank).map_or(&[][..], Vec::as_slice);
        looks.iter().filter(move |look| (window.0..=window.1).contains(&look.at))
    };
    let own = rank as usize;
    let (all, slowed) = (within(own).count(), within(own).filter(|look| look.is_slowed()).count());
    if all == 0 || (slowed as f64) < MOSTLY * all as f64 {
        return;
    }
    let clock_of = |rank| stats::median(within(rank).map(|look| look.clock as f64));
    let Some(clock) = clock_of(own) else { return };
    let others = stats::median((0..looks.len()).filter(|&rank| rank != own).filter_map(clock_of));
    let most = within(own).map(|look| look.most as f64).fold(0.0, f64::max);
    let (usual, whose) = match others {
        Some(others) => (others, "the others' is"),
        None => (most, "it can be"),
    };
    if clock > usual * (1.0 - LOWER) {
        return;
    }
    let reasons = within(own).fold(0, |reasons, look| reasons | look.reasons);
    let why = throttle::names(reasons).join(", ");
    verdict.cause = Cause::ClockThrottle;
    verdict.confidence = verdict.confidence.max(Confidence::Medium);
    verdict.sentence =
        verdict.sentence.replace(SLOW_COMPUTE, &format!("longer because its GPU lowered its clock ({why})"));
    verdict.evidence.push(format!(
        "its GPU says so in {slowed} of {all} looks at it: its clock is {clock:.0} MHz, {whose} {usual:.0} MHz"
    ));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::fixture::against_rank_1;

    fn verdict() -> Verdict {
        against_rank_1(Cause::Compute, "computes longer than the others")
    }

    fn looks(clock: u64, reasons: u64) -> Vec<Look> {
        (0..10).map(|at| Look { at: ServerNanos(at), clock, most: 1_980, reasons }).collect()
    }

    fn explained(looks: &[Vec<Look>]) -> Verdict {
        let mut verdict = verdict();
        explain(&mut verdict, looks, (ServerNanos(2), ServerNanos(7)));
        verdict
    }

    #[test]
    fn a_lowered_clock_is_the_cause_where_the_device_says_so() {
        let found = explained(&[looks(1_980, 0), looks(1_200, throttle::THERMAL), looks(1_950, 0)]);
        assert_eq!(found.cause, Cause::ClockThrottle);
        assert_eq!(
            found.sentence,
            "Rank 1 computes longer because its GPU lowered its clock (temperature) and costs every step 5.0 ms \
             (10 % of it)."
        );
        assert_eq!(
            found.evidence,
            ["its GPU says so in 6 of 6 looks at it: its clock is 1200 MHz, the others' is 1965 MHz"]
        );
    }

    #[test]
    fn without_the_evidence_it_stays_slow_compute() {
        let idle = 1;
        for looks in [
            vec![],
            // Lower, and no reason that slows a busy device.
            vec![looks(1_980, 0), looks(1_200, idle), looks(1_980, 0)],
            // A reason, and the clock is as high as anybody's: all draw their limit.
            vec![looks(1_500, throttle::POWER_CAP), looks(1_490, throttle::POWER_CAP)],
        ] {
            assert_eq!(explained(&looks), verdict());
        }
    }

    #[test]
    fn alone_it_is_compared_with_what_it_can_be() {
        let found = explained(&[vec![], looks(1_200, throttle::POWER_CAP)]);
        assert_eq!(found.cause, Cause::ClockThrottle);
        assert!(found.evidence[0].ends_with("it can be 1980 MHz"), "{:?}", found.evidence);
    }
}
