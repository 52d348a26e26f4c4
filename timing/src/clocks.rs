//! Clock alignment: for each rank, a line from its own clock to the server's, with an error bound (`docs/metrics.md`,
//! "Clocks").
//!
//! Each two-way probe gives an offset that is wrong by at most half the probe's delay. The quickest probe of each
//! stretch of time is used (minimum-delay filter), and a line is fitted through them. Collectives then tighten the
//! line: no rank can finish an all-reduce before the last one starts it.

use std::collections::BTreeMap;

use wire::clock::{MonoNanos, Probe, ServerNanos};

/// The number of stretches of which one probe each is used, so that a line over hours needs few probes.
const STRETCHES: usize = 32;
/// The largest drift between two clocks: 200 parts per million. Real oscillators stay within it.
const MAX_DRIFT: f64 = 200e-6;
/// The time before and after the newest probe for which the bound holds. Steps are aligned when they close, so they lie
/// within it.
const USED_WITHIN_NANOS: f64 = 2e9;

/// One rank's clock relative to the server's: `server = mono + offset + drift * (mono - reference)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClockFit {
    /// The clock's identity. Ranks on one host share a clock, and times between them have no clock error.
    pub clock: u32,
    /// The local time at which the offset holds.
    pub reference: MonoNanos,
    /// The server's clock minus the rank's at the reference, in nanoseconds.
    pub offset_nanos: i64,
    /// The rate at which the server's clock gains on the rank's, in parts per billion.
    pub drift_ppb: f64,
    /// The largest error of an aligned host time, in nanoseconds.
    pub bound_nanos: u64,
    /// The largest error of a device time on the host's clock, in nanoseconds; 0 if all times come from the host.
    pub device_nanos: u64,
}

impl ClockFit {
    /// Returns the fit of the server's own clock: no offset, no drift, no error.
    #[must_use]
    pub fn exact() -> Self {
        Self {
            clock: 0,
            reference: MonoNanos(0),
            offset_nanos: 0,
            drift_ppb: 0.0,
            bound_nanos: 0,
            device_nanos: 0,
        }
    }

    /// Returns the largest error of any aligned time, in nanoseconds.
    #[must_use]
    pub fn bound(&self) -> u64 {
        self.bound_nanos.saturating_add(self.device_nanos)
    }

    /// Returns the largest error of a difference between times of two ranks, in nanoseconds. Ranks that share a clock
    /// have only the error of their devices.
    #[must_use]
    pub fn bound_between(&self, other: &Self) -> u64 {
        let hosts =
            if self.clock == other.clock { 0 } else { self.bound_nanos.saturating_add(other.bound_nanos) };
        hosts.saturating_add(self.device_nanos).saturating_add(other.device_nanos)
    }

    /// Converts a local time to the server's clock.
    #[must_use]
    pub fn align(&self, time: MonoNanos) -> ServerNanos {
        let drift = (time - self.reference) as f64 * self.drift_ppb * 1e-9;
        ServerNanos((time + self.offset_nanos).0.saturating_add(drift as i64))
    }

    /// Converts a time on the server's clock to the local clock: the inverse of [`Self::align`].
    #[must_use]
    pub fn local(&self, time: ServerNanos) -> MonoNanos {
        let elapsed = time.0.saturating_sub(self.offset_nanos).saturating_sub(self.reference.0);
        let drift = self.drift_ppb * 1e-9;
        self.reference + elapsed + -((elapsed as f64 * drift / (1.0 + drift)) as i64)
    }
}

