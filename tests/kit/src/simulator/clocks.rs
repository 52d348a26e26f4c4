//! The clocks of hosts, and probes over a network whose two directions differ.

use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use wire::clock::{MonoNanos, Probe, ServerNanos};

use super::plan::Plan;

/// The monotonic clock of a host, relative to true time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostClock {
    /// The value of the clock at true time 0, in nanoseconds.
    pub offset: i64,
    /// The rate by which the clock runs fast, in parts per billion.
    pub drift_ppb: f64,
}

/// The server's clock at true time 0. In the simulation, the server's clock is exact.
pub const EPOCH: i64 = 1_790_000_000_000_000_000;

impl HostClock {
    /// Returns the value of the clock at a true time.
    #[must_use]
    pub fn read(&self, time: i64) -> MonoNanos {
        MonoNanos(self.offset + time + (time as f64 * self.drift_ppb * 1e-9) as i64)
    }

    /// Returns a probe that is sent at `time`.
    pub(super) fn probe(&self, time: i64, plan: &Plan, random: &mut ChaCha8Rng) -> Probe {
        let mut way = || (plan.probe_way as f64 * (1.0 + 9.0 * random.random::<f64>().powi(4))) as i64;
        let (there, back) = (way(), way());
        let inside = 2_000;
        Probe {
            sent: self.read(time),
            server_received: ServerNanos(EPOCH + time + there),
            server_sent: ServerNanos(EPOCH + time + there + inside),
            received: self.read(time + there + inside + back),
        }
    }
}

pub(super) fn draw(plan: &Plan, random: &mut ChaCha8Rng) -> Vec<HostClock> {
    let hosts = plan.ranks.div_ceil(plan.ranks_per_host);
    let mut clock = |_| HostClock {
        offset: random.random_range(0..=plan.clock_offset),
        drift_ppb: random.random_range(-1.0..=1.0) * plan.drift_ppb,
    };
    (0..hosts).map(&mut clock).collect()
}
