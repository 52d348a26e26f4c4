//! The batches that the agents of a simulated job send, when they arrive, and which are lost.

use paceline::store::segment::Received;
use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use wire::attributes::{Attributes, HYPERVISOR, NO_HYPERVISOR};
use wire::batch::{Batch, Bye, Hello, Note};
use wire::clock::{ClockAnchor, ServerNanos, UnixNanos};
use wire::event::{BucketRecord, Event, Source, Span, SpanKind, StepRecord};
use wire::fixtures;
use wire::ids::{BatchSeq, Bucket, Comm, Rank, RunId, Seq, Step};

use super::clocks::{EPOCH, HostClock};
use super::plan::Plan;
use super::timeline::{RankTruth, StepTruth};

/// The interval of an agent's probes, in nanoseconds.
const PROBE_EVERY: i64 = 500_000_000;

pub(super) fn batches(
    plan: &Plan,
    steps: &[StepTruth],
    clocks: &[HostClock],
    random: &mut ChaCha8Rng,
) -> Vec<Received> {
    let mut received: Vec<Received> = Vec::new();
    for rank in 0..plan.ranks {
        received.extend(rank_batches(plan, steps, rank, &clocks[rank / plan.ranks_per_host], random));
    }
    received.sort_by_key(|received| received.at);
    received
}

/// Returns the batches of one rank in order of arrival. An agent sends a batch once the previous one is acknowledged.
fn rank_batches(
    plan: &Plan,
    steps: &[StepTruth],
    rank: usize,
    clock: &HostClock,
    random: &mut ChaCha8Rng,
) -> Vec<Received> {
    let mut sender = Sender { plan, rank, clock, seq: 0, at: 0, out: Vec::new() };
    let mut next_probe = 0;
    let mut pending = Vec::new();
    let mut probes = (0..8).map(|i| clock.probe(i * 1_000_000, plan, random)).collect::<Vec<_>>();
    let mut last_sent = 0;
    for (number, step) in steps.iter().enumerate() {
        let truth = &step.ranks[rank];
        pending.extend(events(number as u64, truth, clock, plan));
        if truth.end >= next_probe {
            probes.push(clock.probe(truth.end, plan, random));
            next_probe = truth.end + PROBE_EVERY;
        }
        if truth.end - last_sent >= plan.tick
            || number as u64 >= plan.singly_from
            || number + 1 == steps.len()
        {
            last_sent = truth.end;
            let notes = sender.notes(number + 1 == steps.len());
            sender.send(truth.end, std::mem::take(&mut pending), std::mem::take(&mut probes), notes, random);
        }
    }
    sender.out
}

struct Sender<'a> {
    plan: &'a Plan,
    rank: usize,
    clock: &'a HostClock,
    seq: u64,
    at: i64,
    out: Vec<Received>,
}

impl Sender<'_> {
    fn notes(&self, last: bool) -> Vec<Note> {
        let hello = Note::Hello(Hello {
            name: "simulated".into(),
            host: format!("host{}", self.rank / self.plan.ranks_per_host),
            clock: format!("clock{}", self.rank / self.plan.ranks_per_host),
            pid: self.rank as u32 + 1,
            local_rank: (self.rank % self.plan.ranks_per_host) as u32,
            sample_unit: "samples".into(),
            instrumentation: wire::batch::Instrumentation::Simulator,
            ..fixtures::hello()
        });
        let attributes = Note::Attributes(Attributes {
            labels: [("seed".into(), self.plan.seed.to_string())].into(),
            software: [("paceline", env!("CARGO_PKG_VERSION")), (HYPERVISOR, NO_HYPERVISOR)]
                .map(|(name, value)| (name.into(), value.into()))
                .into(),
        });
        let bye = Note::Bye(Bye { completed: true, reason: String::new() });
        let first = (self.seq == 0).then_some([hello, attributes]);
        first.into_iter().flatten().chain(last.then_some(bye)).collect()
    }

    fn send(
        &mut self,
        time: i64,
        events: Vec<Event>,
        probes: Vec<wire::clock::Probe>,
        notes: Vec<Note>,
        random: &mut ChaCha8Rng,
    ) {
        // Batches with notes are not lost: a real agent sends hello and end-of-run messages until they arrive.
        let lost = self.plan.lose_one_in > 0
            && notes.is_empty()
            && random.random_range(0..self.plan.lose_one_in) == 0;
        let late = if self.plan.late > 0 { random.random_range(0..self.plan.late) } else { 0 };
        self.at = self.at.max(time + 1_000_000 + late);
        let batch = Batch {
            run: RunId::new(format!("simulated-{}", self.plan.seed)).expect("the run id is valid"),
            rank: Rank(self.rank as u32),
            world_size: self.plan.ranks as u32,
            seq: BatchSeq(self.seq),
            anchor: ClockAnchor { mono: self.clock.read(time), unix: UnixNanos(EPOCH + time) },
            probes,
            notes,
            events,
            ..fixtures::batch()
        };
        self.seq += 1;
        if !lost {
            self.out.push(Received { at: ServerNanos(EPOCH + self.at), batch });
        }
    }
}

/// Returns the records of one rank's step, on the clock of its host.
fn events(number: u64, truth: &RankTruth, clock: &HostClock, plan: &Plan) -> Vec<Event> {
    let step = Step(number);
    // A thread that is blocked in the reducer uses no processor time.
    let blocked = (truth.reduced - truth.backward_end).unsigned_abs();
    let span = |kind, begin: i64, end: i64| {
        let cpu_nanos = match kind {
            SpanKind::Blocked => 0,
            SpanKind::Backward => (end - begin).unsigned_abs() - blocked,
            _ => (end - begin).unsigned_abs(),
        };
        Event::Span(Span { step, kind, begin: clock.read(begin), end: clock.read(end), cpu_nanos })
    };
    let mut events = vec![
        span(SpanKind::Input, truth.begin, truth.input_end),
        span(SpanKind::Forward, truth.forward_begin, truth.forward_end),
        span(SpanKind::Backward, truth.forward_end, truth.reduced),
        span(SpanKind::Blocked, truth.backward_end, truth.reduced),
        span(SpanKind::Optimizer, truth.reduced, truth.end),
    ];
    for (bucket, &(ready, start, end)) in truth.buckets.iter().enumerate() {
        events.push(Event::Bucket(BucketRecord {
            step,
            comm: Comm(0),
            seq: Seq(number * truth.buckets.len() as u64 + bucket as u64),
            bucket: Bucket(bucket as u32),
            bytes: plan.bytes(bucket),
            ready: clock.read(ready),
            launch: clock.read(ready),
            start: clock.read(start),
            end: clock.read(end),
            source: Source::HostClock,
        }));
    }
    events.push(Event::Step(StepRecord {
        step,
        begin: clock.read(truth.begin),
        end: clock.read(truth.end),
        samples: 8,
        shadow: false,
    }));
    events
}
