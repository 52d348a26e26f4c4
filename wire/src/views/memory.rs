//! Memory that grows toward its limit.

use serde::{Deserialize, Serialize};

use super::figure::Figure;

/// A kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum MemoryKind {
    /// The memory of a process that is in the RAM of its host.
    Host,
    /// The memory of a device.
    Device,
}

/// The time until memory is full if it grows as before.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TimeLeft {
    /// At the upper end of the growth's 95 % interval, in seconds.
    pub soonest_seconds: f64,
    /// At its lower end, in seconds.
    pub latest_seconds: f64,
}

/// Memory that grows all along (`docs/metrics.md`, "Memory that grows").
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MemoryGrowth {
    /// The kind of memory.
    pub kind: MemoryKind,
    /// The ranks whose memory grows, in ascending order.
    pub ranks: Vec<u32>,
    /// The rank whose limit is reached first.
    pub first_rank: u32,
    /// The memory of that rank at the beginning of the growth, in bytes.
    pub from_bytes: u64,
    /// The newest memory of that rank, in bytes.
    pub to_bytes: u64,
    /// The time in between, in seconds.
    pub over_seconds: f64,
    /// The growth of that rank, in bytes per second.
    pub bytes_per_second: f64,
    /// The memory that is left to it and to the ranks that share it, in bytes.
    pub left_bytes: Figure<u64>,
    /// The time until it is full at this rate, in seconds: from the 95 % interval of the growth.
    pub time_left: Figure<TimeLeft>,
    /// True if it may be full within a day.
    pub is_urgent: bool,
    /// A sentence for the user.
    pub sentence: String,
    /// The first thing to try.
    pub advice: String,
}
