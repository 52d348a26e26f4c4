//! A family of metrics as a row of a table: its name, its help text, its labels, and where its values come from.

use std::collections::BTreeMap;

use analysis::step::{CollectiveAnalysis, RankAnalysis, StepAnalysis};
use wire::device::DeviceFigure;
use wire::usage::Usage;
use wire::views::Report;

use super::RunValues;

/// A family of metrics of runs.
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    /// The labels after `run`.
    pub(super) labels: &'static [&'static str],
    pub(super) values: Values,
}

/// Values with their ranks.
pub(super) type ByRank = Vec<(usize, f64)>;

/// Receives a value with its labels.
pub(super) type Put<'a, T> = &'a mut dyn FnMut(&[&str], T);

/// Where the values of a family come from. Values come with their labels after `run`, or after `run` and `rank`.
pub(super) enum Values {
    /// A histogram over complete steps, in seconds. Its first bucket ends at `from`.
    StepTime { from: f64, value: fn(&StepAnalysis) -> f64 },
    /// A counter over complete steps.
    StepCount(fn(&StepAnalysis) -> f64),
    /// A counter of time over steps that were observed in full, by rank, in nanoseconds.
    RankTime(fn(&RankInStep<'_>, Put<'_, u64>)),
    /// A histogram over the collectives of steps that were observed in full, by bucket, in nanoseconds. Its first bucket ends
    /// at `from` seconds.
    BucketTime { from: f64, nanos: fn(&CollectiveAnalysis) -> f64 },
    /// A gauge. A missing figure has no series.
    Gauge(fn(&RunValues<'_>, &Report, Put<'_, Option<f64>>)),
    /// A counter of what others count. They may count from zero again, but a counter does not shrink.
    Total(fn(&RunValues<'_>, Put<'_, f64>)),
    /// A gauge of verdicts. What no verdict costs any more becomes 0, so that alerts on it resolve.
    Costs(fn(&Report) -> BTreeMap<Vec<String>, f64>),
    /// The state of the run, which a run that is over still has.
    State,
    /// A gauge by rank, or `None` if it stays as it is.
    Ranks(fn(&RunValues<'_>) -> Option<ByRank>),
    /// A gauge of ranks' devices: the figure times the factor.
    Device { figure: DeviceFigure, factor: f64 },
    /// A gauge of ranks' hosts.
    Host(Usage),
}

/// A rank in a step that was observed in full.
pub(super) struct RankInStep<'a> {
    pub(super) rank: &'a RankAnalysis,
    /// Whether it is known what communication the rank's compute hides.
    pub(super) is_overlap_known: bool,
}