/// Fits the line through `probes`; returns `None` without probes.
///
/// Each selected probe states that the offset at its midpoint lies within half its delay of the measured offset. The
/// lines that agree with every probe form a set. The fit is the middle of the set and the bound is its half width, so
/// the bound holds for any split of the delays between the two directions, as long as the drift is steady and below 200
/// ppm. If no line agrees with all probes, the clock was stepped, and only the newest stretch is used.
#[must_use]
pub fn fit(clock: u32, probes: &[Probe]) -> Option<ClockFit> {
    let kept = quickest_of_each_stretch(probes);
    let reference = middle(kept.last()?);
    // Offsets are as large as years in nanoseconds. Relative to one of them, an `f64` holds them exactly.
    let origin = kept.last()?.offset_nanos();
    let windows: Vec<Window> = kept.iter().map(|probe| Window::new(probe, reference, origin)).collect();
    let line = feasible(&windows).or_else(|| feasible(&windows[windows.len() - 1..]))?;
    Some(ClockFit {
        clock,
        reference,
        offset_nanos: origin.saturating_add(((line.low + line.high) / 2.0) as i64),
        drift_ppb: (line.slowest + line.fastest) / 2.0 * 1e9,
        device_nanos: 0,
        bound_nanos: ((line.high - line.low) / 2.0 + (line.fastest - line.slowest) / 2.0 * USED_WITHIN_NANOS)
            as u64,
    })
}

fn middle(probe: &Probe) -> MonoNanos {
    probe.sent + (probe.received - probe.sent) / 2
}

/// The offsets that one probe allows: from `low` to `high`, in nanoseconds, at `at` nanoseconds from the reference
/// (never positive).
struct Window {
    at: f64,
    low: f64,
    high: f64,
}

impl Window {
    fn new(probe: &Probe, reference: MonoNanos, origin: i64) -> Self {
        let offset = probe.offset_nanos().saturating_sub(origin) as f64;
        // One nanosecond is added because offsets are halved in integers.
        let half = probe.delay_nanos() as f64 / 2.0 + 1.0;
        Self { at: (middle(probe) - reference) as f64, low: offset - half, high: offset + half }
    }
}

/// The lines that pass through all windows, as ranges of offsets at the reference and of slopes.
struct Line {
    low: f64,
    high: f64,
    slowest: f64,
    fastest: f64,
}

/// Returns the lines through all windows, or `None` if there are none.
///
/// For a slope s, the offsets at the reference run from max(low_i - s t_i) to min(high_i - s t_i). A line exists
/// exactly if s (t_j - t_i) <= high_j - low_i for all pairs, which bounds s. No t is positive, so both ends grow with
/// s.
fn feasible(windows: &[Window]) -> Option<Line> {
    let (mut slowest, mut fastest) = (-MAX_DRIFT, MAX_DRIFT);
    for (index, early) in windows.iter().enumerate() {
        for late in windows[index + 1..].iter().filter(|late| late.at > early.at) {
            fastest = fastest.min((late.high - early.low) / (late.at - early.at));
            slowest = slowest.max((late.low - early.high) / (late.at - early.at));
        }
    }
    if slowest > fastest {
        return None;
    }
    let low = windows.iter().map(|window| window.low - slowest * window.at).fold(f64::MIN, f64::max);
    let high = windows.iter().map(|window| window.high - fastest * window.at).fold(f64::MAX, f64::min);
    Some(Line { low: low.min(high), high: high.max(low), slowest, fastest })
}

fn quickest_of_each_stretch(probes: &[Probe]) -> Vec<Probe> {
    let sane = probes.iter().filter(|probe| probe.delay_nanos() >= 0);
    let Some(first) = sane.clone().map(|probe| probe.sent).min() else { return Vec::new() };
    let last = sane.clone().map(|probe| probe.sent).max().unwrap_or(first);
    let stretch = ((last - first) / STRETCHES as i64).max(1);
    let mut kept: Vec<Option<Probe>> = vec![None; STRETCHES + 1];
    for probe in sane {
        let slot = &mut kept[((probe.sent - first) / stretch).clamp(0, STRETCHES as i64) as usize];
        if slot.is_none_or(|best| probe.delay_nanos() < best.delay_nanos()) {
            *slot = Some(*probe);
        }
    }
    kept.into_iter().flatten().collect()
}

