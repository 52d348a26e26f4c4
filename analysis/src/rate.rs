//! Quantities per second over all ranks of a run.

use crate::step::StepAnalysis;

/// Returns the samples per second over all ranks; `None` if the job counts no samples. With aligned clocks, the time
/// runs from the end of the first step to the end of the last one, so time between steps counts. Without them, it is
/// the sum of the local step times.
#[must_use]
pub fn throughput(steps: &[&StepAnalysis]) -> Option<f64> {
    per_second(steps, |_, samples| samples as f64)
}

/// Returns a quantity per second over all ranks, as [`throughput`] does for samples. `amount` gives how much of it some
/// samples of a rank are.
pub(crate) fn per_second(steps: &[&StepAnalysis], amount: impl Fn(usize, u64) -> f64) -> Option<f64> {
    let (first, rest) = steps.split_first()?;
    let last = rest.last()?;
    let all = rest.iter().flat_map(|step| step.present()).map(|(rank, step)| amount(rank, step.samples));
    let all: f64 = all.sum();
    let spanned = first.window.zip(last.window).map(|((_, from), (_, to))| to - from);
    // Steps that were not observed (shadow steps) took time too.
    let steps_between = (last.step.0 - first.step.0) as f64;
    let nanos = spanned.filter(|&nanos| nanos > 0).map_or_else(
        || rest.iter().map(|step| step.local_nanos as f64).sum::<f64>(),
        |nanos| nanos as f64 * rest.len() as f64 / steps_between,
    );
    (nanos > 0.0 && all > 0.0).then(|| all / nanos * 1e9)
}
