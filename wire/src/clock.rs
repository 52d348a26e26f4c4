//! Time points of different clocks are different types: mixing clocks is *the* bug of distributed tracing.

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
            /// The nanoseconds from `earlier` to `self`; saturates, because a hostile batch may hold any number.
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
    /// Nanoseconds on one process's own monotonic clock. Comparable within that process only.
    MonoNanos
}
time_point! {
    /// Nanoseconds on the server's clock: the Unix epoch plus what its monotonic clock has counted since.
    /// All ranks are aligned to it.
    ServerNanos
}
time_point! {
    /// Nanoseconds since the Unix epoch as a host's wall clock says; may jump, used for naming only.
    UnixNanos
}

/// One process's monotonic and wall clock, read back to back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockAnchor {
    /// The monotonic clock.
    pub mono: MonoNanos,
    /// The wall clock.
    pub unix: UnixNanos,
}

/// One two-way exchange with the server, as NTP's four time stamps (RFC 5905, section 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The agent sent the request.
    pub sent: MonoNanos,
    /// The server got it.
    pub server_received: ServerNanos,
    /// The server answered.
    pub server_sent: ServerNanos,
    /// The agent got the answer.
    pub received: MonoNanos,
}

impl Probe {
    /// Server clock minus this process's clock, in nanoseconds, if both ways took equally long.
    #[must_use]
    pub fn offset_nanos(&self) -> i64 {
        let there = i128::from(self.server_received.0) - i128::from(self.sent.0);
        let back = i128::from(self.server_sent.0) - i128::from(self.received.0);
        clamp((there + back) / 2)
    }

    /// The time the exchange spent on the way, both ways together; half of it bounds the offset's error.
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
    fn an_unequal_way_errs_by_at_most_half_the_delay() {
        // The server's clock is 1,000 ahead; 30 there, 10 back, 5 inside.
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
