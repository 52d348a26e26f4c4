//! The cost of something per step. Verdicts and what-ifs use the same statistic, so they give the same figure.

use crate::stats;
use crate::step::StepAnalysis;

/// The share of the savings that is left out at either end. A step that the machine disturbed for another reason says
/// nothing about a fault.
const TRIM: f64 = 0.1;

/// The time that a fix would save per step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cost {
    /// The saving in nanoseconds; negative if the fix would lengthen the step.
    pub(crate) nanos: f64,
    /// The saving as a share of the step time.
    pub(crate) share: f64,
}

impl Cost {
    /// Averages the saving in each of `steps`, given in nanoseconds and in their order. Returns `None` without steps.
    pub(crate) fn new(steps: &[&StepAnalysis], savings: impl Iterator<Item = f64>) -> Option<Self> {
        let nanos = stats::trimmed_mean(savings, TRIM)?;
        let period = stats::trimmed_mean(steps.iter().map(|step| step.period_nanos() as f64), TRIM)?;
        Some(Self { nanos, share: if period > 0.0 { nanos / period } else { 0.0 } })
    }
}
