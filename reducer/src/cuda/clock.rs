//! The device's clock on the host's.
//!
//! Now and then an event is recorded on a stream that has nothing else to do, between two readings of the host's clock:
//! it happened between them. The device's time of such an anchor is known relative to the anchor before, as float
//! milliseconds, so anchors follow closely enough that these lose nothing. From the last anchors follow the drift of the
//! two clocks (least squares through the middles of the brackets) and the offset (the middle of what all brackets allow).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gpu::device::{CudaStream, Device, DeviceError, Event};
use wire::clock::MonoNanos;

/// A float of milliseconds is good to 8 ns up to 131 ms.
const EVERY_NANOS: i64 = 100_000_000;
/// A bracket this wide says little; the device is busy with something that lets nothing pass.
const WIDEST_NANOS: i64 = 200_000;
/// Some six seconds: clocks drift apart evenly for that long.
const ANCHORS: usize = 64;
/// Below this span of time the brackets' widths say more than their drift.
const SHORTEST_SPAN_NANOS: f64 = 1e9;

pub(super) struct DeviceClock {
    stream: Arc<CudaStream>,
    now: fn() -> MonoNanos,
    /// The newest anchor, and one to become it.
    anchor: Event,
    spare: Event,
    /// When the newest anchor was tried, and the device's time of it, in nanoseconds since the first.
    tried: Option<MonoNanos>,
    elapsed: Option<f64>,
    fit: Fit,
    /// The newest bound, for whoever tells of the device.
    bound: Bound,
}

/// How far placed times may be off, in nanoseconds; 0 before any could be placed.
pub(super) type Bound = Arc<AtomicU64>;

impl DeviceClock {
    pub(super) fn new(device: &Device, now: fn() -> MonoNanos, bound: Bound) -> Result<Self, DeviceError> {
        Ok(Self {
            stream: device.urgent_stream()?,
            now,
            anchor: device.event()?,
            spare: device.event()?,
            tried: None,
            elapsed: None,
            fit: Fit::default(),
            bound,
        })
    }

    /// Sets an anchor if the last is old.
    pub(super) fn tend(&mut self) -> Result<(), DeviceError> {
        let before = (self.now)();
        if self.tried.is_some_and(|tried| before.0 - tried.0 < EVERY_NANOS) {
            return Ok(());
        }
        self.tried = Some(before);
        self.spare.record(&self.stream)?;
        while !self.spare.is_done()? {
            if (self.now)().0 - before.0 > WIDEST_NANOS {
                return Ok(());
            }
        }
        let after = (self.now)();
        let elapsed = match self.elapsed {
            Some(elapsed) => elapsed + self.spare.nanos_since(&self.anchor)?,
            None => 0.0,
        };
        std::mem::swap(&mut self.anchor, &mut self.spare);
        self.elapsed = Some(elapsed);
        self.fit.add(Bracket { elapsed, before: before.0, after: after.0 });
        let bound = self.fit.line.map_or(0, |line| line.bound.ceil() as u64);
        self.bound.store(bound, Ordering::Relaxed);
        Ok(())
    }

    /// When the device came past two events, of which the second was never before the first; `None` before the first
    /// anchor.
    pub(super) fn place_both(
        &self,
        begin: &Event,
        end: &Event,
    ) -> Result<Option<(MonoNanos, MonoNanos)>, DeviceError> {
        let placed = self.place(begin)?.zip(self.place(end)?);
        Ok(placed.map(|(begin, end)| (begin, end.max(begin))))
    }

    fn place(&self, event: &Event) -> Result<Option<MonoNanos>, DeviceError> {
        let Some(elapsed) = self.elapsed else { return Ok(None) };
        Ok(self.fit.to_host(elapsed + event.nanos_since(&self.anchor)?).map(MonoNanos))
    }
}

/// An anchor: the device's time, and the host's before and after; in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Bracket {
    elapsed: f64,
    before: i64,
    after: i64,
}

/// The line through the brackets.
#[derive(Default)]
struct Fit {
    brackets: VecDeque<Bracket>,
    line: Option<Line>,
}

