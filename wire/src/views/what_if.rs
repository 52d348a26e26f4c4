//! What a step would take if something were fixed (METRICS.md, "what-if"), and where efficiency goes ("loss
//! ledger").

use serde::{Deserialize, Serialize};

use crate::ids::{Bucket, Rank};

/// What is imagined fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Fix {
    /// This rank's compute segments at the mean of the other ranks', its begin and its transfers no later than
    /// the median rank's.
    Rank(Rank),
    /// This phase at its mean over ranks, on every rank.
    Phase(Phase),
    /// This bucket's transfer takes no time: the most that a better network could save on it.
    Bucket(Bucket),
}

/// A phase that can differ between ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Waiting for or making input, and copying it to the device.
    Input,
    /// Forward and the loss.
    Forward,
    /// Backward.
    Backward,
    /// Parameter update.
    Optimizer,
    /// Time in no phase.
    Other,
}

impl Phase {
    /// All phases, in the order of a step.
    pub const ALL: [Self; 5] = [Self::Input, Self::Forward, Self::Backward, Self::Optimizer, Self::Other];

    /// The name as reports write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Optimizer => "optimizer",
            Self::Other => "other",
        }
    }
}

/// What one fix would save.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Saving {
    /// What is fixed.
    pub fix: Fix,
    /// What a step would be shorter by: the mean over the replayed steps without the lowest and the highest tenth, in
    /// nanoseconds. The cost of a verdict is the same figure over the steps that have the fault.
    pub nanos_per_step: f64,
    /// The same as a share of the step time ([`super::Report::period_ns`] over these steps), 0 to 1.
    pub share: f64,
}

/// The replay of the observed steps with durations replaced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WhatIf {
    /// Steps replayed within 5 % of what was measured: the answers rest on these.
    pub steps: u64,
    /// Steps whose simulation was further off, and which were left out.
    pub withheld_steps: u64,
    /// Median of |simulated - measured| / measured over all replayed steps.
    pub simulation_error: f64,
    /// Why there is no answer: the simulation is off by more than 5 % in most steps. The fields below are
    /// then empty.
    pub withheld: Option<String>,
    /// S = T / `T_ideal`.
    pub slowdown: Option<f64>,
    /// 1 - 1/S.
    pub wasted_share: Option<f64>,
    /// Savings from fixing ranks, largest first; the 16 largest.
    pub ranks: Vec<Saving>,
    /// Savings from evening out a phase, in the order of a step.
    pub phases: Vec<Saving>,
    /// Savings from transfers that take no time, by bucket.
    pub buckets: Vec<Saving>,
}

/// Which efficiency a loss ledger splits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum EfficiencyKind {
    /// Against a baseline run.
    Measured,
    /// Mean over ranks of useful compute / T.
    Implied,
}

/// Where efficiency goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// Compute takes longer than in the baseline run. Always 0 for implied efficiency.
    ComputeDrift,
    /// Waiting for ranks whose own work is longer in the mean over steps.
    Imbalance,
    /// Waiting for whoever happened to be last.
    ExposedWait,
    /// Transfers that nothing hides.
    ExposedTransfer,
    /// Input and its copies to the device.
    Input,
    /// Time in no phase.
    Other,
}

impl Loss {
    /// All losses, in the order of the waterfall from ideal to measured.
    pub const ALL: [Self; 6] = [
        Self::ComputeDrift,
        Self::Imbalance,
        Self::ExposedWait,
        Self::ExposedTransfer,
        Self::Input,
        Self::Other,
    ];

    /// The name as reports write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ComputeDrift => "compute drift",
            Self::Imbalance => "imbalance",
            Self::ExposedWait => "exposed wait",
            Self::ExposedTransfer => "exposed transfer",
            Self::Input => "input",
            Self::Other => "other",
        }
    }
}

/// 1 - E, split. `1 = efficiency + sum of losses + residual`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LossLedger {
    /// Which efficiency.
    pub kind: EfficiencyKind,
    /// E, 0 to 1 (measured efficiency may lie above 1).
    pub efficiency: f64,
    /// Each loss as a share of the step, in the order of [`Loss::ALL`].
    pub losses: Vec<(Loss, f64)>,
    /// What the losses leave unexplained; time between the ranks' steps, and clock error.
    pub residual: f64,
}
