//! Conversion of the device's clock to the host's.
//!
//! Ten times per second, an event is recorded on an otherwise idle stream between two readings of the host's clock. The
//! event, called an anchor, happened between the two readings. CUDA gives the device's time of an anchor relative to
//! the previous one, as a float of milliseconds. Anchors are close enough to each other that the float loses no
//! precision.
//!
//! An anchor is for the device's clock what a probe is for the server's clock, and [`clocks::fit`] fits the line for
//! both. If the host was interrupted between the two readings, they are far apart, and the anchor has little weight.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gpu::device::{CudaStream, Device, DeviceError, Event};
use timing::clocks::{self, ClockFit};
use wire::clock::{MonoNanos, Probe, ServerNanos};

/// The time between two anchors. A float of milliseconds has a precision of 8 ns up to 131 ms.
const EVERY_NANOS: i64 = 100_000_000;
/// The longest wait for an anchor. The device may be busy with work that lets nothing else run.
const PATIENCE_NANOS: i64 = 200_000;
/// The number of anchors to which a line is fitted: some six seconds, over which the drift of the clocks is even.
const ANCHORS: usize = 64;
/// The error of an event's time, from the driver API's documentation of `cuEventElapsedTime`.
const RESOLUTION_NANOS: i64 = 500;

pub(super) struct DeviceClock {
    stream: Arc<CudaStream>,
    now: fn() -> MonoNanos,
    /// The event of the newest anchor.
    anchor: Event,
    /// The event for the next anchor.
    spare: Event,
    /// The time of the last attempt to set an anchor.
    tried: Option<MonoNanos>,
    /// The device's time of the newest anchor, in nanoseconds since the first.
    elapsed: Option<f64>,
    /// The last anchors, oldest first.
    anchors: VecDeque<Probe>,
    fit: Option<ClockFit>,
    /// The newest error bound, which samples of the device include.
    bound: Bound,
}

/// The error bound of converted times in nanoseconds, or 0 before the first anchor.
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

    /// Sets an anchor if the last attempt is old enough.
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

    /// Returns the times at which the device passed two events, on the host's clock. `end` must not have happened
    /// before `begin`. Returns `None` before the first anchor.
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

/// Returns an anchor as a probe of the device that takes no time there.
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

    /// Returns `count` anchors of the clock `device`, one every 100 ms. Their brackets are 4 to 10 us wide, and the
    /// event's position in its bracket varies.
    fn anchors(count: i64, device: impl Fn(i64) -> f64) -> Vec<Probe> {
        let anchor = |index: i64| {
            let host = 7_000_000_000 + index * EVERY_NANOS;
            let (before, after) = (host - 1_000 - 400 * (index % 7), host + 3_000 + 800 * (index % 5));
            anchor(MonoNanos(before), MonoNanos(after), device(host))
        };
        (0..count).map(anchor).collect()
    }

    /// Returns a device clock that began 5 s after the host's and is slow by `drift`.
    fn slow_by(drift: f64) -> impl Fn(i64) -> f64 {
        move |host| ((host - 5_000_000_000) as f64) * (1.0 - drift)
    }

    /// Returns the largest error of the line from 50 ms before the last anchor to 100 ms after it.
    fn error(fit: &ClockFit, last: i64, device: impl Fn(i64) -> f64) -> u64 {
        let hosts = [last - 50_000_000, last, last + 100_000_000];
        let errors = hosts.map(|host| (fit.local(device_time(device(host))).0 - host).unsigned_abs());
        errors.into_iter().max().unwrap_or_default()
    }

    #[test]
    fn converted_times_are_within_the_error_bound() {
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
    fn an_interruption_of_the_host_during_an_anchor_does_not_move_the_line() {
        let mut anchors = anchors(64, slow_by(1e-5));
        for interrupted in [3, 40, 63] {
            anchors[interrupted].received = anchors[interrupted].received + 5_000_000;
        }
        let fit = clocks::fit(0, &anchors).unwrap();
        let error = error(&fit, 7_000_000_000 + 63 * EVERY_NANOS, slow_by(1e-5));
        assert!(error <= 4_000 && fit.bound_nanos <= 5_000, "off by {error}, {fit:?}");
    }
}
