//! What something costs in a step: one statistic for verdicts and what-ifs, so that both give one figure.

use crate::stats;
use crate::step::StepAnalysis;

/// Of the savings, this share is left out at either end: a step that the machine spoilt for some other reason says
/// nothing about a fault.
const TRIM: f64 = 0.1;

/// What fixing something would save in a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cost {
    /// In nanoseconds; negative where it would lengthen the step.
    pub(crate) nanos: f64,
    /// As a share of the step time.
    pub(crate) share: f64,
}

impl Cost {
    /// From the saving in each of `steps`, in nanoseconds and in their order. `None` without steps.
    pub(crate) fn of(steps: &[&StepAnalysis], savings: impl Iterator<Item = f64>) -> Option<Self> {
        let nanos = stats::trimmed_mean(savings, TRIM)?;
        let period = stats::trimmed_mean(steps.iter().map(|step| step.period_nanos() as f64), TRIM)?;
        Some(Self { nanos, share: if period > 0.0 { nanos / period } else { 0.0 } })
    }
}
