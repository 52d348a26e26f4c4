//! The scaling efficiency that a plan counts on: predicted by the model of a run, or assumed.

use wire::views::scaling::ScalingPrediction;
use wire::views::{Missing, Report};

use crate::scaling::Model;
use crate::step::StepAnalysis;

/// The scaling efficiency on a number of ranks, and where it comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Efficiency {
    /// Predicted by the model of a run.
    Predicted(ScalingPrediction),
    /// The usual one of large jobs, 0 to 1.
    Usual(f64),
}

impl Efficiency {
    /// Returns the efficiency to assume without a run: 1 / (1 + 0.04 sqrt(ranks)), as large jobs often report.
    #[must_use]
    pub fn usual(ranks: u32) -> Self {
        Self::Usual(1.0 / (1.0 + 0.04 * f64::from(ranks).sqrt()))
    }

    /// Returns the efficiency on `ranks` ranks, from predictions for some world sizes, fewest ranks first. The next larger one gives
    /// the more careful estimate.
    #[must_use]
    pub fn from_predictions(predictions: &[ScalingPrediction], ranks: u32) -> Self {
        let known = predictions.iter().find(|prediction| prediction.ranks >= ranks).copied();
        known.map_or_else(|| Self::usual(ranks), Self::Predicted)
    }

    /// Returns the efficiency, 0 to 1.
    #[must_use]
    pub fn value(self) -> f64 {
        match self {
            Self::Predicted(prediction) => prediction.efficiency,
            Self::Usual(value) => value,
        }
    }

    /// Returns the band that it lies in; `None` if it is assumed.
    #[must_use]
    pub fn range(self) -> Option<(f64, f64)> {
        match self {
            Self::Predicted(prediction) => Some((prediction.efficiency_low, prediction.efficiency_high)),
            Self::Usual(_) => None,
        }
    }
}

/// What a run says about its job on other numbers of ranks.
pub struct Experience {
    model: Model,
    /// The MFU of one rank alone; `None` if the run has no MFU.
    pub mfu: Option<f64>,
}

impl Experience {
    /// # Errors
    /// Returns an error if the run cannot be modeled.
    pub fn from_report(report: &Report, steps: &[&StepAnalysis]) -> Result<Self, Missing> {
        let model = Model::from_report(report, steps)?;
        // The MFU of the run includes the losses at its own world size, which the efficiency counts.
        let alone = model.efficiency(report.ranks);
        let mfu = report.flops_utilization.model.value().map(|mfu| (mfu / alone).min(1.0));
        Ok(Self { model, mfu })
    }

    /// Returns the predicted efficiency on `ranks` ranks.
    #[must_use]
    pub fn efficiency(&self, ranks: u32) -> Efficiency {
        Efficiency::Predicted(self.model.predict(ranks))
    }

    /// Returns how far the step of the model is off the measured step, as a share of it.
    #[must_use]
    pub fn error(&self) -> f64 {
        self.model.error()
    }
}
