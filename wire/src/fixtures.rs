//! Values for the tests of all crates, which say only what differs: `Batch { seq: BatchSeq(3), ..fixtures::batch() }`.
//!
//! They are hidden, because they are no part of the API and change with any version. They are not behind a feature, because a second
//! set of features would compile every crate a second time.

use crate::batch::{Batch, Hello, Instrumentation};
use crate::clock::{ClockAnchor, MonoNanos, UnixNanos};
use crate::ids::{BatchSeq, Incarnation, Rank, RunId};
use crate::views::{RunState, RunSummary};

/// The id of the run, unless a test chooses another.
///
/// # Panics
/// Never: the id is valid.
#[must_use]
pub fn run() -> RunId {
    RunId::new("r").expect("the run id is valid")
}

/// An empty batch: the first of the only rank.
#[must_use]
pub fn batch() -> Batch {
    Batch {
        run: run(),
        rank: Rank(0),
        world_size: 1,
        incarnation: Incarnation(1),
        seq: BatchSeq(0),
        anchor: ClockAnchor { mono: MonoNanos(0), unix: UnixNanos(0) },
        probes: Vec::new(),
        drops: Vec::new(),
        notes: Vec::new(),
        events: Vec::new(),
    }
}

/// The hello of the first rank on host `a`.
#[must_use]
pub fn hello() -> Hello {
    Hello {
        name: "job".into(),
        host: "a".into(),
        clock: "a".into(),
        pid: 1,
        local_rank: 0,
        sample_unit: String::new(),
        parameters: 0,
        instrumentation: Instrumentation::Reducer,
    }
}

/// A run of four ranks after 100 steps, of which nothing is known but that.
#[must_use]
pub fn run_summary() -> RunSummary {
    RunSummary {
        run: run(),
        name: "job".into(),
        labels: Default::default(),
        state: RunState::Running,
        started_unix_millis: 0,
        last_seen_unix_millis: 0,
        ranks_expected: 4,
        most_ranks: 4,
        imported: false,
        ranks_reporting: 4,
        steps: 100,
        last_step: Some(99),
        step_time_nanos: None,
        throughput: None,
        batch: None,
        sample_unit: "tokens".into(),
        overlap_ratio: None,
        efficiency_implied: None,
        verdict: None,
        hang: None,
        worst: None,
        step_times: Vec::new(),
    }
}
