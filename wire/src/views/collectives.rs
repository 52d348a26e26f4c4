//! What the report says of collectives: by bucket, by group, and as a model.

use serde::{Deserialize, Serialize};

use super::Spread;
use crate::event::Function;
use crate::ids::{Bucket, Rank};

/// `transfer(m) = alpha + beta * m`, by least absolute deviations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AlphaBeta {
    /// Latency, in seconds.
    pub alpha_seconds: f64,
    /// Inverse bandwidth, in seconds per byte.
    pub beta_seconds_per_byte: f64,
    /// Median absolute residual, in seconds.
    pub residual_seconds: f64,
    /// The points it was fitted to: bytes and median transfer in seconds, one per bucket size.
    pub points: Vec<(u64, f64)>,
}

/// How often a latency was seen, in bins of a quarter of an octave: bin `i` counts what lies in
/// [1 us x 2^(i/4), 1 us x 2^((i+1)/4)); what is below 1 us is in bin 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LatencyHistogram {
    /// The number of the first bin.
    pub first: u32,
    /// Counts of transfers, from bin `first` on.
    pub transfers: Vec<u32>,
    /// Counts of waits, as many.
    pub waits: Vec<u32>,
}

impl LatencyHistogram {
    /// Bins in an octave.
    pub const PER_OCTAVE: f64 = 4.0;

    /// Which bin a latency falls into.
    #[must_use]
    pub fn bin(nanos: f64) -> u32 {
        ((nanos / 1e3).max(1.0).log2() * Self::PER_OCTAVE) as u32
    }

    /// Where a bin begins, in nanoseconds.
    #[must_use]
    pub fn begin(bin: u32) -> f64 {
        (f64::from(bin) / Self::PER_OCTAVE).exp2() * 1e3
    }
}

/// Which ranks take part in a collective, by their shape: where tensor, pipeline and data parallelism share a job, each has
/// groups of a shape of its own, which are told together.
///
/// ```
/// use wire::views::Group;
/// assert_eq!(Group::of([1, 5, 9]).name(16), "3 ranks, 4 apart");
/// assert_eq!(Group::of([0, 1]), Group::of([6, 7]));
/// assert_eq!(Group::of([0, 1, 3]).name(8), "3 ranks");
/// assert_eq!(Group::of(0..8).name(8), "all ranks");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Group {
    /// How many.
    pub ranks: u32,
    /// How far each is from the next; 0 where that is not the same for all.
    pub stride: u32,
}

impl Group {
    /// Of ascending ranks.
    #[must_use]
    pub fn of(ranks: impl IntoIterator<Item = usize>) -> Self {
        // Asked for every collective of every step, so that nothing is allocated.
        let (mut count, mut last, mut stride) = (0, None, None);
        for rank in ranks {
            if let Some(step) = last.map(|last| rank - last) {
                stride = Some(if stride.is_none_or(|known| known == step) { step } else { 0 });
            }
            (count, last) = (count + 1, Some(rank));
        }
        Self { ranks: count, stride: stride.unwrap_or(0) as u32 }
    }

    /// In words, in a run of `world` ranks.
    #[must_use]
    pub fn name(self, world: u32) -> String {
        match self {
            Self { ranks, .. } if ranks == world => "all ranks".into(),
            Self { ranks, stride: 0 } => format!("{ranks} ranks"),
            Self { ranks, stride } => format!("{ranks} ranks, {stride} apart"),
        }
    }
}

/// What collectives cost a rank in a step, the mean over steps and ranks; times in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CollectiveCost {
    /// How many it takes part in.
    pub collectives: f64,
    /// Their payload, in bytes.
    pub bytes: f64,
    /// What they take, waits included.
    pub comm_ns: f64,
    /// The part of it that lies behind no compute.
    pub exposed_ns: f64,
    /// The part of it that is spent waiting for the last rank.
    pub wait_ns: f64,
}

/// The collectives of one shape of group: where several kinds of parallelism share a job, one of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GroupStats {
    /// The shape.
    pub group: Group,
    /// What its collectives do.
    pub functions: Vec<Function>,
    /// What they cost, over all groups of this shape.
    pub cost: CollectiveCost,
    /// How many groups have this shape.
    pub count: u32,
    /// Those whose ranks wait longest, at most [`Self::MOST_TOLD`], the longest first.
    pub worst: Vec<OneGroup>,
}

impl GroupStats {
    /// Groups of a shape that are told one by one.
    pub const MOST_TOLD: usize = 16;
}

/// One group: ranks that have a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OneGroup {
    /// Its lowest rank; the others follow from the shape, where ranks are evenly apart.
    pub first: Rank,
    /// What its collectives cost.
    pub cost: CollectiveCost,
    /// The rank that the others wait for most, and its share of all waiting in the group; null where nobody waits, or
    /// clocks are not aligned.
    pub latest: Option<(Rank, f64)>,
}

/// One bucket over the observed steps and all ranks; times in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BucketStats {
    /// Whose.
    pub group: Group,
    /// What it does.
    pub function: Function,
    /// Which bucket.
    pub bucket: Bucket,
    /// Its payload, in bytes.
    pub bytes: u64,
    /// How many collectives were measured.
    pub collectives: u64,
    /// Wait for the last rank.
    pub wait_ns: Spread,
    /// Transfer.
    pub transfer_ns: Spread,
    /// How waits and transfers are distributed, one count a collective.
    pub latency: LatencyHistogram,
    /// Share of its communication time that lay behind compute.
    pub hidden_ratio: Option<f64>,
    /// Full, gathered bytes / median transfer, in bytes per second.
    pub algbw: Option<f64>,
    /// algbw x 2(N-1)/N for an all-reduce, (N-1)/N for a reduce-scatter or all-gather among the group's N ranks, in bytes
    /// per second.
    pub busbw: Option<f64>,
}
