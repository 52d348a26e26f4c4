//! Recording allocates nothing, whether the ring has room, the ring is full, or the agent is disabled.

use std::hint::black_box;

use paceline_agent::{Agent, Config, Job, Recorder};
use wire::batch::Instrumentation;
use wire::clock::MonoNanos;
use wire::event::{Event, SpanKind, StepRecord};
use wire::ids::{Rank, RunId, Step};

/// The number of records, more than a ring holds, so that the ring fills whatever the drain thread does.
const RECORDS: u64 = 200_000;

/// Creates an agent without a server: port 9 of the loopback interface, the discard service, is not in use. The agent
/// is never dropped, because that would wait five seconds for the server.
fn agent() -> &'static Agent {
    Box::leak(Box::new(Agent::start(Config {
        server: "http://127.0.0.1:9".into(),
        token: None,
        run: RunId::new("allocations").unwrap(),
        rank: Rank(0),
        local_rank: 0,
        world_size: 1,
        job: Job { name: "allocations".into(), sample_unit: "samples".into(), parameters: 0 },
        instrumentation: Instrumentation::Reducer,
        labels: std::collections::BTreeMap::new(),
        spool_bytes: 1 << 20,
        leftovers: None,
        shadow_every: 0,
        overhead_budget: 1.0,
    })))
}

fn event(step: u64) -> Event {
    let (begin, end) = (MonoNanos(step as i64), MonoNanos(step as i64 + 1));
    Event::Step(StepRecord { step: Step(step), begin, end, samples: 1, shadow: false })
}

/// Counts the allocations of this thread only. The drain thread may allocate.
fn allocations(body: impl FnOnce()) -> u64 {
    allocation_counter::measure(body).count_total
}

#[test]
fn the_counter_counts_an_allocation() {
    assert_eq!(allocations(|| drop(black_box(vec![0_u8; 100]))), 1);
}

#[test]
fn record_allocates_nothing() {
    for mut recorder in [agent().recorder(), Recorder::disabled()] {
        assert_eq!(allocations(|| (0..RECORDS).for_each(|step| recorder.record(black_box(event(step))))), 0);
    }
}

#[test]
fn the_marks_of_a_step_allocate_nothing() {
    let mut marks = agent().step_marks();
    let step = |step| {
        marks.begin_step(Step(step));
        SpanKind::ALL.iter().for_each(|kind| marks.enter(*kind));
        marks.end_step(1);
    };
    assert_eq!(allocations(|| (0..1_000).for_each(step)), 0);
}
