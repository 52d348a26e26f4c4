//! The clocks of the records.

use rustix::time::{ClockId, clock_gettime};

/// Returns `CLOCK_MONOTONIC` in nanoseconds, the clock of all records.
pub fn monotonic_nanos() -> i64 {
    nanos(ClockId::Monotonic)
}

/// Returns the processor time of this thread in nanoseconds.
pub fn thread_nanos() -> i64 {
    nanos(ClockId::ThreadCPUTime)
}

fn nanos(clock: ClockId) -> i64 {
    let now = clock_gettime(clock);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}