/// One collective on aligned clocks: `(index of the rank, start, end)` for each rank that took part.
pub type AlignedCollective = Vec<(usize, ServerNanos, ServerNanos)>;

/// Tightens `fits` by the rule that no rank ends an all-reduce before the last rank starts it.
///
/// The error of each clock lies in `[-bound, bound]`. A collective raises the lower end for a rank that seems to end
/// before another one starts, and lowers the upper end for a rank that seems to start after another one ends. A clock
/// whose interval would become empty (because it jumped) keeps its interval from the probes. Device errors widen the
/// times, so they never narrow an interval.
pub fn tighten(fits: &mut [Option<ClockFit>], collectives: &[AlignedCollective]) {
    let mut errors: BTreeMap<u32, (i64, i64)> = BTreeMap::new();
    for fit in fits.iter().flatten() {
        let bound = i64::try_from(fit.bound_nanos).unwrap_or(i64::MAX);
        errors.insert(fit.clock, (-bound, bound));
    }
    if errors.len() > 1 {
        collectives.iter().for_each(|collective| narrow(&mut errors, fits, collective));
    }
    for fit in fits.iter_mut().flatten() {
        if let Some((low, high)) = errors.get(&fit.clock) {
            fit.offset_nanos = fit.offset_nanos.saturating_add((low + high) / 2);
            fit.bound_nanos = high.abs_diff(*low).div_ceil(2);
        }
    }
}

