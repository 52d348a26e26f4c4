//! Measured (weak) scaling efficiency: the throughput per rank of a run against that of a run on fewer ranks.
//!
//! This module is the only place that computes the figure, so every view shows the same value. The baseline is the
//! completed run of the same name and the same batch per rank on the fewest ranks; of several, the newest. The batch
//! per rank is the number that the job states with each step, never a product of averages.

use wire::ids::RunId;
use wire::views::{BaselineRun, Report, RunState, RunSummary};

use crate::loss::{self, StepCosts};

/// The largest relative difference between two batches per rank that count as the same. The last step of an epoch is
/// often shorter, and uneven shares differ by one sample.
const BATCH_TOLERANCE: f64 = 0.05;

/// Returns true if the ranks of both runs process equally many samples per step. Weak scaling is measured only between
/// such runs.
#[must_use]
pub fn is_same_batch(a: f64, b: f64) -> bool {
    (a - b).abs() <= BATCH_TOLERANCE * a.max(b)
}

/// Returns the measured efficiency E(N) = (throughput / N) / (baseline throughput / N0).
#[must_use]
pub fn efficiency(throughput: f64, ranks: u32, baseline: &BaselineRun) -> f64 {
    throughput / f64::from(ranks) / (baseline.throughput / f64::from(baseline.ranks))
}

/// Reasons why a run has no measured efficiency.
const NO_RUN: &str = "no finished run of the same name on fewer ranks to compare with";
const OTHER_BATCH: &str = "finished runs of the same name on fewer ranks have a different batch per rank: weak \
    scaling cannot be measured against them";
const NO_SAMPLES: &str = "the job does not count its samples";

/// Chooses the run that `own` is measured against out of `runs`.
///
/// # Errors
/// Returns an error if there is no such run: a phrase that says why.
pub fn choose<'a>(
    own: &Report,
    runs: impl Iterator<Item = &'a RunSummary>,
) -> Result<&'a RunSummary, &'static str> {
    let is_smaller = |run: &&RunSummary| {
        run.name == own.name && run.state == RunState::Completed && run.ranks_expected < own.ranks
    };
    let smaller: Vec<&RunSummary> =
        runs.filter(is_smaller).filter(|run| run.throughput.is_some() && run.batch.is_some()).collect();
    let batch = own.batch.ok_or(NO_SAMPLES)?;
    let same = smaller.iter().filter(|run| run.batch.is_some_and(|other| is_same_batch(batch, other)));
    let chosen = same.min_by_key(|run| (run.ranks_expected, std::cmp::Reverse(run.started_unix_millis)));
    chosen.copied().ok_or(if smaller.is_empty() { NO_RUN } else { OTHER_BATCH })
}

/// Fills in the measured efficiency of `report` and the loss ledger against its baseline, or the reason why there is no
/// baseline. `report_of` returns the report of the chosen run.
pub fn measure<'a>(
    report: &mut Report,
    runs: impl Iterator<Item = &'a RunSummary>,
    report_of: impl FnOnce(&RunId) -> Option<std::sync::Arc<Report>>,
) {
    const FIGURE: &str = "scaling_efficiency.measured";
    report.missing.remove(FIGURE);
    report.baseline = None;
    report.scaling_efficiency.measured = None;
    let chosen = choose(report, runs).and_then(|run| report_of(&run.run).ok_or(NO_RUN));
    match chosen.map(|baseline| against(report, &baseline)) {
        Ok(Some(())) => {}
        Ok(None) => drop(report.missing.insert(FIGURE.into(), NO_RUN.into())),
        Err(reason) => drop(report.missing.insert(FIGURE.into(), reason.into())),
    }
}

fn against(report: &mut Report, baseline: &Report) -> Option<()> {
    let run =
        BaselineRun { run: baseline.run.clone(), ranks: baseline.ranks, throughput: baseline.throughput? };
    let measured = efficiency(report.throughput?, report.ranks, &run);
    report.scaling_efficiency.measured = Some(measured);
    report.baseline = Some(run);
    let costs = StepCosts::from_report(report).zip(StepCosts::from_report(baseline));
    if let (Some((own, theirs)), Some(_)) = (costs, &report.loss_ledger) {
        report.loss_ledger = Some(loss::measured(&own, &theirs, measured));
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{self, RunFacts};

    fn report(run: &str, ranks: u32) -> Report {
        let facts = RunFacts {
            run: RunId::new(run).unwrap(),
            name: "job".into(),
            state: RunState::Completed,
            ranks,
            sample_unit: "tokens".into(),
            instrumentation: wire::batch::Instrumentation::Reducer,
            fits: Vec::new(),
            drops: Vec::new(),
            hang: None,
            failure: None,
            clock_samples: Vec::new(),
            hosts: Vec::new(),
            bursts: Vec::new(),
            notable_share: crate::verdict::NOTABLE_SHARE,
            hidden_steps: Vec::new(),
        };
        report::report::<crate::step::StepAnalysis>(&facts, &[])
    }

    fn summary(run: &str, ranks: u32, batch: f64, started: u64) -> RunSummary {
        RunSummary {
            run: RunId::new(run).unwrap(),
            name: "job".into(),
            state: RunState::Completed,
            started_unix_millis: started,
            last_seen_unix_millis: started,
            ranks_expected: ranks,
            ranks_reporting: ranks,
            steps: 100,
            last_step: Some(99),
            step_time_nanos: Some(1),
            throughput: Some(100.0),
            batch: Some(batch),
            sample_unit: "tokens".into(),
            overlap_ratio: None,
            efficiency_implied: None,
            verdict: None,
            hang: None,
        }
    }

    fn chosen<'a>(own: &Report, runs: &'a [RunSummary]) -> Result<&'a str, &'static str> {
        choose(own, runs.iter()).map(|run| run.run.as_str())
    }

    #[test]
    fn the_baseline_is_the_newest_completed_run_on_the_fewest_ranks_with_the_same_batch() {
        let own = Report { batch: Some(128.0), ..report("own", 4) };
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
        assert_eq!(chosen(&own, &runs[3..]), Err(OTHER_BATCH));
        assert_eq!(chosen(&own, &runs[4..]), Err(NO_RUN));
        runs.iter_mut().for_each(|run| run.name = "another".into());
        assert_eq!(chosen(&own, &runs), Err(NO_RUN));
        assert_eq!(chosen(&Report { batch: None, ..own }, &runs), Err(NO_SAMPLES));
    }

    #[test]
    fn measured_efficiency_is_the_ratio_of_throughputs_per_rank() {
        let one = Report { throughput: Some(1_000.0), batch: Some(128.0), ..report("one", 1) };
        let mut own = Report { throughput: Some(3_000.0), batch: Some(128.0), ..report("own", 4) };
        let runs = [RunSummary { throughput: one.throughput, ..summary("one", 1, 128.0, 1) }];
        measure(&mut own, runs.iter(), |_| Some(std::sync::Arc::new(one)));
        assert_eq!(own.scaling_efficiency.measured, Some(0.75));
        assert_eq!(own.baseline.as_ref().map(|baseline| baseline.run.as_str()), Some("one"));
        assert!(!own.missing.contains_key("scaling_efficiency.measured"));
        measure(&mut own, [].iter(), |_| None);
        assert_eq!((own.scaling_efficiency.measured, own.baseline), (None, None));
        assert_eq!(own.missing["scaling_efficiency.measured"], NO_RUN);
    }
}
