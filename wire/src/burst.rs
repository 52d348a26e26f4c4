//! What a device did in a short while, as its own records of every kernel and copy say, summed up where they were taken:
//! a second has some ten thousand of them.

use serde::{Deserialize, Serialize};

use crate::clock::{MonoNanos, ServerNanos};
use crate::event::SpanKind;

/// Kernels that are told apart; the rest is in the sums.
pub const MOST_KERNELS: usize = 20;
/// Longest burst, in milliseconds: what is recorded must fit into memory.
pub const MOST_MILLIS: u16 = 5_000;

/// A device that has nothing to do for longer than this, in nanoseconds, is taken to wait for a launch. A choice: how
/// closely kernels follow each other that were launched in time was not measured.
pub const GAP_NANOS: u64 = 5_000;

/// A server asks a rank for a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BurstRequest {
    /// Later requests have larger numbers.
    pub number: u64,
    /// How long to record, in milliseconds; at most [`MOST_MILLIS`].
    pub millis: u16,
}

impl BurstRequest {
    /// The header of an answer to a batch that carries it.
    pub const HEADER: &'static str = "paceline-burst";

    /// Numbered by the server's time: later than what a server asked that ran before.
    #[must_use]
    pub fn at(now: ServerNanos, millis: u16) -> Self {
        Self { number: now.0.max(0).unsigned_abs() / 1_000_000, millis }
    }

    /// As it stands in [`Self::HEADER`].
    #[must_use]
    pub fn to_header(self) -> String {
        format!("{} {}", self.number, self.millis)
    }

    /// `None` where the text says something else.
    #[must_use]
    pub fn from_header(text: &str) -> Option<Self> {
        let (number, millis) = text.split_once(' ')?;
        let millis = millis.parse().ok().filter(|millis| (1..=MOST_MILLIS).contains(millis))?;
        Some(Self { number: number.parse().ok()?, millis })
    }
}

/// A burst of one rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Burst {
    /// The number of the request that it answers; 0 where nobody asked.
    pub request: u64,
    /// It began, on the rank's clock.
    #[cfg_attr(feature = "openapi", schema(value_type = i64))]
    pub from: MonoNanos,
    /// It ended.
    #[cfg_attr(feature = "openapi", schema(value_type = i64))]
    pub until: MonoNanos,
    /// What came of it.
    pub outcome: BurstOutcome,
}

impl Burst {
    /// [`Activity::covered_nanos`] of what was recorded, if it was and that is known.
    #[must_use]
    pub fn covered(&self) -> Option<u64> {
        match &self.outcome {
            BurstOutcome::Recorded(activity) => activity.covered_nanos,
            BurstOutcome::Refused { .. } => None,
        }
    }
}

/// What came of a burst.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "result", rename_all = "snake_case")]
pub enum BurstOutcome {
    /// It was recorded.
    Recorded(Activity),
    /// It was not.
    Refused {
        /// Why.
        reason: String,
    },
}

/// What the devices of a process did; times in nanoseconds. All are lengths of unions: two kernels at once are one busy
/// moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Activity {
    /// Kernels, copies and fills that were recorded.
    pub records: u64,
    /// Those that had no room.
    pub dropped: u64,
    /// From the first one's begin to the last one's end.
    pub span_nanos: u64,
    /// Some kernel ran that is no collective.
    pub compute_nanos: u64,
    /// Some collective ran.
    pub collective_nanos: u64,
    /// Both at once: communication that compute hides.
    pub hidden_nanos: u64,
    /// A collective ran, and a stream that computes was busy: with copies and fills too, and with the gaps between them
    /// up to [`GAP_NANOS`]. This is what events can tell, which stand around a phase and not around each kernel. `None` in
    /// what agents sent before there was wire version 4.
    pub covered_nanos: Option<u64>,
    /// Something was copied or filled.
    pub copy_nanos: u64,
    /// Nothing of all that: the device waited for its host, or for other devices between two kernels.
    pub idle_nanos: u64,
    /// Stretches of it that are longer than [`GAP_NANOS`].
    pub gaps: u64,
    /// The longest of them.
    pub longest_gap_nanos: u64,
    /// The kernels that took the longest together, at most [`MOST_KERNELS`].
    pub kernels: Vec<KernelTime>,
}

impl Activity {
    /// METRICS.md's overlap, exact: what share of communication lies behind compute; `None` without any.
    #[must_use]
    pub fn overlap_ratio(&self) -> Option<f64> {
        self.share(self.hidden_nanos)
    }

    /// What share of communication lies behind streams that compute; `None` without any, or where it is not known.
    #[must_use]
    pub fn covered_ratio(&self) -> Option<f64> {
        self.covered_nanos.and_then(|covered| self.share(covered))
    }

    fn share(&self, nanos: u64) -> Option<f64> {
        (self.collective_nanos > 0).then(|| nanos as f64 / self.collective_nanos as f64)
    }
}

/// All runs of one kernel that were launched in one phase; times in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct KernelTime {
    /// As the compiler named it.
    pub name: String,
    /// The phase of the step in which the training thread launched it; `None` where that is not known, as in jobs that mark
    /// no phases.
    pub phase: Option<SpanKind>,
    /// How often it ran.
    pub calls: u64,
    /// The sum of its runs.
    pub total_nanos: u64,
    /// The longest run.
    pub longest_nanos: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_survives_its_header_and_nonsense_is_none() {
        let request = BurstRequest { number: 1_795_317_959_159, millis: 1_000 };
        assert_eq!(BurstRequest::from_header(&request.to_header()), Some(request));
        for text in ["", "7", "7 ", "7 0", "7 5001", "x 100", "7 100 9", "-1 100"] {
            assert_eq!(BurstRequest::from_header(text), None, "{text:?}");
        }
    }
}
