//! Virtual time in nanoseconds: the cost of operations, and the position of each host thread.
//!
//! With `FAKEGPU_REAL_TIME` in the environment, the host's time is real time, so jobs run at the speed of a device with
//! these costs. Operations still take exactly their cost.

use std::cell::Cell;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The cost of a call that enqueues an operation. Queries cost nothing, so polling does not advance time.
pub(crate) const CALL: i64 = 1_000;
/// The difference of the device's clock and the host's.
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

/// The start of virtual time, in 2023, in nanoseconds since 1970.
const VIRTUAL_EPOCH: i64 = 1_700_000_000_000_000_000;

/// Returns the start of real time on two clocks, or `None` if time is virtual.
fn real() -> Option<(Instant, i64)> {
    static BEGAN: OnceLock<Option<(Instant, i64)>> = OnceLock::new();
    *BEGAN.get_or_init(|| std::env::var_os("FAKEGPU_REAL_TIME").and_then(|_| both_clocks()))
}

/// Reads both clocks at the same time. The tightest of several readings is used, because the host may be interrupted.
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

/// Returns the time of the machine's clock in nanoseconds since 1970.
fn wall_clock() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_nanos() as i64)
}

/// Returns the current time on the clock of CUPTI's records.
pub(crate) fn now() -> i64 {
    real().map_or_else(wall_clock, |_| unix_nanos(host()))
}

/// Converts a time to nanoseconds since 1970.
pub(crate) fn unix_nanos(time: i64) -> i64 {
    real().map_or(VIRTUAL_EPOCH, |(_, began)| began) + time
}

/// Returns the calling thread's position in time.
pub(crate) fn host() -> i64 {
    began().map_or_else(|| HOST.get(), |began| began.elapsed().as_nanos() as i64)
}

/// Advances the calling thread in virtual time.
pub(crate) fn spend(nanos: i64) -> i64 {
    HOST.set(HOST.get() + nanos);
    host()
}

/// Makes the calling thread wait until `time`.
pub(crate) fn wait_until(time: i64) {
    HOST.set(HOST.get().max(time));
    if began().is_some() {
        std::thread::sleep(Duration::from_nanos((time - host()).max(0).unsigned_abs()));
    }
}

/// Returns true if a known time is in the past. Virtual time has no common "now", so every known time counts as past.
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
