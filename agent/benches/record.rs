//! Measures what recording costs the thread that records: `cargo xtask bench record`.
//!
//! The agent reports to a small server in this program, which acknowledges every batch immediately. Without a server
//! the drain thread would wait in its back-off and not compete for the processor. With one it drains, encodes,
//! compresses and sends as in a job, and the program counts the records that arrive: no record may be lost except where
//! the ring is meant to be full. To fill the ring, the server stops answering, which blocks the drain thread for two
//! seconds.
#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

#[path = "../../tests/kit/src/results.rs"]
mod results;
#[path = "record/sink.rs"]
mod sink;

use std::hint::black_box;
use std::time::Duration;

use paceline_agent::{Agent, Config, Job, Recorder, StepContext, StepMarks, clock};
use results::Results;
use serde_json::json;
use sink::Sink;
use wire::batch::Instrumentation;
use wire::clock::MonoNanos;
use wire::event::{BucketRecord, Event, Source, Span, SpanKind, Started};
use wire::ids::{Bucket, Comm, Rank, RunId, Seq, Step};

/// The number of calls between two clock readings. It spreads the cost of the readings.
const CALLS: usize = 64;
/// The number of samples (groups of calls, or steps) per measurement.
const SAMPLES: usize = 1_000;
/// The number of bytes written before each cold step, as a job's tensors are between its marks. It is more than most
/// second-level caches hold.
const WORK_BYTES: usize = 16 << 20;
/// The number of buckets of the default char_lm.
const BUCKETS: u32 = 7;
/// Half the capacity of a ring (the agent's `RING_SLOTS` is 32,768).
const HALF_RING: usize = 16_384;
/// The time in which the drain thread surely empties the rings.
const DRAINED: Duration = Duration::from_millis(150);

fn main() -> std::io::Result<()> {
    let mut table = Table { results: Results::begin("record") };
    let sink = Sink::start()?;
    let agent = agent(&sink);

    table.measure("now", "clock::now", || group(clock::now));
    table.measure("thread_cpu", "clock::thread_cpu_nanos", || group(clock::thread_cpu_nanos));
    record(&mut table, "record", "record, ring drained", &mut agent.recorder());
    record(&mut table, "record_disabled", "record, agent disabled", &mut Recorder::disabled());
    let mut job = Instrumented::new(&agent);
    table.measure("step", "whole step, 7 buckets", || paced(CALLS, || job.step()));
    let mut work = vec![0_u8; WORK_BYTES];
    table.measure("step_cold", "whole step, caches cold", || {
        black_box(&mut work).iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
        paced(CALLS, || job.step())
    });
    let mut job = Instrumented::new(&Agent::disabled());
    table.measure("step_disabled", "whole step, agent disabled", || job.step());
    assert_eq!(sink.lost(), 0, "a record was lost although the ring had room");

    record_full(&mut table, &sink, &agent);
    agent.finish(Ok(()));
    assert!(sink.lost() > 0, "the ring was not full when it should have been");
    println!("\n{} records arrived, {} were lost on purpose", sink.came(), sink.lost());
    println!("raw: {}", table.results.finish()?.display());
    Ok(())
}

fn agent(sink: &Sink) -> Agent {
    Agent::start(Config {
        server: sink.address(),
        token: None,
        run: RunId::new("bench").expect("it is a run id"),
        rank: Rank(0),
        local_rank: 0,
        world_size: 1,
        job: Job { name: "bench".into(), sample_unit: "tokens".into(), parameters: 0 },
        instrumentation: Instrumentation::Reducer,
        labels: std::collections::BTreeMap::new(),
        spool_bytes: 64 << 20,
        leftovers: None,
        shadow_every: 0,
        overhead_budget: 1.0,
    })
}

/// The table of results: prints lines and stores their raw numbers.
struct Table {
    results: Results,
}

impl Table {
    /// Takes [`SAMPLES`] samples in nanoseconds, after a tenth as many for warm-up.
    fn measure(&mut self, name: &str, title: &str, mut sample: impl FnMut() -> f64) {
        for _ in 0..SAMPLES / 10 {
            sample();
        }
        let samples: Vec<f64> = (0..SAMPLES).map(|_| sample()).collect();
        self.keep(name, title, samples);
    }

    fn keep(&mut self, name: &str, title: &str, mut samples: Vec<f64>) {
        samples.sort_by(f64::total_cmp);
        let quantile = |share: f64| samples[(share * (samples.len() - 1) as f64).round() as usize];
        let (p10, median, p99) = (quantile(0.1), quantile(0.5), quantile(0.99));
        println!("{title:26} median {median:9.1} ns   p10 {p10:9.1}   p99 {p99:9.1}");
        let rounded: Vec<f64> = samples.iter().map(|nanos| (nanos * 10.0).round() / 10.0).collect();
        self.results.add(json!({
            "what": name, "median_ns": median, "p10_ns": p10, "p99_ns": p99, "samples_ns_sorted": rounded,
        }));
    }
}

