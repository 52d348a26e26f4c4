//! What a report says of figures that it cannot have.

use timing::clocks::ClockFit;
use wire::batch::Instrumentation;
use wire::clock::MonoNanos;
use wire::event::{BucketRecord, Function, Source, Span, SpanKind, StepRecord};
use wire::ids::{Bucket, Comm, Step};
use wire::live::Part;
use wire::views::{Cause, Culprit, Figure, GapKind};

use super::*;
use crate::fixtures::{self, facts};
use crate::loss::StepCosts;
use crate::records::{RankStep, StepRecords};
use crate::step::analyze;
use crate::verdict;

/// Analyzes a step of 100 us in which one collective runs for 40 us, of which nothing shows in `unclear` us whether the rank
/// computes.
fn with_unclear(unclear: i64) -> StepAnalysis {
    let (step, at) = (Step(5), |micros: i64| MonoNanos(micros * 1_000));
    let span = |kind, begin, end| Span { step, kind, begin: at(begin), end: at(end), cpu_nanos: 0 };
    let bucket = BucketRecord {
        step,
        comm: Comm(0),
        seq: Function::AllToAll.numbered(7),
        bucket: Bucket(0),
        bytes: 1_000,
        ready: at(60),
        launch: at(60),
        start: at(60),
        end: at(100),
        source: Source::DeviceEvent,
    };
    let spans = vec![
        span(SpanKind::Backward, 0, 70),
        span(SpanKind::Blocked, 70, 100),
        span(SpanKind::Unclear, 70, 70 + unclear),
    ];
    let record = StepRecord { step, begin: at(0), end: at(100), samples: 0, shadow: false };
    let rank = Some(Box::new(RankStep { record, spans, buckets: vec![bucket] }));
    let records = StepRecords { step, ranks: vec![rank.clone(), rank], absent: 0 };
    analyze(&records, &[Some(ClockFit::exact()), Some(ClockFit::exact())])
}

#[test]
fn figures_that_rest_on_an_assumption_are_missing_with_the_range_of_the_overlap() {
    let facts = RunFacts { instrumentation: Instrumentation::Nccl, ranks: 2, ..facts("r") };
    let known = report(&facts, &[with_unclear(0)]);
    assert_eq!(known.overlap_ratio, Figure::Known(0.25));
    assert!(known.groups[0].cost.exposed_nanos.is_some() && known.buckets[0].hidden_ratio.is_some());
    let report = report(&facts, &[with_unclear(20)]);
    let reason = report.overlap_ratio.reason().expect("the overlap is not known");
    assert_eq!(
        reason.to_string(),
        "the overlap is between 25 % and 75 %: nothing shows whether ranks compute while their all-to-alls run"
    );
    let efficiency = &report.scaling_efficiency.implied;
    for figure in [&report.tail_nanos, &report.communication_fraction, efficiency] {
        assert_eq!(figure.reason(), Some(reason));
    }
    let missing = [report.loss_ledger.reason(), report.what_if.reason()];
    assert_eq!(missing, [Some(reason); 2]);
    assert_eq!((report.groups[0].cost.exposed_nanos, report.buckets[0].hidden_ratio), (None, None));
    assert_eq!(StepCosts::from_report(&report), None);
    assert!(report.gaps.iter().any(|gap| gap.kind == GapKind::Overlap), "{:?}", report.gaps);
    assert_eq!(report.ledger[0].step_nanos, 100_000);
    let unknown = format!("How much of it is compute is not known: {reason}.");
    assert!(report.spent.contains(&unknown), "{}", report.spent);
    assert!(!known.spent.contains("is not known"), "{}", known.spent);
}

/// Fails if [`Report::missing`] leaves out a figure.
#[test]
fn every_missing_figure_is_listed_with_its_reason() {
    let report = fixtures::report("r");
    let json = serde_json::to_string(&report).unwrap();
    let in_json = json.matches(r#"{"missing":"#).count();
    // The reason for the lack of verdicts has no figure.
    assert_eq!(report.missing().len(), in_json + 1, "{json}");
    let reasons = report.missing();
    let reason = |name| reasons.iter().find(|(named, _)| *named == name).map(|(_, reason)| (*reason).clone());
    assert_eq!(reason("overlap"), Some(Missing::NoObservedStep));
    assert_eq!(reason("verdicts"), Some(Missing::TooFewSteps { observed: 0, needed: 20 }));
    let unmodified = RunFacts { instrumentation: Instrumentation::Nccl, ranks: 2, ..facts("r") };
    let report = super::report::<StepAnalysis>(&unmodified, &[]);
    assert_eq!(report.overlap_ratio, Missing::NoStepFound.into());
    assert_eq!(report.gaps.first().map(|gap| gap.kind), Some(GapKind::Phases));
}

#[test]
fn a_job_of_one_rank_has_the_verdicts_that_compare_no_ranks() {
    let alone = |slow: &dyn Fn(u64) -> Option<(u64, Part)>| {
        let mut steps = verdict::tests::run(200, |step, _| slow(step));
        steps.iter_mut().for_each(|step| step.ranks.truncate(1));
        super::report(&facts("alone"), &steps).verdicts.into_iter().next()
    };
    assert_eq!(alone(&|_| None), None);
    let input = alone(&|_| Some((10_000_000, Part::Input))).unwrap();
    assert_eq!((input.culprit, input.cause), (Some(Culprit::All), Cause::Input));
    assert!(
        input.sentence.starts_with("The only rank waits for its input, which costs 1"),
        "{}",
        input.sentence
    );
    assert!(input.evidence[0].starts_with("the input time is 1"), "{:?}", input.evidence);
    let stops = alone(&|step| (step % 20 == 7).then_some((300_000_000, Part::Other))).unwrap();
    assert!(
        stops.sentence.starts_with("The only rank stops every 20 steps: 300 ms each time"),
        "{}",
        stops.sentence
    );
    assert!(!stops.evidence.iter().any(|line| line.contains("others wait")), "{:?}", stops.evidence);
}
