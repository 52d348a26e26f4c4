//! Time points. Each clock has its own type, so that times of different clocks cannot be mixed.

use std::ops::{Add, Sub};

use serde::{Deserialize, Serialize};

macro_rules! time_point {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub i64);

        impl Sub for $name {
            type Output = i64;
            /// Returns the nanoseconds from `earlier` to `self`. Saturates, because a hostile batch may hold any
            /// number.
            fn sub(self, earlier: Self) -> i64 {
                self.0.saturating_sub(earlier.0)
            }
        }

        impl Add<i64> for $name {
            type Output = Self;
            fn add(self, nanos: i64) -> Self {
                Self(self.0.saturating_add(nanos))
            }
        }
    };
}

time_point! {
    /// Nanoseconds on the monotonic clock of one process. Comparable only within that process.
    MonoNanos
}
time_point! {
    /// Nanoseconds on the server's clock: the Unix time at its start plus what its monotonic clock has counted since.
    /// The times of all ranks are aligned to this clock.
    ServerNanos
}
time_point! {
    /// Nanoseconds since the Unix epoch on a host's wall clock. The wall clock may jump, so this time only serves as a
    /// label.
    UnixNanos
}

/// The monotonic and the wall clock of one process, read back to back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockAnchor {
    /// The reading of the monotonic clock.
    pub mono: MonoNanos,
    /// The reading of the wall clock.
    pub unix: UnixNanos,
}

/// A two-way time exchange with the server. It has the four time stamps of NTP (RFC 5905, section 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The time at which the agent sent the request.
    pub sent: MonoNanos,
    /// The time at which the server received the request.
    pub server_received: ServerNanos,
    /// The time at which the server answered.
    pub server_sent: ServerNanos,
    /// The time at which the agent received the answer.
    pub received: MonoNanos,
}

impl Probe {
    /// Returns the server's clock minus this process's clock, in nanoseconds, assuming that both directions took
    /// equally long.
    #[must_use]
    pub fn offset_nanos(&self) -> i64 {
        let there = i128::from(self.server_received.0) - i128::from(self.sent.0);
        let back = i128::from(self.server_sent.0) - i128::from(self.received.0);
        clamp((there + back) / 2)
    }

    /// Returns how long the exchange was in transit, both directions together, in nanoseconds. Half of it bounds the
    /// error of the offset.
    #[must_use]
    pub fn delay_nanos(&self) -> i64 {
        (self.received - self.sent).saturating_sub(self.server_sent - self.server_received)
    }
}

fn clamp(nanos: i128) -> i64 {
    nanos.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_asymmetric_delay_errs_by_at_most_half_the_delay() {
        // The server's clock is 1,000 ahead. The request takes 30, the answer 10, and the server 5.
        let probe = Probe {
            sent: MonoNanos(100),
            server_received: ServerNanos(1_130),
            server_sent: ServerNanos(1_135),
            received: MonoNanos(145),
        };
        assert_eq!(probe.delay_nanos(), 40);
        assert_eq!(probe.offset_nanos(), 1_010);
        assert!((probe.offset_nanos() - 1_000).abs() <= probe.delay_nanos() / 2);
    }
}