/// Returns the time of one call in nanoseconds, as the mean of a group.
fn group<T>(mut call: impl FnMut() -> T) -> f64 {
    let begin = clock::now();
    for _ in 0..CALLS {
        black_box(call());
    }
    (clock::now() - begin) as f64 / CALLS as f64
}

/// Takes a sample. Waits for the drain thread first if the samples since the last wait may fill half a ring.
fn paced(records: usize, mut sample: impl FnMut() -> f64) -> f64 {
    thread_local! {
        static USED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    }
    let used = USED.get() + records;
    if used > HALF_RING {
        std::thread::sleep(DRAINED);
    }
    USED.set(if used > HALF_RING { records } else { used });
    sample()
}

fn record(table: &mut Table, name: &str, title: &str, recorder: &mut Recorder) {
    let mut seq = 0;
    table.measure(name, title, || {
        paced(CALLS, || {
            group(|| {
                seq += 1;
                recorder.record(black_box(bucket(seq)));
            })
        })
    });
}

/// Measures recording into a full ring, while the server keeps the drain thread waiting.
fn record_full(table: &mut Table, sink: &Sink, agent: &Agent) {
    let mut recorder = agent.recorder();
    sink.hold(|| {
        for seq in 0..3 * HALF_RING as u64 {
            recorder.record(bucket(seq));
        }
        let samples = (0..SAMPLES).map(|_| group(|| recorder.record(black_box(bucket(0))))).collect();
        table.keep("record_full", "record, ring full", samples);
    });
}

fn bucket(seq: u64) -> Event {
    let time = |delay: i64| MonoNanos(1_000_000 * seq as i64 + delay);
    Event::Bucket(BucketRecord {
        step: Step(seq / 7),
        comm: Comm(0),
        seq: Seq(seq),
        bucket: Bucket(seq as u32 % BUCKETS),
        bytes: 525_000,
        ready: time(0),
        launch: time(300),
        start: time(4_000),
        end: time(500_000),
        source: Source::HostClock,
    })
}

/// A job that makes the calls of char_lm and the reducer in a step, in their order, without the work in between.
struct Instrumented {
    marks: StepMarks,
    reducer: Recorder,
    worker: Recorder,
    step: u64,
    seq: u64,
}

impl Instrumented {
    fn new(agent: &Agent) -> Self {
        let (reducer, worker) = (agent.recorder(), agent.recorder());
        Self { marks: agent.step_marks(), reducer, worker, step: 0, seq: 0 }
    }

    /// Runs one step and returns its time in nanoseconds.
    fn step(&mut self) -> f64 {
        let began = clock::now();
        self.step += 1;
        let context = self.marks.begin_step(Step(self.step));
        self.marks.enter(SpanKind::Input);
        self.marks.enter(SpanKind::Forward);
        self.marks.enter(SpanKind::Backward);
        (0..BUCKETS).for_each(|bucket| self.reduce(context, Bucket(bucket)));
        self.wait(context);
        self.marks.enter(SpanKind::Optimizer);
        self.marks.end_step(black_box(512));
        (clock::now() - began) as f64
    }

    /// Makes the reducer's calls: reads `ready` and `launch` with and without an agent, and the rest only with one.
    fn reduce(&mut self, StepContext { step, .. }: StepContext, bucket: Bucket) {
        let (ready, launch) = (black_box(clock::now()), black_box(clock::now()));
        if !self.worker.is_enabled() {
            return;
        }
        self.seq += 1;
        let (comm, seq, bytes) = (Comm(0), Seq(self.seq), black_box(525_000));
        let start = clock::now();
        self.worker.record(Event::Started(Started { step, comm, seq, bucket, bytes, launch }));
        let (end, source) = (clock::now(), Source::HostClock);
        let record = BucketRecord { step, comm, seq, bucket, bytes, ready, launch, start, end, source };
        self.worker.record(Event::Bucket(record));
    }

    fn wait(&mut self, StepContext { step, .. }: StepContext) {
        if self.reducer.is_enabled() {
            let (begin, begin_cpu) = (clock::now(), clock::thread_cpu_nanos());
            let (end, cpu_nanos) = (clock::now(), clock::thread_cpu_nanos().saturating_sub(begin_cpu));
            self.reducer.record(Event::Span(Span { step, kind: SpanKind::Blocked, begin, end, cpu_nanos }));
        }
    }
}
