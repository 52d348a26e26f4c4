//! A sweep of bucket caps (`paceline sweep`): a job that ran once or more with each cap. Which cap is best, and which are as good
//! within the scatter of the steps.

mod accuracy;

use wire::ids::RunId;
use wire::live::Part;
use wire::views::Report;

use crate::stats;

/// One run of a sweep, with one bucket cap.
#[derive(Clone, Debug, PartialEq)]
pub struct CapRun {
    pub cap_mib: f64,
    pub run: RunId,
    pub buckets: usize,
    pub seconds_per_step: f64,
    /// The 95th percentile of the steps.
    pub seconds_p95: f64,
    /// `None` if the job does not count its samples.
    pub samples_per_second: Option<f64>,
    /// The scatter by chance (95 %) of a mean over this number of steps, in seconds.
    pub noise: f64,
    /// The share of the step that is communication.
    pub communication_fraction: f64,
    /// The share of communication that the backward pass hides.
    pub overlap: f64,
    /// The communication that a step waits for.
    pub exposed_millis: f64,
    /// The accuracy that the job states; `None` if it states none, or the reason why it is unknown.
    pub accuracy: Result<Option<f64>, String>,
}

impl CapRun {
    /// Returns the figures of a run; `None` if it has no observed steps.
    #[must_use]
    pub fn new(cap_mib: f64, report: &Report) -> Option<Self> {
        Some(Self {
            cap_mib,
            run: report.run.clone(),
            buckets: report.buckets.len(),
            // Step times over all ranks overlap if ranks begin their steps at different times. Local step times add up
            // to the duration of the run.
            seconds_per_step: report.local_step_time_nanos.known()?.mean / 1e9,
            seconds_p95: report.local_step_time_nanos.known()?.p95 / 1e9,
            samples_per_second: report.throughput.value(),
            noise: noise(report)?,
            communication_fraction: report.communication_fraction.value()?,
            overlap: report.overlap_ratio.value()?,
            exposed_millis: report.mean_nanos(&[Part::ExposedWait, Part::ExposedTransfer])? / 1e6,
            accuracy: accuracy::stated(&report.attributes),
        })
    }

    #[must_use]
    pub fn known_accuracy(&self) -> Option<f64> {
        self.accuracy.as_ref().ok().copied().flatten()
    }
}

/// Returns two standard errors of the mean step, from the scatter of the steps.
fn noise(report: &Report) -> Option<f64> {
    let spread = report.local_step_time_nanos.known()?;
    Some(2.0 * spread.deviation() / (report.steps.max(1) as f64).sqrt() / 1e9)
}

/// Returns the median run of each cap, smallest cap first.
#[must_use]
pub fn medians(runs: &[CapRun]) -> Vec<&CapRun> {
    let mut caps: Vec<f64> = runs.iter().map(|run| run.cap_mib).collect();
    caps.sort_by(f64::total_cmp);
    caps.dedup();
    let median =
        |cap: f64| stats::middle(runs.iter().filter(|run| run.cap_mib == cap), |run| run.seconds_per_step);
    caps.into_iter().filter_map(median).collect()
}

/// The best cap of a sweep.
#[derive(Clone, Debug, PartialEq)]
pub struct Best<'a> {
    pub best: &'a CapRun,
    pub slowest: &'a CapRun,
    /// The runs whose steps are longer only by what chance explains.
    pub equally_good: Vec<&'a CapRun>,
}

impl<'a> Best<'a> {
    /// Compares the [`medians`]; `None` without any.
    #[must_use]
    pub fn find(medians: &[&'a CapRun]) -> Option<Self> {
        let by_time = |a: &&&CapRun, b: &&&CapRun| a.seconds_per_step.total_cmp(&b.seconds_per_step);
        let best = *medians.iter().min_by(by_time)?;
        let slowest = *medians.iter().max_by(by_time)?;
        let is_as_good = |run: &&CapRun| {
            run.cap_mib != best.cap_mib
                && run.seconds_per_step - best.seconds_per_step
                    < (run.noise.powi(2) + best.noise.powi(2)).sqrt()
        };
        Some(Self { best, slowest, equally_good: medians.iter().copied().filter(is_as_good).collect() })
    }

    /// Returns by which share the steps of the best run are shorter than those of the slowest.
    #[must_use]
    pub fn gain(&self) -> f64 {
        1.0 - self.best.seconds_per_step / self.slowest.seconds_per_step
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(cap_mib: f64, seconds_per_step: f64, noise: f64) -> CapRun {
        CapRun {
            cap_mib,
            run: RunId::new("r").unwrap(),
            buckets: 4,
            seconds_per_step,
            seconds_p95: seconds_per_step,
            samples_per_second: None,
            noise,
            communication_fraction: 0.5,
            overlap: 0.5,
            exposed_millis: 1.0,
            accuracy: Ok(None),
        }
    }

    #[test]
    fn the_best_cap_has_the_shortest_median_and_others_within_the_scatter_are_as_good() {
        // One disturbed run of the best cap does not count.
        let runs = [
            run(4.0, 0.9, 0.0),
            run(1.0, 0.5, 0.03),
            run(2.0, 0.54, 0.04),
            run(1.0, 5.0, 0.03),
            run(1.0, 0.4, 0.03),
            run(8.0, 0.56, 0.04),
        ];
        let medians = medians(&runs);
        let times: Vec<(f64, f64)> = medians.iter().map(|run| (run.cap_mib, run.seconds_per_step)).collect();
        assert_eq!(times, [(1.0, 0.5), (2.0, 0.54), (4.0, 0.9), (8.0, 0.56)]);
        let best = Best::find(&medians).unwrap();
        assert_eq!((best.best.cap_mib, best.slowest.cap_mib), (1.0, 4.0));
        assert_eq!(best.equally_good.iter().map(|run| run.cap_mib).collect::<Vec<_>>(), [2.0]);
        assert!((best.gain() - 4.0 / 9.0).abs() < 1e-12);
        assert_eq!(Best::find(&[]), None);
    }
}
