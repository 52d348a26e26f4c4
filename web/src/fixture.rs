//! Runs and reports for tests of components.

use std::sync::Arc;

use analysis::report::{RunFacts, report};
use analysis::step::StepAnalysis;
use leptos::prelude::*;
use wire::batch::Instrumentation;
use wire::ids::RunId;
use wire::live::StepColumns;
use wire::views::{Cause, Confidence, Culprit, Missing, Report, RunState, RunSummary, Verdict, VerdictState};

use crate::live::{Live, RunView};

/// Returns a report of a run without observed steps.
pub fn empty_report() -> Report {
    let facts = RunFacts {
        run: RunId::new("gpt-7").expect("the id is valid"),
        name: "gpt".into(),
        state: RunState::Running,
        ranks: 4,
        sample_unit: "tokens".into(),
        instrumentation: Instrumentation::Reducer,
        fits: Vec::new(),
        drops: Vec::new(),
        hang: None,
        failure: None,
        events: Vec::new(),
        placement: Vec::new(),
        device_states: Vec::new(),
        hosts: Vec::new(),
        summaries: Vec::new(),
        attributes: Vec::new(),
        device_memory: Vec::new(),
        bursts: Vec::new(),
        stacks: Vec::new(),
        long_steps: Vec::new(),
        span_lines: Vec::new(),
        work: Vec::new(),
        layouts: Vec::new(),
        other_layouts: Vec::new(),
        compared_traces: None,
        notable_share: 0.05,
        hidden_steps: Vec::new(),
        course: Vec::new(),
        start_waits: Vec::new(),
        has_all_steps: true,
        goodput: Err(Missing::NoObservedStep),
    };
    report::<StepAnalysis>(&facts, &[])
}

/// Returns a verdict on the input of rank 2.
pub fn verdict(state: VerdictState) -> Verdict {
    Verdict {
        culprit: Some(Culprit::Rank(2)),
        cause: Cause::Input,
        state,
        cost_nanos_per_step: 14_000_000,
        cost_share: 0.28,
        affected_steps: 100,
        device_hours_per_day: Some(27.0),
        confidence: Confidence::High,
        sentence: "Rank 2 waits for its input, which costs 14 ms per step (28 % of step time).".into(),
        evidence: vec!["its input time is 14 ms longer than the mean of the other ranks".into()],
        counter_evidence: Vec::new(),
        example_step: Some(120),
        persistence: None,
        steps: (40, 139),
        onset: None,
        recurrence: None,
        growth: None,
        code: None,
        advice: String::new(),
    }
}

/// Returns the line of a run in the list.
pub fn summary(id: &str, name: &str, state: RunState, step_time_nanos: u64) -> RunSummary {
    RunSummary {
        run: RunId::new(id).expect("the id is valid"),
        name: name.into(),
        labels: Default::default(),
        state,
        started_unix_millis: 1_760_000_000_000,
        last_seen_unix_millis: 1_760_000_060_000,
        ranks_expected: 4,
        most_ranks: 4,
        imported: false,
        ranks_reporting: 4,
        steps: 200,
        last_step: Some(199),
        step_time_nanos: Some(step_time_nanos),
        throughput: Some(12_000.0),
        batch: Some(128.0),
        sample_unit: "tokens".into(),
        overlap_ratio: Some(0.5),
        efficiency_implied: Some(0.8),
        verdict: None,
        hang: None,
        worst: None,
        step_times: Vec::new(),
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
