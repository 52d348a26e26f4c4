//! Two runs side by side: what `paceline compare` prints and the comparison view shows.

use serde::{Deserialize, Serialize};

use crate::ids::RunId;

/// What a compared figure is measured in.
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

/// Whether a change is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// The second run is better by more than the noise.
    Better,
    /// The second run is worse by more than the noise.
    Worse,
    /// Within the noise, or neither good nor bad.
    Same,
    /// One of the two runs has no such figure.
    Unknown,
}

/// One figure of two runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Compared {
    /// METRICS.md's name of the figure.
    pub name: String,
    /// What it is measured in.
    pub unit: Unit,
    /// In the first run.
    pub a: Option<f64>,
    /// In the second run.
    pub b: Option<f64>,
    /// b / a - 1; for shares b - a. Null where one is missing or a is 0.
    pub difference: Option<f64>,
    /// How large a difference chance alone makes, in the terms of `difference`; null where it is not known.
    pub noise: Option<f64>,
    /// The judgement.
    pub change: Change,
}

/// Two runs, figure by figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Comparison {
    /// The first run: what is compared with.
    pub a: RunId,
    /// The second run.
    pub b: RunId,
    /// One sentence: which is faster, by how much, and which part of the step explains most of it.
    pub sentence: String,
    /// Why the two are not like for like: other world size, other bucket sizes, other sample unit.
    pub caveats: Vec<String>,
    /// Step time, throughput, overlap, communication fraction, tail, efficiencies, wasted share.
    pub figures: Vec<Compared>,
    /// The step ledger: each part's mean per step over ranks, in nanoseconds.
    pub ledger: Vec<Compared>,
    /// Verdicts of the first run that the second has no more, as sentences.
    pub verdicts_gone: Vec<String>,
    /// Verdicts that only the second run has.
    pub verdicts_new: Vec<String>,
}
