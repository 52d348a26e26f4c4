//! How a job scales: measured over its runs, predicted from its model.

use serde::{Deserialize, Serialize};

use super::AlphaBeta;
use crate::ids::RunId;

/// One run of the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ScalingPoint {
    /// The run.
    pub run: RunId,
    /// Its world size.
    pub ranks: u32,
    /// Samples per second over all ranks.
    pub throughput: f64,
    /// Mean time from one step to the next, in nanoseconds.
    pub step_ns: f64,
    /// Samples of one rank in one step; null when the job does not count them.
    pub batch: Option<f64>,
    /// Measured (weak) scaling efficiency against the baseline; 1 for the baseline itself, null for runs
    /// whose batch per rank differs from this run's by more than 5 %.
    pub measured: Option<f64>,
    /// Implied efficiency.
    pub implied: Option<f64>,
    /// When its first batch came, in milliseconds since the Unix epoch.
    pub started_unix_millis: u64,
}

/// What a step is predicted to be on K ranks, with the per-rank batch unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ScalingPrediction {
    /// K.
    pub ranks: u32,
    /// Step time, in nanoseconds.
    pub step_ns: f64,
    /// Weak scaling efficiency against one rank: predicted step on one rank / `step_ns`; at most 1.
    pub efficiency: f64,
    /// Lower end of the error band.
    pub efficiency_low: f64,
    /// Upper end of the error band.
    pub efficiency_high: f64,
}

/// What a step is predicted to be with buckets of another cap.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CapPrediction {
    /// The cap, in bytes.
    pub cap_bytes: u64,
    /// Step time, in nanoseconds.
    pub step_ns: f64,
    /// Exposed transfer, in nanoseconds.
    pub exposed_ns: f64,
}

/// What the Scaling view shows: `GET /api/v1/runs/{run}/scaling`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Scaling {
    /// The run the predictions are made from.
    pub run: RunId,
    /// The name its runs share.
    pub name: String,
    /// Its world size.
    pub ranks: u32,
    /// What a sample is.
    pub sample_unit: String,
    /// The run that measured efficiency is against: [`super::Report::baseline`], or the run itself without one.
    pub baseline: Option<RunId>,
    /// All runs of the name with a throughput, by world size, newest first within one.
    pub points: Vec<ScalingPoint>,
    /// The latency-bandwidth model.
    pub comm_model: Option<AlphaBeta>,
    /// Predictions for 1, 2, 4, ... 16,384 ranks and for the run's own world size; empty when there is no
    /// model.
    pub predictions: Vec<ScalingPrediction>,
    /// Relative error of the model at the run's own world size: (predicted - measured) / measured.
    pub model_error: Option<f64>,
    /// What the predictions assume, one sentence each.
    pub assumptions: Vec<String>,
    /// Predicted step time by bucket cap, smallest cap first; empty when there is no model.
    pub caps: Vec<CapPrediction>,
    /// The best cap in one sentence, when another is predicted to be better.
    pub cap_advice: Option<String>,
    /// Why there are no predictions.
    pub missing: Option<String>,
}
