//! Tests of a run's series, from its first step to the time after its end.

use std::time::Duration;

use analysis::step::CollectiveAnalysis;
use prometheus::core::Collector as _;
use wire::batch::{Batch, Bye, Note};
use wire::clock::{MonoNanos, ServerNanos};
use wire::event::{Event, StepRecord};
use wire::fixtures;
use wire::ids::{BatchSeq, Step};

use super::row::Metric;
use super::*;
use crate::state::run::Run;
use crate::state::snapshot::RunSnapshot;

const NOW: ServerNanos = ServerNanos(1_790_000_000_000_000_000);

fn batch(seq: u64, notes: Vec<Note>) -> Batch {
    let step =
        StepRecord { step: Step(seq), begin: MonoNanos(0), end: MonoNanos(5), samples: 1, shadow: false };
    Batch { seq: BatchSeq(seq), notes, events: vec![Event::Step(step)], ..fixtures::batch() }
}

/// Sets the gauges as the hub does.
fn observe(metrics: &Metrics, run: &Run) {
    let report = Arc::new(run.report(usize::MAX, NOW));
    let shown = RunSnapshot {
        summary: run.summary(&report, NOW),
        report: Some(report),
        baseline: None,
        steps: Arc::new(run.steps().newest(10)),
        first_step_of_attempt: 0,
    };
    metrics.observe_run(&run.values(&shown, NOW));
}

/// Applies a batch and updates the metrics as the hub does. Returns the metrics as text.
fn apply(metrics: &Metrics, run: &mut Run, batch: Batch) -> String {
    let closed = run.apply(batch, NOW).expect("the batch is new");
    metrics.observe_steps(run.id(), run.world_size(), &closed);
    observe(metrics, run);
    metrics.encode().expect("the metrics can be encoded")
}

fn bye() -> Vec<Note> {
    vec![Note::Bye(Bye { completed: true, reason: String::new() })]
}

#[test]
fn a_run_that_is_over_has_no_gauges_but_its_state_and_later_no_series() {
    let metrics = Metrics::new();
    let mut run = Run::new(RunId::new("r").expect("the run id is valid"), 1, NOW);
    let text = apply(&metrics, &mut run, batch(0, Vec::new()));
    assert!(text.contains("paceline_ranks_expected{run=\"r\"} 1"), "{text}");
    assert!(text.contains("paceline_rank_reporting{rank=\"0\",run=\"r\"} 1"), "{text}");
    assert!(text.contains("paceline_run_state{run=\"r\",state=\"running\"} 1"), "{text}");
    assert!(text.contains("paceline_records_dropped_total{rank=\"0\",reason=\"ring_full\",run=\"r\"} 0"));

    let text = apply(&metrics, &mut run, batch(1, bye()));
    assert!(text.contains("paceline_run_state{run=\"r\",state=\"completed\"} 1"), "{text}");
    assert!(text.contains("paceline_run_state{run=\"r\",state=\"running\"} 0"), "{text}");
    assert!(text.contains("paceline_step_seconds_count{run=\"r\"} 2"), "{text}");
    let has_series = |row: &&Row| match &row.metric {
        Metric::Gauge(gauge) => !gauge.collect()[0].get_metric().is_empty(),
        Metric::Ranks(gauge) => !gauge.family().collect()[0].get_metric().is_empty(),
        Metric::Counter(_) | Metric::Histogram(_) => false,
    };
    let gauges: Vec<&str> = metrics.rows.iter().filter(has_series).map(|row| row.family.name).collect();
    assert_eq!(gauges, ["paceline_run_state"]);

    let later = Instant::now() + series::KEEP - Duration::from_secs(60);
    metrics.forget_ended(later);
    assert!(metrics.encode().expect("the metrics can be encoded").contains("run=\"r\""));
    metrics.forget_ended(later + Duration::from_secs(120));
    assert!(!metrics.encode().expect("the metrics can be encoded").contains("run=\"r\""));
}

#[test]
fn a_run_that_was_over_before_the_server_started_has_no_series() {
    let metrics = Metrics::new();
    let mut run = Run::new(RunId::new("r").expect("the run id is valid"), 1, NOW);
    run.apply(batch(0, bye()), NOW).expect("the batch is new");
    observe(&metrics, &run);
    assert!(!metrics.encode().expect("the metrics can be encoded").contains("run=\"r\""));
}

#[test]
fn a_sampled_step_stands_for_the_steps_since_the_one_before_it() {
    let metrics = Metrics::new();
    let mut run = Run::new(RunId::new("r").expect("the run id is valid"), 1, NOW);
    let mut observe = |seq: u64, in_full: bool| {
        let mut step =
            StepAnalysis::clone(&run.apply(batch(seq, Vec::new()), NOW).expect("the batch is new")[0]);
        if !in_full {
            step.collectives.push(enqueued());
        }
        metrics.observe_steps(run.id(), 1, &[Arc::new(step)]);
    };
    observe(0, true);
    (1..4).for_each(|seq| observe(seq, false));
    let Metric::Counter(phases) = metric(&metrics, "paceline_phase_seconds_total") else {
        panic!("a counter")
    };
    let other = || phases.with_label_values(&["r", "0", "other"]).get() * 1e9;
    assert_eq!(other().round(), 5.0, "a step of 5 ns");
    observe(4, true);
    assert_eq!(other().round(), 25.0, "five steps of 5 ns");
    let Metric::Histogram(steps) = metric(&metrics, "paceline_step_seconds") else { panic!("a histogram") };
    assert_eq!(steps.with_label_values(&["r"]).get_sample_count(), 5);
}

fn metric<'a>(metrics: &'a Metrics, name: &str) -> &'a Metric {
    &metrics.rows.iter().find(|row| row.family.name == name).expect("a family of this name").metric
}

/// A collective of which only the enqueueing was recorded.
fn enqueued() -> CollectiveAnalysis {
    CollectiveAnalysis { only_enqueued: true, ..analysis::fixtures::collective() }
}
