//! Virtual time, in nanoseconds: what things cost, and where each thread of the host is.

use std::cell::Cell;

/// A call that enqueues something. Questions cost nothing, so that polling does not move time.
pub(crate) const CALL: i64 = 1_000;
/// The device's clock less the host's.
pub(crate) const GLOBAL_TIMER_AHEAD: i64 = 7_000_000_000;
const KERNEL: i64 = 2_000;
const COPY: i64 = 5_000;
const COPIED_BYTES_PER_NANO: i64 = 10;
const COLLECTIVE: i64 = 20_000;
const REDUCED_BYTES_PER_NANO: i64 = 5;

thread_local! {
    static HOST: Cell<i64> = const { Cell::new(0) };
}

/// Where the calling thread is.
pub(crate) fn host() -> i64 {
    HOST.get()
}

/// The calling thread spends time.
pub(crate) fn spend(nanos: i64) -> i64 {
    HOST.set(HOST.get() + nanos);
    HOST.get()
}

/// The calling thread waited until then.
pub(crate) fn wait_until(time: i64) {
    HOST.set(HOST.get().max(time));
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