/// Host time = `host` + (device time - `device`) * (1 + `drift`), off by `bound` at most where the clocks drift evenly.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Line {
    device: f64,
    host: i64,
    drift: f64,
    offset: f64,
    bound: f64,
}

impl Fit {
    fn add(&mut self, bracket: Bracket) {
        if self.brackets.len() == ANCHORS {
            self.brackets.pop_front();
        }
        self.brackets.push_back(bracket);
        self.line = self.line_through();
    }

    fn to_host(&self, elapsed: f64) -> Option<i64> {
        let line = self.line?;
        Some(line.host + (line.offset + (elapsed - line.device) * (1.0 + line.drift)).round() as i64)
    }

    fn line_through(&self) -> Option<Line> {
        // Around the newest anchor, so that products stay small.
        let &Bracket { elapsed: device, before: host, .. } = self.brackets.back()?;
        let drift = self.drift(device, host);
        let offsets = self.brackets.iter().map(|bracket| {
            let device = (bracket.elapsed - device) * (1.0 + drift);
            ((bracket.before - host) as f64 - device, (bracket.after - host) as f64 - device)
        });
        let (least, most) = offsets
            .fold((f64::NEG_INFINITY, f64::INFINITY), |(least, most), (before, after)| {
                (least.max(before), most.min(after))
            });
        // Brackets that allow nothing (an uneven drift) are wrong by half of what they lack.
        Some(Line { device, host, drift, offset: least.midpoint(most), bound: (most - least).abs() / 2.0 })
    }

    fn drift(&self, device: f64, host: i64) -> f64 {
        let points = || {
            self.brackets.iter().map(|bracket| {
                let middle = ((bracket.before - host) as f64).midpoint((bracket.after - host) as f64);
                (bracket.elapsed - device, middle)
            })
        };
        let count = self.brackets.len() as f64;
        let span = points().next().map_or(0.0, |(first, _)| -first);
        if span < SHORTEST_SPAN_NANOS {
            return 0.0;
        }
        let (x, y) = points().fold((0.0, 0.0), |(x, y), point| (x + point.0 / count, y + point.1 / count));
        let (xx, xy) = points().fold((0.0, 0.0), |(xx, xy), point| {
            (xx + (point.0 - x).powi(2), xy + (point.0 - x) * (point.1 - y))
        });
        xy / xx - 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The device's clock is 5 s behind and slow by `drift`; its anchors come each 100 ms in brackets that are 4 to
    /// 10 us wide, at uneven places within them.
    fn fit(anchors: i64, drift: f64) -> (Fit, impl Fn(i64) -> f64) {
        let device = move |host: i64| ((host - 5_000_000_000) as f64) * (1.0 - drift);
        let mut fit = Fit::default();
        for anchor in 0..anchors {
            let host = 7_000_000_000 + anchor * EVERY_NANOS;
            let (before, after) = (host - 1_000 - 400 * (anchor % 7), host + 3_000 + 800 * (anchor % 5));
            fit.add(Bracket { elapsed: device(host), before, after });
        }
        (fit, device)
    }

    #[test]
    fn times_of_the_device_are_placed_within_the_bound() {
        for (anchors, drift) in [(1, 0.0), (5, 2e-6), (64, 2e-5), (200, -5e-5)] {
            let (fit, device) = fit(anchors, drift);
            let line = fit.line.unwrap();
            let last = 7_000_000_000 + (anchors - 1) * EVERY_NANOS;
            for host in [last - 50_000_000, last, last + 100_000_000] {
                let error = (fit.to_host(device(host)).unwrap() - host).abs();
                assert!(error as f64 <= line.bound, "{anchors} anchors: off by {error}, {line:?}");
            }
            assert!(line.bound <= 2_500.0, "{line:?}");
        }
    }

    #[test]
    fn drift_is_found_once_there_are_anchors_enough() {
        let (few, _) = fit(5, 2e-5);
        assert_eq!(few.line.unwrap().drift, 0.0);
        let (many, _) = fit(64, 2e-5);
        assert!((many.line.unwrap().drift - 2e-5).abs() < 1e-6, "{:?}", many.line);
    }

    #[test]
    fn before_the_first_anchor_nothing_is_placed() {
        assert_eq!(Fit::default().to_host(0.0), None);
    }
}
