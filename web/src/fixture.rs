//! Runs and reports for tests of components.

use std::sync::Arc;

use analysis::fixtures;
use analysis::report::{RunFacts, report};
use analysis::step::StepAnalysis;
use leptos::prelude::*;
use wire::ids::RunId;
use wire::live::StepColumns;
use wire::views::{Cause, Confidence, Culprit, Report, RunState, RunSummary, Verdict, VerdictState};

use crate::live::{Live, RunView};

/// Returns a report of a run without observed steps.
pub fn empty_report() -> Report {
    let facts =
        RunFacts { name: "gpt".into(), state: RunState::Running, ranks: 4, ..fixtures::facts("gpt-7") };
    report::<StepAnalysis>(&facts, &[])
}

/// Returns a verdict on the input of rank 2.
pub fn verdict(state: VerdictState) -> Verdict {
    Verdict {
        state,
        cost_nanos_per_step: 14_000_000,
        cost_share: 0.28,
        affected_steps: 100,
        device_hours_per_day: Some(27.0),
        confidence: Confidence::High,
        sentence: "Rank 2 waits for its input, which costs 14 ms per step (28 % of step time).".into(),
        evidence: vec!["its input time is 14 ms longer than the mean of the other ranks".into()],
        example_step: Some(120),
        steps: (40, 139),
        ..Verdict::new(Culprit::Rank(2), Cause::Input)
    }
}

/// Returns the line of a run in the list.
pub fn summary(id: &str, name: &str, state: RunState, step_time_nanos: u64) -> RunSummary {
    RunSummary {
        run: RunId::new(id).expect("the id is valid"),
        name: name.into(),
        state,
        started_unix_millis: 1_760_000_000_000,
        last_seen_unix_millis: 1_760_000_060_000,
        steps: 200,
        last_step: Some(199),
        step_time_nanos: Some(step_time_nanos),
        throughput: Some(12_000.0),
        batch: Some(128.0),
        overlap_ratio: Some(0.5),
        efficiency_implied: Some(0.8),
        ..wire::fixtures::run_summary()
    }
}

/// Shows a report, as if it had arrived from the server.
pub fn show(live: Live, report: Report) {
    let summary = summary(report.run.as_str(), &report.name, report.state, 50_000_000);
    live.newest.set(Some(Arc::new(RunView { summary, report })));
}

/// Shows so many steps of two ranks, each with this number of samples.
pub fn show_steps(live: Live, count: usize, samples: u64) {
    let steps = StepColumns {
        reset: true,
        ranks: 2,
        step: (0..count as u64).collect(),
        ended_unix_nanos: vec![0; count],
        step_nanos: vec![5e7; count],
        samples: vec![samples; count],
        overlap: vec![0.5; count],
        parts: std::array::from_fn(|_| vec![1e6; count]),
        flags: vec![0; count],
    };
    live.steps.update_value(|shown| assert!(shown.apply(&steps)));
    live.drawn.update(|n| *n += 1);
}
