//! Measured scaling efficiency: the throughput per rank of a run against that of a run on fewer ranks.
//!
//! This module is the only place that computes the figure, so every view shows the same value. The baseline is the
//! completed run of the same name and the same batch per rank (weak scaling) on the fewest ranks; of several, the newest.
//! Without one, it is the same with the same total batch (strong scaling). A run with a verdict is the baseline only if
//! every such run has one: against a run that a fault slowed down, efficiency looks too high. The batch per rank is the
//! number that the job states with each step, never a product of averages.

use wire::ids::RunId;
use wire::views::{BaselineRun, Figure, Missing, Report, RunState, RunSummary, ScalingRule};

use crate::loss::{self, StepCosts};

/// The largest relative difference between two batches that count as the same. The last step of an epoch is
/// often shorter, and uneven shares differ by one sample.
const BATCH_TOLERANCE: f64 = 0.05;

/// The work of a run in one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// The samples of one rank.
    pub batch: f64,
    pub ranks: u32,
}

impl Work {
    /// Returns whether two runs have in common what a rule demands.
    #[must_use]
    pub fn follows(self, rule: ScalingRule, other: Self) -> bool {
        let shared = |work: Self| match rule {
            ScalingRule::Weak => work.batch,
            ScalingRule::Strong => work.batch * f64::from(work.ranks),
        };
        let (a, b) = (shared(self), shared(other));
        (a - b).abs() <= BATCH_TOLERANCE * a.max(b)
    }

    /// Returns the first rule that two runs follow; `None` if they have neither batch in common.
    #[must_use]
    pub fn rule(self, other: Self) -> Option<ScalingRule> {
        ScalingRule::ALL.into_iter().find(|rule| self.follows(*rule, other))
    }
}

/// Returns the measured efficiency E(N) = (throughput / N) / (baseline throughput / N0) of a run against a baseline, each
/// given as its throughput over all ranks and its number of ranks. For weak scaling, that is T(N0) /
/// T(N) with the step times T; for strong scaling, where a step has less work on more ranks, T(N0) N0 / (T(N) N).
#[must_use]
pub fn efficiency(own: (f64, u32), baseline: (f64, u32)) -> f64 {
    let per_rank = |(throughput, ranks): (f64, u32)| throughput / f64::from(ranks);
    per_rank(own) / per_rank(baseline)
}

/// Chooses the run that `own` is measured against out of `runs`.
///
/// # Errors
/// Returns an error if there is no such run.
pub fn choose<'a>(
    own: &Report,
    runs: impl Iterator<Item = &'a RunSummary>,
) -> Result<(&'a RunSummary, ScalingRule), Missing> {
    let is_smaller = |run: &&RunSummary| {
        run.name == own.name && run.state == RunState::Completed && run.ranks_expected < own.ranks
    };
    let smaller: Vec<&RunSummary> =
        runs.filter(is_smaller).filter(|run| run.throughput.is_some() && run.batch.is_some()).collect();
    let work = Work { batch: own.batch.value().ok_or(Missing::NoSamples)?, ranks: own.ranks };
    let rule = |run: &RunSummary| work.rule(Work { batch: run.batch?, ranks: run.ranks_expected });
    let same = smaller.iter().filter_map(|run| Some((*run, rule(run)?)));
    let chosen = same.min_by_key(|(run, rule)| {
        let is_strong = *rule == ScalingRule::Strong;
        (is_strong, run.worst.is_some(), run.ranks_expected, std::cmp::Reverse(run.started_unix_millis))
    });
    chosen.ok_or(if smaller.is_empty() { Missing::NoSmallerRun } else { Missing::OtherBatch })
}

/// The part of a run's report that other runs are measured against.
#[derive(Clone, Debug, PartialEq)]
pub struct Baseline {
    run: BaselineRun,
    costs: Option<StepCosts>,
}

impl Baseline {
    /// Extracts a `Baseline` from a report; `None` if the run has no throughput.
    #[must_use]
    pub fn from_report(report: &Report) -> Option<Self> {
        let throughput = report.throughput.value()?;
        let run = BaselineRun {
            run: report.run.clone(),
            ranks: report.ranks,
            throughput,
            has_verdict: !report.verdicts.is_empty(),
            rule: ScalingRule::default(),
        };
        Some(Self { run, costs: StepCosts::from_report(report) })
    }
}

/// Fills in the measured efficiency of `report` and the loss ledger against its baseline, or the reason why there is no
/// baseline. `find` returns the chosen run.
pub fn measure<'a>(
    report: &mut Report,
    runs: impl Iterator<Item = &'a RunSummary>,
    find: impl FnOnce(&RunId) -> Option<Baseline>,
) {
    report.baseline = None;
    let chosen = choose(report, runs).and_then(|(run, rule)| {
        let baseline = find(&run.run).ok_or(Missing::NoSmallerRun)?;
        Ok(Baseline { run: BaselineRun { rule, ..baseline.run }, ..baseline })
    });
    report.scaling_efficiency.measured =
        chosen.and_then(|baseline| measured_efficiency(report, baseline)).into();
}

