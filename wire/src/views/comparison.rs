//! The comparison of two runs: what `paceline compare` prints and the comparison view shows.

use serde::{Deserialize, Serialize};

use super::captures::TraceRow;
use crate::ids::RunId;

/// The unit of a compared figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Nanoseconds.
    Nanos,
    /// A share, 0 to 1.
    Ratio,
    /// Samples per second.
    PerSecond,
}

/// The judgment of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// The second run is better by more than the noise.
    Better,
    /// The second run is worse by more than the noise.
    Worse,
    /// The difference is within the noise, or is neither good nor bad.
    Same,
    /// The figure is missing in one of the runs.
    Unknown,
}

/// One figure of two runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Compared {
    /// The name of the figure in `docs/metrics.md`.
    pub name: String,
    /// The unit of the figure.
    pub unit: Unit,
    /// The value in the first run.
    pub a: Option<f64>,
    /// The value in the second run.
    pub b: Option<f64>,
    /// The difference: b / a - 1, or b - a for shares. Null if a value is missing or a is 0.
    pub difference: Option<f64>,
    /// The largest difference that chance alone usually makes, in the unit of `difference`; null if unknown.
    pub noise: Option<f64>,
    /// The judgment.
    pub change: Change,
}

/// The comparison of two runs, figure by figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Comparison {
    /// The first run, with which the second is compared.
    pub a: RunId,
    /// The second run.
    pub b: RunId,
    /// A sentence: which run is faster, by how much, and which part of the step explains most of it.
    pub sentence: String,
    /// The reasons why the runs are not comparable: another world size, other bucket sizes, another sample unit.
    pub caveats: Vec<String>,
    /// The figures: step time, throughput, overlap, communication fraction, tail, efficiencies, wasted share.
    pub figures: Vec<Compared>,
    /// The step ledger: the mean of each part over ranks and steps, in nanoseconds.
    pub ledger: Vec<Compared>,
    /// The operators, ranges and kernels that take longer in one of the runs, per step and rank: the "compared rank" of a row is
    /// the second run. Empty unless both are imported from traces.
    pub traced: Vec<TraceRow>,
    /// The number of rows of `traced` that are left out because they differ less.
    pub traced_left_out: u64,
    /// The verdicts that only the first run has, as sentences.
    pub verdicts_gone: Vec<String>,
    /// The verdicts that only the second run has, as sentences.
    pub verdicts_new: Vec<String>,
    /// The kinds of memory that grow in the first run only, as sentences.
    pub memory_gone: Vec<String>,
    /// The kinds of memory that grow in the second run only, as sentences.
    pub memory_new: Vec<String>,
}
