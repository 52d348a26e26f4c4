//! This process's clocks. The only place in the agent and the reducer that reads one.

use rustix::time::{ClockId, Timespec, clock_gettime};
use wire::clock::{ClockAnchor, MonoNanos, UnixNanos};

fn nanos(time: Timespec) -> i64 {
    time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)
}

/// `CLOCK_MONOTONIC`: about 25 ns through the vDSO.
#[must_use]
pub fn now() -> MonoNanos {
    MonoNanos(nanos(clock_gettime(ClockId::Monotonic)))
}

/// Processor time of the calling thread, in nanoseconds. A system call: for phases, not for buckets.
#[must_use]
pub fn thread_cpu_nanos() -> u64 {
    nanos(clock_gettime(ClockId::ThreadCPUTime)).unsigned_abs()
}

/// Both clocks, the wall clock read between two readings of the monotonic one.
#[must_use]
pub fn anchor() -> ClockAnchor {
    let before = now();
    let unix = UnixNanos(nanos(clock_gettime(ClockId::Realtime)));
    let after = now();
    ClockAnchor { mono: before + (after - before) / 2, unix }
}