fn narrow(errors: &mut BTreeMap<u32, (i64, i64)>, fits: &[Option<ClockFit>], collective: &AlignedCollective) {
    // A start that a device reports may have been earlier, and an end may have been later.
    let known: Vec<(u32, i64, i64, (i64, i64))> = collective
        .iter()
        .filter_map(|&(rank, start, end)| {
            let fit = fits.get(rank).copied().flatten()?;
            let device = i64::try_from(fit.device_nanos).unwrap_or(i64::MAX);
            let (start, end) = (start.0.saturating_sub(device), end.0.saturating_add(device));
            Some((fit.clock, start, end, *errors.get(&fit.clock)?))
        })
        .collect();
    let latest_start = known.iter().map(|&(_, start, _, (low, _))| start.saturating_add(low)).max();
    let earliest_end = known.iter().map(|&(_, _, end, (_, high))| end.saturating_add(high)).min();
    let (Some(latest_start), Some(earliest_end)) = (latest_start, earliest_end) else { return };
    for (clock, start, end, _) in known {
        let Some(error) = errors.get_mut(&clock) else { continue };
        let low = error.0.max(latest_start.saturating_sub(end));
        let high = error.1.min(earliest_end.saturating_sub(start));
        if low <= high {
            *error = (low, high);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns a probe by a clock that is `offset` behind the server's and loses `drift_ppb` on it, with the delays
    /// `there` and `back`.
    fn probe(at: i64, offset: i64, drift_ppb: f64, there: i64, back: i64) -> Probe {
        let server = |mono: i64| ServerNanos(mono + offset + (mono as f64 * drift_ppb * 1e-9) as i64);
        Probe {
            sent: MonoNanos(at),
            server_received: server(at + there),
            server_sent: server(at + there + 1_000),
            received: MonoNanos(at + there + 1_000 + back),
        }
    }

    proptest! {
        /// The true time lies within the bound, whatever the delays are.
        #[test]
        fn the_bound_holds(
            offset in -1_000_000_000_000_i64..1_000_000_000_000,
            drift_ppb in -50_000.0..50_000.0_f64,
            ways in prop::collection::vec((20_000_i64..2_000_000, 20_000_i64..2_000_000), 40..80),
        ) {
            let second = 1_000_000_000;
            let probes: Vec<Probe> = ways.iter().enumerate()
                .map(|(i, &(there, back))| probe(i as i64 * second, offset, drift_ppb, there, back)).collect();
            let fit = fit(0, &probes).unwrap();
            for away in [-second, 0, second] {
                let now = ways.len() as i64 * second - second + away;
                let truth = now + offset + (now as f64 * drift_ppb * 1e-9) as i64;
                let error = (fit.align(MonoNanos(now)).0 - truth).unsigned_abs();
                // The drift within one exchange of at most 4 ms at 50 ppm is 200 ns.
                prop_assert!(error <= fit.bound_nanos + 200, "{error} > {} at {now}", fit.bound_nanos);
                let back = fit.local(fit.align(MonoNanos(now))).0;
                prop_assert!((back - now).abs() <= 1, "the inverse of align: {now} became {back}");
            }
        }
    }

    #[test]
    fn a_quicker_probe_tightens_the_bound_and_no_probe_gives_no_fit() {
        let slow = probe(0, 500, 0.0, 900_000, 100_000);
        let quick = probe(1_000_000_000, 500, 0.0, 20_000, 20_000);
        let (alone, both) = (fit(0, &[slow]).unwrap(), fit(0, &[slow, quick]).unwrap());
        assert!(both.bound_nanos < alone.bound_nanos, "{both:?} {alone:?}");
        assert!((both.offset_nanos - 500).unsigned_abs() <= both.bound_nanos);
        assert!(fit(0, &[]).is_none());
    }

    #[test]
    fn a_stepped_clock_is_followed_to_its_new_offset() {
        let probes: Vec<Probe> = (0..40)
            .map(|i| probe(i * 1_000_000_000, if i < 20 { 0 } else { 5_000_000_000 }, 0.0, 50_000, 50_000))
            .collect();
        let fit = fit(0, &probes).unwrap();
        assert!((fit.offset_nanos - 5_000_000_000).abs() < 100_000, "{fit:?}");
    }

    #[test]
    fn a_collective_tightens_the_bounds_of_probes() {
        let fit = |clock, offset| {
            Some(ClockFit {
                clock,
                reference: MonoNanos(0),
                offset_nanos: offset,
                drift_ppb: 0.0,
                bound_nanos: 1_000,
                device_nanos: 0,
            })
        };
        // Rank 1's clock seems 600 ns late: the rank appears to start when rank 0 has already ended.
        let mut fits = vec![fit(0, 0), fit(1, 0), None];
        let collective =
            vec![(0, ServerNanos(0), ServerNanos(5_000)), (1, ServerNanos(5_600), ServerNanos(6_000))];
        tighten(&mut fits, &[collective]);
        let (a, b) = (fits[0].unwrap(), fits[1].unwrap());
        assert!(5_000 + a.offset_nanos >= 5_600 + b.offset_nanos - (a.bound_nanos + b.bound_nanos) as i64);
        assert!(a.offset_nanos > 0 && b.offset_nanos < 0, "the clocks move toward each other");
        assert!(a.bound_nanos < 1_000 && b.bound_nanos < 1_000);
        assert!(fits[2].is_none());
        assert_eq!(a.bound_between(&a), 0, "a clock has no error against itself");
        assert_eq!(a.bound_between(&b), a.bound_nanos + b.bound_nanos);
        // The 600 ns may be the error of the devices, so they show nothing about the clocks of the hosts.
        let on_device = |clock, offset| Some(ClockFit { device_nanos: 400, ..fit(clock, offset)? });
        let mut fits = vec![on_device(0, 0), on_device(1, 0)];
        let before = fits.clone();
        tighten(
            &mut fits,
            &[vec![(0, ServerNanos(0), ServerNanos(5_000)), (1, ServerNanos(5_600), ServerNanos(6_000))]],
        );
        assert_eq!(fits, before);
        assert_eq!(fits[0].unwrap().bound_between(&fits[1].unwrap()), 1_400 + 1_400);
    }
}
