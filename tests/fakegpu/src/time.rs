//! Virtual time, in nanoseconds: what things cost, and where each thread of the host is.
//!
//! With `FAKEGPU_REAL_TIME` in the environment the host's time is the machine's, so that whole jobs run as fast as they
//! would on a device of these costs; operations still take exactly what they cost.

use std::cell::Cell;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A call that enqueues something. Questions cost nothing, so that polling does not move time.
pub(crate) const CALL: i64 = 1_000;
/// The device's clock less the host's.
pub(crate) const GLOBAL_TIMER_AHEAD: i64 = 7_000_000_000;
const KERNEL: i64 = 2_000;
const COPY: i64 = 5_000;
const COPIED_BYTES_PER_NANO: i64 = 10;
const COLLECTIVE: i64 = 20_000;
const REDUCED_BYTES_PER_NANO: i64 = 5;
const READINGS: usize = 32;

thread_local! {
    static HOST: Cell<i64> = const { Cell::new(0) };
}

/// Virtual time begins in 2023, on a clock that counts from 1970.
const VIRTUAL_EPOCH: i64 = 1_700_000_000_000_000_000;

/// When real time began, by two clocks; `None` where time is virtual.
fn real() -> Option<(Instant, i64)> {
    static BEGAN: OnceLock<Option<(Instant, i64)>> = OnceLock::new();
    *BEGAN.get_or_init(|| std::env::var_os("FAKEGPU_REAL_TIME").and_then(|_| both_clocks()))
}

/// Both clocks at one time, as the tightest of some readings says: the host may do something else in the middle of one.
fn both_clocks() -> Option<(Instant, i64)> {
    let readings = (0..READINGS).map(|_| {
        let before = Instant::now();
        let wall = wall_clock();
        let width = before.elapsed();
        (width, before + width / 2, wall)
    });
    readings.min_by_key(|(width, ..)| *width).map(|(_, instant, wall)| (instant, wall))
}

fn began() -> Option<Instant> {
    real().map(|(began, _)| began)
}

/// The machine's, in nanoseconds since 1970.
fn wall_clock() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i64)
}

/// What CUPTI takes for the time: the clock of its records.
pub(crate) fn now() -> i64 {
    real().map_or_else(wall_clock, |_| since_1970(host()))
}

/// A time on a clock that counts from 1970.
pub(crate) fn since_1970(time: i64) -> i64 {
    real().map_or(VIRTUAL_EPOCH, |(_, began)| began) + time
}

/// Where the calling thread is.
pub(crate) fn host() -> i64 {
    began().map_or_else(|| HOST.get(), |began| began.elapsed().as_nanos() as i64)
}

/// The calling thread spends time, unless it does so anyway.
pub(crate) fn spend(nanos: i64) -> i64 {
    HOST.set(HOST.get() + nanos);
    host()
}

/// The calling thread waits until then.
pub(crate) fn wait_until(time: i64) {
    HOST.set(HOST.get().max(time));
    if began().is_some() {
        std::thread::sleep(Duration::from_nanos((time - host()).max(0).unsigned_abs()));
    }
}

/// Whether a time that is known has come: virtual time has no "now" that all threads share.
pub(crate) fn has_come(time: i64) -> bool {
    began().is_none() || host() >= time
}

pub(crate) fn kernel() -> i64 {
    KERNEL
}

pub(crate) fn copy(bytes: usize) -> i64 {
    COPY + bytes as i64 / COPIED_BYTES_PER_NANO
}

pub(crate) fn collective(bytes: usize) -> i64 {
    COLLECTIVE + bytes as i64 / REDUCED_BYTES_PER_NANO
}
