//! The server's clock. It reads Unix time once and then follows the monotonic clock, so it never jumps.

use rustix::time::{ClockId, Timespec, clock_gettime};
use wire::clock::ServerNanos;

/// The server's clock, in nanoseconds of Unix time.
///
/// Time is `CLOCK_BOOTTIME` plus the difference to the wall clock at start. After a restart within the same boot the
/// difference is read from the data directory, so a run has one clock throughout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerClock {
    unix_minus_boot: i64,
}

fn nanos(time: Timespec) -> i64 {
    time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)
}

impl ServerClock {
    /// Returns a clock that starts at the wall clock's time.
    #[must_use]
    pub fn start() -> Self {
        let boot = nanos(clock_gettime(ClockId::Boottime));
        Self::from_difference(nanos(clock_gettime(ClockId::Realtime)) - boot)
    }

    /// Returns a clock with a known difference between Unix time and boot time, in nanoseconds.
    #[must_use]
    pub fn from_difference(unix_minus_boot: i64) -> Self {
        Self { unix_minus_boot }
    }

    /// Returns the difference between Unix time and boot time, for [`Self::from_difference`].
    #[must_use]
    pub fn difference(self) -> i64 {
        self.unix_minus_boot
    }

    /// Returns the current time.
    #[must_use]
    pub fn now(self) -> ServerNanos {
        ServerNanos(nanos(clock_gettime(ClockId::Boottime)).saturating_add(self.unix_minus_boot))
    }
}
