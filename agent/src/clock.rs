//! This process's clocks. The only place in the agent and the reducer that reads one.

use rustix::time::{ClockId, Timespec, clock_gettime};
use wire::clock::{ClockAnchor, MonoNanos, UnixNanos};

/// How often both clocks are read to pair them.
const ANCHOR_READINGS: usize = 8;

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

/// Processor time of all threads of this process, also of those that ended, in nanoseconds.
#[must_use]
pub fn process_cpu_nanos() -> u64 {
    nanos(clock_gettime(ClockId::ProcessCPUTime)).unsigned_abs()
}

/// Both clocks, the wall clock read between two readings of the monotonic one: the tightest of some, since a process that
/// has to wait for a processor in between is off by milliseconds.
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

/// Names the clock that [`now`] reads: the kernel's boot and its time namespace. Processes with the same name
/// share the clock. Empty where the kernel does not say.
#[must_use]
pub fn name() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    let namespace = std::fs::read_link("/proc/self/ns/time");
    match (boot, namespace) {
        (Ok(boot), Ok(namespace)) => format!("{} {}", boot.trim(), namespace.display()),
        _ => String::new(),
    }
}
