//! Views of collectives: by bucket, by group, and as a model.

use serde::{Deserialize, Serialize};

use super::Spread;
use crate::event::Function;
use crate::ids::{Bucket, Rank};

/// The latency-bandwidth model: `transfer(m) = alpha + beta * m` for m bytes, fitted by least absolute deviations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AlphaBeta {
    /// The latency, in seconds.
    pub alpha_seconds: f64,
    /// The inverse bandwidth, in seconds per byte.
    pub beta_seconds_per_byte: f64,
    /// The median absolute residual, in seconds.
    pub residual_seconds: f64,
    /// The points that the model was fitted to: bytes and median transfer in seconds, one per bucket size.
    pub points: Vec<(u64, f64)>,
}

/// A histogram of latencies in bins of a quarter octave. Bin `i` counts latencies in [1 us x 2^(i/4), 1 us x
/// 2^((i+1)/4)). Latencies below 1 us are in bin 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LatencyHistogram {
    /// The index of the first bin.
    pub first: u32,
    /// The counts of transfers, from bin `first` on.
    pub transfers: Vec<u32>,
    /// The counts of waits, for the same bins.
    pub waits: Vec<u32>,
}

impl LatencyHistogram {
    /// The number of bins per octave.
    pub const PER_OCTAVE: f64 = 4.0;

    /// Returns the bin of a latency.
    #[must_use]
    pub fn bin(nanos: f64) -> u32 {
        ((nanos / 1e3).max(1.0).log2() * Self::PER_OCTAVE) as u32
    }

    /// Returns the lower end of a bin, in nanoseconds.
    #[must_use]
    pub fn begin(bin: u32) -> f64 {
        (f64::from(bin) / Self::PER_OCTAVE).exp2() * 1e3
    }
}

/// A shape of group: how many ranks take part in a collective and how far apart they are. Jobs that combine tensor,
/// pipeline and data parallelism have groups of several shapes. The groups of one shape are reported together.
///
/// ```
/// use paceline_wire::views::Group;
/// assert_eq!(Group::from_ranks([1, 5, 9]).name(16), "3 ranks, 4 apart");
/// assert_eq!(Group::from_ranks([0, 1]), Group::from_ranks([6, 7]));
/// assert_eq!(Group::from_ranks([0, 1, 3]).name(8), "3 ranks");
/// assert_eq!(Group::from_ranks(0..8).name(8), "all ranks");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Group {
    /// The number of ranks.
    pub ranks: u32,
    /// The distance from each rank to the next; 0 if it varies.
    pub stride: u32,
}

impl Group {
    /// Returns the shape of a group of ascending ranks.
    #[must_use]
    pub fn from_ranks(ranks: impl IntoIterator<Item = usize>) -> Self {
        // Runs for every collective of every step, so it does not allocate.
        let (mut count, mut last, mut stride) = (0, None, None);
        for rank in ranks {
            if let Some(step) = last.map(|last| rank - last) {
                stride = Some(if stride.is_none_or(|known| known == step) { step } else { 0 });
            }
            (count, last) = (count + 1, Some(rank));
        }
        Self { ranks: count, stride: stride.unwrap_or(0) as u32 }
    }

    /// Returns the shape in words, for a run of `world` ranks.
    #[must_use]
    pub fn name(self, world: u32) -> String {
        match self {
            Self { ranks, .. } if ranks == world => "all ranks".into(),
            Self { ranks, stride: 0 } => format!("{ranks} ranks"),
            Self { ranks, stride } => format!("{ranks} ranks, {stride} apart"),
        }
    }
}

/// The cost of collectives per rank and step, as the mean over steps and ranks. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CollectiveCost {
    /// The number of collectives that the rank takes part in.
    pub collectives: f64,
    /// The payload of the collectives, in bytes.
    pub bytes: f64,
    /// The collective time, waits included.
    pub comm_nanos: f64,
    /// The exposed part of the collective time; null if nothing shows it.
    pub exposed_nanos: Option<f64>,
    /// The part of the collective time spent waiting for the last rank.
    pub wait_nanos: f64,
}

