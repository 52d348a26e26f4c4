//! Bursts: short recordings of every kernel and copy on a device. The agent sums a burst up before it sends it, because
//! one second has some ten thousand records.

use serde::{Deserialize, Serialize};

use crate::clock::MonoNanos;
use crate::event::SpanKind;

/// The largest number of kernels that a burst lists individually. The sums include all kernels.
pub const MAX_KERNELS: usize = 20;

/// The length above which an idle stretch counts as a gap, in nanoseconds. In a gap, the device is assumed to wait for
/// a launch. The value is a choice: how closely promptly launched kernels follow each other was not measured.
pub const GAP_NANOS: u64 = 5_000;

/// A burst of one rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Burst {
    /// The number of the request that the burst answers; 0 if there was no request.
    pub request: u64,
    /// The beginning of the burst, on the rank's clock.
    #[cfg_attr(feature = "openapi", schema(value_type = i64))]
    pub from: MonoNanos,
    /// The end of the burst, on the rank's clock.
    #[cfg_attr(feature = "openapi", schema(value_type = i64))]
    pub until: MonoNanos,
    /// The outcome of the burst.
    pub outcome: BurstOutcome,
}

/// The outcome of the burst.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "result", rename_all = "snake_case")]
pub enum BurstOutcome {
    /// The burst was recorded.
    Recorded(Activity),
    /// The burst was refused.
    Refused {
        /// The reason.
        reason: String,
    },
}

/// The activity of a process's devices. Times are in nanoseconds, and each is the length of a union: two kernels at
/// once are one busy moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Activity {
    /// The number of recorded kernels, copies and fills.
    pub records: u64,
    /// The number of records dropped for lack of room.
    pub dropped: u64,
    /// The time from the beginning of the first record to the end of the last.
    pub span_nanos: u64,
    /// The time in which some kernel ran that is not a collective.
    pub compute_nanos: u64,
    /// The time in which some collective kernel ran.
    pub collective_nanos: u64,
    /// The time in which both ran at once: hidden communication.
    pub hidden_nanos: u64,
    /// The time in which a collective ran while a stream that computes was busy. The stream counts as busy during its
    /// copies and fills, and during gaps of up to [`GAP_NANOS`]. CUDA events can see this much, because they enclose a
    /// phase and not each kernel.
    pub covered_nanos: u64,
    /// The time in which some copy or fill ran.
    pub copy_nanos: u64,
    /// The time in which nothing ran: the device waited for its host, or for other devices between two kernels.
    pub idle_nanos: u64,
    /// The number of idle stretches longer than [`GAP_NANOS`].
    pub gaps: u64,
    /// The longest idle stretch.
    pub longest_gap_nanos: u64,
    /// The kernels with the longest total time, at most [`MAX_KERNELS`].
    pub kernels: Vec<KernelTime>,
}

impl Activity {
    /// Returns the overlap (`docs/metrics.md`, "Bursts"): the share of communication that is hidden. `None` if there
    /// was no communication.
    #[must_use]
    pub fn overlap_ratio(&self) -> Option<f64> {
        self.share(self.hidden_nanos)
    }

    /// Returns the share of communication that streams with compute cover. `None` if there was no communication.
    #[must_use]
    pub fn covered_ratio(&self) -> Option<f64> {
        self.share(self.covered_nanos)
    }

    fn share(&self, nanos: u64) -> Option<f64> {
        (self.collective_nanos > 0).then(|| nanos as f64 / self.collective_nanos as f64)
    }
}

/// All calls of one kernel that were launched in one phase. Times are in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct KernelTime {
    /// The name of the kernel, as the compiler emitted it.
    pub name: String,
    /// The phase in which the training thread launched the kernel; `None` if it is unknown, as in jobs without phase
    /// marks.
    pub phase: Option<SpanKind>,
    /// The number of calls.
    pub calls: u64,
    /// The total time of the calls.
    pub total_nanos: u64,
    /// The time of the longest call.
    pub longest_nanos: u64,
}
