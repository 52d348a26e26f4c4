//! Values for the tests of all crates, which say only what differs: `StepAnalysis { shadow: true, ..fixtures::step(3) }`.

use wire::batch::Instrumentation;
use wire::event::SpanKind;
use wire::ids::{Bucket, Comm, RunId, Seq, Step};
use wire::live::Part;
use wire::views::{Group, Missing, Report, RunState};

use crate::report::{self, RunFacts};
use crate::step::{CollectiveAnalysis, RankAnalysis, StepAnalysis};

/// An observed step of no ranks, without collectives.
#[must_use]
pub fn step(number: u64) -> StepAnalysis {
    StepAnalysis {
        step: Step(number),
        ranks: Vec::new(),
        collectives: Vec::new(),
        window: None,
        local_nanos: 0,
        complete: true,
        shadow: false,
        replay: None,
    }
}

/// A rank whose step has these parts and no samples, without any communication but the exposed one.
#[must_use]
pub fn rank(parts: [u64; Part::COUNT]) -> RankAnalysis {
    RankAnalysis {
        parts,
        pauses: [0; SpanKind::PAUSES.len()],
        step_nanos: parts.iter().sum(),
        samples: 0,
        compute_nanos: 0,
        comm_nanos: 0,
        hidden_nanos: 0,
        assumed_hidden_nanos: 0,
        assumed_exposed_nanos: 0,
        processor_nanos: [0; SpanKind::PHASES.len()],
        backward_passes: 1,
        tail_nanos: None,
        lateness_nanos: None,
        caused_wait_nanos: 0,
        clock_free: false,
    }
}

/// An all-reduce of rank 0 alone, which took no time.
#[must_use]
pub fn collective() -> CollectiveAnalysis {
    CollectiveAnalysis {
        group: Group { ranks: 1, stride: 1 },
        first: 0,
        comm: Comm(0),
        seq: Seq(0),
        only_enqueued: false,
        bucket: Bucket(0),
        bytes: 0,
        culprit: None,
        last_by_nanos: None,
        newly_late_nanos: None,
        wait_nanos: None,
        wait_clock_free_nanos: 0.0,
        transfer_nanos: None,
        transfer_clock_free_nanos: 0.0,
        hidden_nanos: 0,
        unclear_nanos: 0,
        duration_nanos: 0,
    }
}

/// The report of a completed run on one rank without observed steps.
#[must_use]
pub fn report(run: &str) -> Report {
    report::report::<StepAnalysis>(&facts(run), &[])
}

/// The facts about a completed run on one rank that has sent nothing but its steps.
#[must_use]
pub fn facts(run: &str) -> RunFacts {
    RunFacts {
        run: RunId::new(run).expect("the run id is valid"),
        name: "job".into(),
        state: RunState::Completed,
        ranks: 1,
        sample_unit: "tokens".into(),
        instrumentation: Instrumentation::Reducer,
        fits: Vec::new(),
        drops: Vec::new(),
        hang: None,
        failure: None,
        events: Vec::new(),
        placement: Vec::new(),
        attributes: Vec::new(),
        device_states: Vec::new(),
        hosts: Vec::new(),
        device_memory: Vec::new(),
        bursts: Vec::new(),
        stacks: Vec::new(),
        long_steps: Vec::new(),
        span_lines: Vec::new(),
        work: Vec::new(),
        layouts: Vec::new(),
        other_layouts: Vec::new(),
        compared_traces: None,
        summaries: Vec::new(),
        notable_share: crate::verdict::NOTABLE_SHARE,
        hidden_steps: Vec::new(),
        goodput: Err(Missing::NoObservedStep),
        course: Vec::new(),
        start_waits: Vec::new(),
        has_all_steps: true,
    }
}
