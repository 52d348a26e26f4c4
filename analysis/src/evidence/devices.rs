//! What devices show: a rank computes more slowly because its clock was lowered, or because PyTorch's allocator ran out of
//! memory and emptied its cache.

use wire::views::{Cause, Confidence, Culprit};

use crate::devices::{LOWER, MIN_LOWERED_SHARE, Samples, lowered};
use crate::finding::{Doubt, Evidence, Finding, Reason, Statement, UsualClock};
use crate::stats;

/// Explains a finding of slow compute by the rank's device in `window`.
pub(super) fn explain(finding: &mut Finding, samples: &Samples<'_>) {
    if finding.verdict.culprit == Some(Culprit::All) {
        explain_all(finding, samples);
    }
    let Some(Culprit::Rank(rank)) = finding.verdict.culprit else { return };
    let is_slow_compute = finding.verdict.cause.is_slow_compute();
    if finding.verdict.cause == Cause::Compute {
        explain_by_clock(finding, samples, rank as usize);
    }
    if is_slow_compute {
        explain_by_memory(finding, samples, rank as usize);
    }
}

/// Changes the cause of compute that became longer on all ranks to lowered clocks, if most devices report them and the clocks are
/// lower than before.
fn explain_all(finding: &mut Finding, samples: &Samples<'_>) {
    let is_slower = matches!(finding.statement, Statement::Slower { .. } | Statement::Grows { .. });
    if !is_slower || finding.verdict.cause != Cause::Compute {
        return;
    }
    let ranks = samples.ranks.len();
    if let Some(lowered) = lowered(samples, ranks, |rank| samples.clock_before(rank), UsualClock::Before) {
        finding.verdict.cause = Cause::ClockThrottle;
        finding.reason = Some(Reason::LoweredClock(lowered.reasons));
        finding.evidence.push(lowered.evidence);
        finding.counter_evidence.retain(|doubt| *doubt != Doubt::JobMayHaveChanged);
    }
}

/// Changes the cause from slow compute to lowered clocks if the evidence supports it: the rank's device reports that it
/// lowered its clock, and the clock is lower than on the other ranks (or, if no other rank has samples, than the device's
/// maximum). Otherwise leaves the finding unchanged.
fn explain_by_clock(finding: &mut Finding, samples: &Samples<'_>, own: usize) {
    let verdict = &mut finding.verdict;
    let clocked = |rank| samples.in_window(rank).filter(|sample| sample.clock.is_some());
    let (all, slowed) = (clocked(own).count(), clocked(own).filter(|sample| sample.is_slowed()).count());
    if all == 0 || (slowed as f64) < MIN_LOWERED_SHARE * all as f64 {
        return;
    }
    let clock_of = |rank| stats::median(clocked(rank).filter_map(|sample| Some(sample.clock? as f64)));
    let Some(clock) = clock_of(own) else { return };
    let others = stats::median(samples.ranks_but(own).filter_map(clock_of));
    let most = clocked(own).map(|sample| sample.most as f64).fold(0.0, f64::max);
    let (usual, usual_clock) = match others {
        Some(others) => (others, UsualClock::OfOtherRanks),
        None => (most, UsualClock::Full),
    };
    if clock > usual * (1.0 - LOWER) {
        return;
    }
    let reasons = clocked(own).fold(0, |reasons, sample| reasons | sample.reasons);
    verdict.cause = Cause::ClockThrottle;
    verdict.confidence = verdict.confidence.max(Confidence::Medium);
    finding.reason = Some(Reason::LoweredClock(reasons));
    finding.evidence.push(Evidence::LoweredClock {
        lowered: slowed,
        samples: all,
        clock,
        usual,
        usual_clock,
    });
}

/// Adds how often the rank's allocator ran out of memory, if it did so more often than those of all other ranks.
fn explain_by_memory(finding: &mut Finding, samples: &Samples<'_>, own: usize) {
    let Some(retries) = samples.retries(own) else { return };
    let others = samples.ranks_but(own).filter_map(|rank| samples.retries(rank)).max();
    if retries > others.unwrap_or(0) {
        finding.evidence.push(Evidence::OutOfMemory { retries, others });
    }
}

#[cfg(test)]
mod tests {
    use wire::clock::ServerNanos;
    use wire::device::throttle;
    use wire::views::Verdict;

    use super::*;
    use crate::devices::DeviceState;
    use crate::verdict::fixture::finding_on_rank_1;
    use crate::wording;

    fn samples(clock: u64, reasons: u64) -> Vec<DeviceState> {
        let clock = Some(clock);
        (0..10)
            .map(|at| DeviceState { at: ServerNanos(at), clock, most: 1_980, reasons, retries: None })
            .collect()
    }

    /// Samples of an allocator that emptied its cache `retries_per_sample` times between two samples.
    fn out_of_memory(retries_per_sample: u64) -> Vec<DeviceState> {
        let counted = |(at, state)| DeviceState { retries: Some(100 + retries_per_sample * at), ..state };
        (0..).zip(samples(1_980, 0)).map(counted).collect()
    }

    fn explained(samples: &[Vec<DeviceState>]) -> Verdict {
        let mut finding = finding_on_rank_1(Cause::Compute);
        explain(&mut finding, &Samples { ranks: samples, window: (ServerNanos(2), ServerNanos(7)) });
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
            assert_eq!(explained(&samples), wording::verdict(finding_on_rank_1(Cause::Compute)));
        }
    }

    #[test]
    fn an_allocator_that_runs_out_of_memory_more_often_than_others_is_evidence() {
        let found = explained(&[out_of_memory(0), out_of_memory(3), out_of_memory(1)]);
        assert_eq!(found.cause, Cause::Compute);
        assert_eq!(
            found.evidence,
            [
                "PyTorch's allocator ran out of memory on its GPU 15 times and emptied its cache each time, which stops the \
              GPU; on other ranks, 5 times at most"
            ]
        );
        let alone = explained(&[samples(1_980, 0), out_of_memory(1)]);
        assert!(alone.evidence[0].ends_with("which stops the GPU"), "{:?}", alone.evidence);
        for even in [[out_of_memory(2), out_of_memory(2)], [out_of_memory(1), out_of_memory(0)]] {
            assert_eq!(explained(&even), wording::verdict(finding_on_rank_1(Cause::Compute)));
        }
    }

    #[test]
    fn a_single_device_is_compared_with_its_maximum_clock() {
        let found = explained(&[vec![], samples(1_200, throttle::POWER_CAP)]);
        assert_eq!(found.cause, Cause::ClockThrottle);
        assert!(found.evidence[0].ends_with("against 1980 MHz at full clock"), "{:?}", found.evidence);
    }
}