/// The collectives of one shape of group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GroupStats {
    /// The shape.
    pub group: Group,
    /// The functions of the collectives.
    pub functions: Vec<Function>,
    /// The cost of the collectives, over all groups of this shape.
    pub cost: CollectiveCost,
    /// The number of groups with this shape.
    pub count: u32,
    /// The groups whose ranks wait longest, at most [`Self::MAX_WORST`], the longest wait first.
    pub worst: Vec<OneGroup>,
}

impl GroupStats {
    /// The largest number of groups of one shape that are listed individually.
    pub const MAX_WORST: usize = 16;
}

/// One group: the ranks of a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OneGroup {
    /// The lowest rank of the group. The shape gives the other ranks, if they are evenly spaced.
    pub first: Rank,
    /// The cost of the group's collectives.
    pub cost: CollectiveCost,
    /// The rank that the others wait for most, and its share of all waiting in the group; null if there is no waiting,
    /// or if clocks are not aligned.
    pub latest: Option<(Rank, f64)>,
}

/// How often a rank starts collectives last, and how much later than the rank before it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LastRank {
    /// The rank.
    pub rank: Rank,
    /// The number of collectives that it starts last.
    pub last: u64,
    /// The number of collectives whose last rank is known, over all ranks.
    pub collectives: u64,
    /// By how much it starts those that it starts last after the rank before it: the sum over them, in nanoseconds per step.
    pub nanos_per_step: f64,
    /// The longest of these times, in nanoseconds.
    pub longest_nanos: u64,
    /// Its share of all such time of all ranks, 0 to 1.
    pub share: f64,
}

/// The parameters in a bucket, in short. `GET /api/v1/runs/{run}/layouts` has all of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BucketParameters {
    /// The number of the module.
    pub module: u32,
    /// The generation of the layout.
    pub generation: u32,
    /// The bucket's place in the layout. It differs from [`BucketStats::bucket`] if a step has other collectives before it.
    pub bucket: u32,
    /// The names of the first parameters in the bucket, at most [`Self::MAX_FIRST`].
    pub first: Vec<String>,
    /// The number of parameters in the bucket.
    pub count: u32,
}

impl BucketParameters {
    /// The largest number of names.
    pub const MAX_FIRST: usize = 2;

    /// Returns the first name and the number of parameters: `fc.weight … (2 parameters)`. The name alone if there is one.
    #[must_use]
    pub fn label(&self) -> String {
        match (self.first.first(), self.count) {
            (Some(only), 1) => only.clone(),
            (Some(first), count) => format!("{first} … ({count} parameters)"),
            (None, _) => "no parameters".into(),
        }
    }

    /// Returns the names as a list: `fc.weight, fc.bias` or `fc.weight, fc.bias and 10 more`.
    #[must_use]
    pub fn listed(&self) -> String {
        let names = self.first.join(", ");
        match (self.count as usize).saturating_sub(self.first.len()) {
            0 => names,
            more => format!("{names} and {more} more"),
        }
    }
}

/// One bucket over the observed steps and all ranks. Times are in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BucketStats {
    /// The shape of the group that reduces the bucket.
    pub group: Group,
    /// The function of the collective.
    pub function: Function,
    /// The bucket.
    pub bucket: Bucket,
    /// The payload, in bytes.
    pub bytes: u64,
    /// The number of measured collectives.
    pub collectives: u64,
    /// The wait for the last rank.
    pub wait_nanos: Spread,
    /// The transfer.
    pub transfer_nanos: Spread,
    /// The distribution of waits and transfers, with one count per collective.
    pub latency: LatencyHistogram,
    /// The share of the bucket's collective time during which its rank computes; null if nothing shows it.
    pub hidden_ratio: Option<f64>,
    /// The algorithm bandwidth, in bytes per second: full (gathered) bytes / median transfer.
    pub algbw: Option<f64>,
    /// The bus bandwidth, in bytes per second: algbw x f for a group of N ranks. f is 2(N-1)/N for all-reduce, (N-1)/N
    /// for reduce-scatter, all-gather and all-to-all, 1 for broadcast, reduce, send and receive.
    pub busbw: Option<f64>,
    /// The parameters in the bucket; null if they are not known.
    pub parameters: Option<BucketParameters>,
}