/// Returns the measured efficiency against `baseline`, and fills in the baseline and the loss ledger against it.
fn measured_efficiency(report: &mut Report, baseline: Baseline) -> Result<f64, Missing> {
    let throughput = report.throughput.as_result().map_err(Missing::clone)?;
    let measured = efficiency((*throughput, report.ranks), (baseline.run.throughput, baseline.run.ranks));
    let costs = StepCosts::from_report(report).zip(baseline.costs);
    if let (Some((own, theirs)), Figure::Known(_)) = (costs, &report.loss_ledger) {
        report.loss_ledger = Figure::Known(loss::measured(&own, &theirs, measured));
    }
    report.baseline = Some(baseline.run);
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::fixtures;

    fn report(run: &str, ranks: u32) -> Report {
        Report { ranks, ..crate::fixtures::report(run) }
    }

    fn summary(run: &str, ranks: u32, batch: f64, started: u64) -> RunSummary {
        RunSummary {
            run: RunId::new(run).unwrap(),
            state: RunState::Completed,
            started_unix_millis: started,
            ranks_expected: ranks,
            throughput: Some(100.0),
            batch: Some(batch),
            ..fixtures::run_summary()
        }
    }

    fn chosen<'a>(own: &Report, runs: &'a [RunSummary]) -> Result<&'a str, Missing> {
        choose(own, runs.iter()).map(|(run, _)| run.run.as_str())
    }

    #[test]
    fn the_baseline_is_the_newest_completed_run_on_the_fewest_ranks_with_the_same_batch() {
        let own = Report { batch: Figure::Known(128.0), ..report("own", 4) };
        let mut runs = vec![
            summary("two", 2, 128.0, 3),
            summary("one-old", 1, 128.0, 1),
            summary("one-new", 1, 130.0, 2),
            summary("one-larger-batch", 1, 256.0, 9),
            summary("as-many", 4, 128.0, 9),
        ];
        assert_eq!(chosen(&own, &runs), Ok("one-new"));
        runs[2].state = RunState::Failed;
        assert_eq!(chosen(&own, &runs), Ok("one-old"));
        assert_eq!(chosen(&own, &runs[3..]), Err(Missing::OtherBatch));
        assert_eq!(chosen(&own, &runs[4..]), Err(Missing::NoSmallerRun));
        runs.iter_mut().for_each(|run| run.name = "another".into());
        assert_eq!(chosen(&own, &runs), Err(Missing::NoSmallerRun));
        assert_eq!(chosen(&report("own", 4), &runs), Err(Missing::NoSamples));
    }

    #[test]
    fn a_run_with_the_total_batch_is_the_baseline_if_none_has_the_batch_per_rank() {
        let own = Report { batch: Figure::Known(32.0), ..report("own", 4) };
        let runs = [
            summary("one-strong", 1, 128.0, 1),
            summary("two-strong", 2, 64.0, 9),
            summary("two-other", 2, 128.0, 9),
            summary("two-weak", 2, 32.0, 1),
        ];
        let rule =
            |runs: &[RunSummary]| choose(&own, runs.iter()).map(|(run, rule)| (run.run.to_string(), rule));
        assert_eq!(rule(&runs), Ok(("two-weak".into(), ScalingRule::Weak)));
        assert_eq!(rule(&runs[..3]), Ok(("one-strong".into(), ScalingRule::Strong)));
        assert_eq!(rule(&runs[2..3]), Err(Missing::OtherBatch));
    }

    #[test]
    fn measured_efficiency_is_the_ratio_of_throughputs_per_rank() {
        let single =
            Report { throughput: Figure::Known(1_000.0), batch: Figure::Known(128.0), ..report("one", 1) };
        let mut own =
            Report { throughput: Figure::Known(3_000.0), batch: Figure::Known(128.0), ..report("own", 4) };
        let runs = [RunSummary { throughput: single.throughput.value(), ..summary("one", 1, 128.0, 1) }];
        measure(&mut own, runs.iter(), |_| Baseline::from_report(&single));
        assert_eq!(own.scaling_efficiency.measured, Figure::Known(0.75));
        assert_eq!(own.baseline.as_ref().map(|baseline| baseline.run.as_str()), Some("one"));
        measure(&mut own, [].iter(), |_| None);
        assert_eq!(own.scaling_efficiency.measured, Missing::NoSmallerRun.into());
        assert_eq!(own.baseline, None);
    }
}
