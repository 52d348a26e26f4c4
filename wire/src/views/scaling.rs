//! The scaling of a job: measured over its runs, and predicted from its model.

use serde::{Deserialize, Serialize};

use super::{AlphaBeta, Missing, ScalingRule};
use crate::ids::RunId;

/// One run in the scaling view.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ScalingPoint {
    /// The run.
    pub run: RunId,
    /// The world size of the run.
    pub ranks: u32,
    /// Samples per second over all ranks.
    pub throughput: f64,
    /// The mean time from one step to the next, in nanoseconds.
    pub step_nanos: f64,
    /// The number of samples of one rank in one step; null if the job does not count them.
    pub batch: Option<f64>,
    /// The measured scaling efficiency against the baseline. 1 for the baseline itself; null for runs whose batch differs
    /// from the baseline's by more than 5 %: the batch per rank or the total batch, by [`Scaling::rule`].
    pub measured: Option<f64>,
    /// The implied efficiency.
    pub implied: Option<f64>,
    /// The arrival of the run's first batch, in milliseconds since the Unix epoch.
    pub started_unix_millis: u64,
    /// True if the run has a verdict. Efficiency against it looks too high.
    pub has_verdict: bool,
}

/// The predicted step on K ranks, with the batch per rank unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ScalingPrediction {
    /// The number of ranks, K.
    pub ranks: u32,
    /// The predicted step time, in nanoseconds.
    pub step_nanos: f64,
    /// The weak scaling efficiency against one rank: predicted step on one rank / `step_nanos`; at most 1.
    pub efficiency: f64,
    /// The lower end of the error band.
    pub efficiency_low: f64,
    /// The upper end of the error band.
    pub efficiency_high: f64,
}

/// The predicted step with another bucket cap.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CapPrediction {
    /// The bucket cap, in bytes.
    pub cap_bytes: u64,
    /// The predicted step time, in nanoseconds.
    pub step_nanos: f64,
    /// The predicted exposed transfer, in nanoseconds.
    pub exposed_nanos: f64,
}

/// The scaling of a job: `GET /api/v1/runs/{run}/scaling`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Scaling {
    /// The run that the predictions start from.
    pub run: RunId,
    /// The name that the runs share.
    pub name: String,
    /// The world size of the run.
    pub ranks: u32,
    /// The unit of a sample.
    pub sample_unit: String,
    /// The baseline of measured efficiency: the one asked for, or [`super::Report::baseline`], or this run if it has no
    /// baseline; null if no other run can be measured against it.
    pub baseline: Option<RunId>,
    /// What this run and the baseline have in common; null without a baseline.
    pub rule: Option<ScalingRule>,
    /// The runs of this name with a known throughput, by world size, and from newest to oldest within one size.
    pub points: Vec<ScalingPoint>,
    /// The latency-bandwidth model.
    pub comm_model: Option<AlphaBeta>,
    /// Predictions for 1, 2, 4, ... 16,384 ranks and for the run's own world size; empty without a model.
    pub predictions: Vec<ScalingPrediction>,
    /// The relative error of the model at the run's own world size: (predicted - measured) / measured.
    pub model_error: Option<f64>,
    /// The assumptions of the predictions, one sentence each.
    pub assumptions: Vec<String>,
    /// The predicted step time by bucket cap, smallest cap first; empty without a model.
    pub caps: Vec<CapPrediction>,
    /// The best cap in one sentence, if another cap is predicted to be better.
    pub cap_advice: Option<String>,
    /// The reason why there are no predictions.
    pub missing: Option<Missing>,
}

/// What a prediction changes in a run: a what-if of the latency-bandwidth model. The default changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema, utoipa::IntoParams))]
pub struct Scenario {
    /// The number of ranks, with the batch per rank unchanged; that of the run if absent.
    pub ranks: Option<u32>,
    /// The bandwidth of all links, as a multiple of the measured one.
    pub bandwidth: f64,
    /// The bandwidth of one node's link, as a share of that of the others: above 0, at most 1.
    pub link: f64,
    /// The latency of a collective, as a multiple of the measured one.
    pub latency: f64,
    /// The compression ratio of gradients: their bytes / the bytes that are sent; at least 1.
    pub compression: f64,
    /// The bucket cap, in MiB; buckets as they are if absent.
    pub cap_mib: Option<f64>,
}

impl Default for Scenario {
    fn default() -> Self {
        Self { ranks: None, bandwidth: 1.0, link: 1.0, latency: 1.0, compression: 1.0, cap_mib: None }
    }
}

/// A predicted figure, with its error band.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Predicted {
    /// The figure.
    pub value: f64,
    /// The lower end of the band.
    pub low: f64,
    /// The upper end of the band.
    pub high: f64,
}

/// The predicted step of a [`Scenario`]: `GET /api/v1/runs/{run}/what-if`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ScenarioPrediction {
    /// What was changed.
    pub scenario: Scenario,
    /// The number of ranks.
    pub ranks: u32,
    /// The predicted step time, in nanoseconds.
    pub step_nanos: Predicted,
    /// The step time that the model gives for the run as it is, in nanoseconds.
    pub now_nanos: f64,
    /// The samples per second over all ranks; null if the job does not count its samples.
    pub throughput: Option<Predicted>,
    /// The weak scaling efficiency against one rank, 0 to 1.
    pub efficiency: Predicted,
    /// The prediction in one sentence.
    pub sentence: String,
    /// The assumptions of what was changed, one sentence each.
    pub assumptions: Vec<String>,
}
