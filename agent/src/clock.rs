//! The clocks of this process. Only this module of the agent and the reducer reads clocks.

use rustix::time::{ClockId, Timespec, clock_gettime};
use wire::clock::{ClockAnchor, MonoNanos, UnixNanos};

/// The number of attempts to read both clocks together.
const ANCHOR_READINGS: usize = 8;

fn nanos(time: Timespec) -> i64 {
    time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)
}

/// Returns the time of `CLOCK_MONOTONIC`. Takes about 25 ns through the vDSO.
#[must_use]
pub fn now() -> MonoNanos {
    MonoNanos(nanos(clock_gettime(ClockId::Monotonic)))
}

/// Returns the time since the host's boot, in nanoseconds. Unlike [`now`], it includes the time in which the host was
/// suspended.
#[must_use]
pub fn uptime_nanos() -> u64 {
    nanos(clock_gettime(ClockId::Boottime)).unsigned_abs()
}

/// Returns the processor time of the calling thread, in nanoseconds. Makes a system call, so use it per phase and not
/// per bucket.
#[must_use]
pub fn thread_cpu_nanos() -> u64 {
    nanos(clock_gettime(ClockId::ThreadCPUTime)).unsigned_abs()
}

/// Returns the processor time of all threads of this process, including ended ones, in nanoseconds.
#[must_use]
pub fn process_cpu_nanos() -> u64 {
    nanos(clock_gettime(ClockId::ProcessCPUTime)).unsigned_abs()
}

/// Returns a reading of both clocks. The wall clock is read between two readings of the monotonic clock. The tightest
/// of several attempts is used, because a process that loses its processor in between is off by milliseconds.
#[must_use]
pub fn anchor() -> ClockAnchor {
    let mut tightest = (i64::MAX, ClockAnchor { mono: MonoNanos(0), unix: UnixNanos(0) });
    for _ in 0..ANCHOR_READINGS {
        let before = now();
        let unix = UnixNanos(nanos(clock_gettime(ClockId::Realtime)));
        let width = now() - before;
        if width < tightest.0 {
            tightest = (width, ClockAnchor { mono: before + width / 2, unix });
        }
    }
    tightest.1
}

/// Returns the name of the clock that [`now`] reads: the kernel's boot id and time namespace. Processes with the same
/// name share the clock. Empty if the kernel does not provide them.
#[must_use]
pub fn name() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    let namespace = std::fs::read_link("/proc/self/ns/time");
    match (boot, namespace) {
        (Ok(boot), Ok(namespace)) => format!("{} {}", boot.trim(), namespace.display()),
        _ => String::new(),
    }
}
