//! The server's clock: Unix time once, then only what the monotonic clock counts, so that it never jumps.

use rustix::time::{ClockId, Timespec, clock_gettime};
use wire::clock::ServerNanos;

/// Nanoseconds on the server's clock.
///
/// `CLOCK_BOOTTIME` plus the difference to the wall clock at start. After a restart on the same boot the
/// difference is taken from the data directory, so that one run has one clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerClock {
    unix_minus_boot: i64,
}

fn nanos(time: Timespec) -> i64 {
    time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)
}

impl ServerClock {
    /// A clock that starts at the wall clock's time.
    #[must_use]
    pub fn start() -> Self {
        let boot = nanos(clock_gettime(ClockId::Boottime));
        Self::from_difference(nanos(clock_gettime(ClockId::Realtime)) - boot)
    }

    /// The clock with a known difference between Unix time and boot time, in nanoseconds.
    #[must_use]
    pub fn from_difference(unix_minus_boot: i64) -> Self {
        Self { unix_minus_boot }
    }

    /// The difference to hand to [`Self::from_difference`].
    #[must_use]
    pub fn difference(self) -> i64 {
        self.unix_minus_boot
    }

    /// What it says now.
    #[must_use]
    pub fn now(self) -> ServerNanos {
        ServerNanos(nanos(clock_gettime(ClockId::Boottime)).saturating_add(self.unix_minus_boot))
    }
}
