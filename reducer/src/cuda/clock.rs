//! The device's clock on the host's.
//!
//! Now and then an event is recorded on a stream that has nothing else to do, between two readings of the host's clock:
//! it happened between them. The device's time of such an anchor is known relative to the anchor before, as float
//! milliseconds, so anchors follow closely enough that these lose nothing. An anchor is to the device's clock what an
//! exchange with the server is to the server's, and the line is found the same way ([`clocks::fit`]): a bracket in whose
//! middle the host did something else is wide, and so says little.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use analysis::clocks::{self, ClockFit};
use gpu::device::{CudaStream, Device, DeviceError, Event};
use wire::clock::{MonoNanos, Probe, ServerNanos};

/// A float of milliseconds is good to 8 ns up to 131 ms.
const EVERY_NANOS: i64 = 100_000_000;
/// How long an anchor is waited for: the device may be busy with something that lets nothing pass.
const PATIENCE_NANOS: i64 = 200_000;
/// Some six seconds: clocks drift apart evenly for that long.
const ANCHORS: usize = 64;
/// How far an event's time may be off (the driver API's word on `cuEventElapsedTime`).
const RESOLUTION_NANOS: i64 = 500;

pub(super) struct DeviceClock {
    stream: Arc<CudaStream>,
    now: fn() -> MonoNanos,
    /// The newest anchor, and one to become it.
    anchor: Event,
    spare: Event,
    /// When the newest anchor was tried, and the device's time of it, in nanoseconds since the first.
    tried: Option<MonoNanos>,
    elapsed: Option<f64>,
    /// The last anchors, oldest first.
    anchors: VecDeque<Probe>,
    fit: Option<ClockFit>,
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
            anchors: VecDeque::with_capacity(ANCHORS),
            fit: None,
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
            if (self.now)().0 - before.0 > PATIENCE_NANOS {
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
        if self.anchors.len() == ANCHORS {
            self.anchors.pop_front();
        }
        self.anchors.push_back(anchor(before, after, elapsed));
        self.fit = clocks::fit(0, self.anchors.make_contiguous());
        self.bound.store(self.fit.map_or(0, |fit| fit.bound_nanos), Ordering::Relaxed);
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
        let Some((elapsed, fit)) = self.elapsed.zip(self.fit) else { return Ok(None) };
        Ok(Some(fit.local(device_time(elapsed + event.nanos_since(&self.anchor)?))))
    }
}

fn device_time(elapsed: f64) -> ServerNanos {
    ServerNanos(elapsed.round() as i64)
}

/// An anchor as an exchange with the device, which takes no time there.
fn anchor(before: MonoNanos, after: MonoNanos, elapsed: f64) -> Probe {
    let device = device_time(elapsed);
    Probe {
        sent: before + -RESOLUTION_NANOS,
        server_received: device,
        server_sent: device,
        received: after + RESOLUTION_NANOS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The device's clock began 5 s after the host's and is slow by `drift`; its anchors come each 100 ms in brackets that
    /// are 4 to 10 us wide, at uneven places within them.
    fn anchors(count: i64, device: impl Fn(i64) -> f64) -> Vec<Probe> {
        let anchor = |index: i64| {
            let host = 7_000_000_000 + index * EVERY_NANOS;
            let (before, after) = (host - 1_000 - 400 * (index % 7), host + 3_000 + 800 * (index % 5));
            anchor(MonoNanos(before), MonoNanos(after), device(host))
        };
        (0..count).map(anchor).collect()
    }

    fn slow_by(drift: f64) -> impl Fn(i64) -> f64 {
        move |host| ((host - 5_000_000_000) as f64) * (1.0 - drift)
    }

    /// How far the line is off, at most, from 50 ms before the last anchor to 100 ms behind it.
    fn error(fit: &ClockFit, last: i64, device: impl Fn(i64) -> f64) -> u64 {
        let hosts = [last - 50_000_000, last, last + 100_000_000];
        let errors = hosts.map(|host| (fit.local(device_time(device(host))).0 - host).unsigned_abs());
        errors.into_iter().max().unwrap_or_default()
    }

    #[test]
    fn times_of_the_device_are_placed_within_the_bound() {
        for (count, drift, most) in
            [(1, 0.0, 500_000), (10, 2e-6, 25_000), (64, 2e-5, 5_000), (64, -5e-5, 5_000)]
        {
            let fit = clocks::fit(0, &anchors(count, slow_by(drift))).unwrap();
            let error = error(&fit, 7_000_000_000 + (count - 1) * EVERY_NANOS, slow_by(drift));
            assert!(
                error <= fit.bound_nanos && fit.bound_nanos <= most,
                "{count} anchors: off by {error}, {fit:?}"
            );
        }
    }

    #[test]
    fn a_host_that_does_something_else_in_the_middle_of_an_anchor_moves_nothing() {
        let mut anchors = anchors(64, slow_by(1e-5));
        for interrupted in [3, 40, 63] {
            anchors[interrupted].received = anchors[interrupted].received + 5_000_000;
        }
        let fit = clocks::fit(0, &anchors).unwrap();
        let error = error(&fit, 7_000_000_000 + 63 * EVERY_NANOS, slow_by(1e-5));
        assert!(error <= 4_000 && fit.bound_nanos <= 5_000, "off by {error}, {fit:?}");
    }
}
