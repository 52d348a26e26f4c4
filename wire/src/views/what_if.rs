//! The what-if (`docs/metrics.md`, "What-if"): the step as it would be with one thing fixed. Also the loss ledger:
//! where efficiency is lost.

use serde::{Deserialize, Serialize};

use super::Figure;
use crate::ids::{Bucket, Rank};

/// The thing that a what-if fixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Fix {
    /// A rank: its compute segments at the mean of the other ranks that are placed like it, its begin and its transfers no
    /// later than the median rank's.
    Rank(Rank),
    /// A phase: its mean over the ranks that are placed alike, on every rank.
    Phase(Phase),
    /// A bucket: its transfer at 0. This is the upper limit of what a better network could save.
    Bucket(Bucket),
}

/// A phase of a step that can differ between ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Waiting for input or making it, and copying it to the device.
    Input,
    /// The forward pass and the loss.
    Forward,
    /// The backward pass.
    Backward,
    /// The parameter update.
    Optimizer,
    /// The time in no phase.
    Other,
}

impl Phase {
    /// All phases, in the order of a step.
    pub const ALL: [Self; 5] = [Self::Input, Self::Forward, Self::Backward, Self::Optimizer, Self::Other];

    /// Returns the name used in reports.
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

/// The saving from one fix.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Saving {
    /// The thing that is fixed.
    pub fix: Fix,
    /// The saving per step, in nanoseconds: the mean over the replayed steps without the lowest and the highest tenth.
    /// The cost of a verdict is the same figure over the steps that have the fault.
    pub nanos_per_step: f64,
    /// The saving as a share of the period ([`super::Report::period_nanos`] over these steps), 0 to 1.
    pub share: f64,
}

/// The what-if of a run: a replay of the observed steps with durations replaced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WhatIf {
    /// The number of steps whose simulated time is within 5 % of the measured time. The answers rest on these steps.
    pub steps: u64,
    /// The number of steps whose simulated time is further off. They are left out.
    pub withheld_steps: u64,
    /// The simulation error: the median over all replayed steps of |simulated - measured| / measured.
    pub simulation_error: f64,
    /// The slowdown: the step over the step with every rank like those placed like it. At least 1.
    pub slowdown: f64,
    /// The wasted share: 1 - 1/slowdown. No saving from a rank, a phase or ranks that are slow together exceeds it; one from
    /// a bucket can, because a transfer between equal ranks takes time too.
    pub wasted_share: f64,
    /// The even slowdown S = T / `T_ideal`, at least 1: the step over the step with every compute segment at its mean and
    /// every transfer at its median, over all ranks. Source: Lin et al., 2025 (`docs/metrics.md`, "What-if").
    pub even_slowdown: f64,
    /// `M_W` = (T - `T_W`) / (T - `T_ideal`), 0 to 1: the share of the even slowdown that goes away if only the slowest 3 % of
    /// the ranks, at least one, are even. They are the slowest of each step. Missing if the even slowdown is below 1.01.
    pub slowest_share: Figure<f64>,
    /// The 16 largest savings from fixing a rank, largest first.
    pub ranks: Vec<Saving>,
    /// The savings from evening out a phase over ranks, in the order of a step.
    pub phases: Vec<Saving>,
    /// The savings from transfers that take no time, by bucket.
    pub buckets: Vec<Saving>,
}

/// The efficiency that a loss ledger splits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum EfficiencyKind {
    /// Measured efficiency, against a baseline run.
    Measured,
    /// Implied efficiency: the mean over ranks of compute time / period.
    Implied,
}

/// A part of the loss ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// Compute that takes longer than in the baseline run. Always 0 for implied efficiency.
    ComputeDrift,
    /// The part of the exposed wait that steady differences in local work explain.
    Imbalance,
    /// The rest of the exposed wait: waiting for whichever rank happens to be last.
    ExposedWait,
    /// The exposed transfer.
    ExposedTransfer,
    /// Input, and its copies to the device.
    Input,
    /// Pauses: checkpoints, evaluations, garbage collections and compilations.
    Pause,
    /// The time in which the device ran nothing and nothing recorded says why. Few runs record it.
    Idle,
    /// The time in no phase.
    Other,
}

impl Loss {
    /// All losses, in the order of the chart from ideal to measured.
    pub const ALL: [Self; 8] = [
        Self::ComputeDrift,
        Self::Imbalance,
        Self::ExposedWait,
        Self::ExposedTransfer,
        Self::Input,
        Self::Pause,
        Self::Idle,
        Self::Other,
    ];

    /// Returns the name used in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ComputeDrift => "compute drift",
            Self::Imbalance => "imbalance",
            Self::ExposedWait => "exposed wait",
            Self::ExposedTransfer => "exposed transfer",
            Self::Input => "input",
            Self::Pause => "pause",
            Self::Idle => "device idle",
            Self::Other => "other",
        }
    }
}

/// The loss ledger: 1 - E, split into losses. `1 = efficiency + sum of losses + residual`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LossLedger {
    /// The kind of efficiency.
    pub kind: EfficiencyKind,
    /// E, 0 to 1. Measured efficiency may exceed 1.
    pub efficiency: f64,
    /// Each loss as a share of the step, in the order of [`Loss::ALL`]. [`Loss::Idle`] is there only if it is recorded.
    pub losses: Vec<(Loss, f64)>,
    /// The share that the losses do not explain: time between the ranks' steps, and clock error.
    pub residual: f64,
}
