//! Batches that are valid and unreasonable: what one sender can send to make a server use memory or time.

use wire::batch::{Batch, Bye, Hello, Instrumentation, Note};
use wire::clock::MonoNanos;
use wire::event::{BucketRecord, Event, Source, Span, SpanKind, StepRecord};
use wire::fixtures;
use wire::ids::{BatchSeq, Bucket, Comm, RunId, Seq, Step};
use wire::layout::{Layout, LayoutBucket};

/// Returns an empty batch of rank 0.
///
/// # Panics
/// Panics if `run` is not a valid run id.
#[must_use]
pub fn empty(run: &str, world_size: u32, seq: u64) -> Batch {
    Batch {
        run: RunId::new(run).expect("the run id is valid"),
        world_size,
        seq: BatchSeq(seq),
        ..fixtures::batch()
    }
}

/// Returns the end of a step that took a microsecond.
#[must_use]
pub fn end_of(step: u64) -> Event {
    let begin = MonoNanos(i64::try_from(step % (1 << 40)).unwrap_or(0) * 1_000);
    Event::Step(StepRecord {
        step: Step(step),
        begin,
        end: MonoNanos(begin.0 + 1_000),
        samples: 1,
        shadow: false,
    })
}

/// Returns one collective of a step. `at` is its position in the step.
#[must_use]
pub fn collective(step: u64, at: u32) -> Event {
    let begin = MonoNanos((step * 1_000 + u64::from(at)) as i64);
    Event::Bucket(BucketRecord {
        step: Step(step),
        comm: Comm(0),
        seq: Seq((step << 20) + u64::from(at)),
        bucket: Bucket(at),
        bytes: 4,
        ready: begin,
        launch: begin,
        start: begin,
        end: MonoNanos(begin.0 + 1),
        source: Source::HostClock,
    })
}

/// Returns a batch that ends all `steps`, each with `collectives` collectives.
#[must_use]
pub fn steps(run: &str, world_size: u32, seq: u64, steps: std::ops::Range<u64>, collectives: u32) -> Batch {
    let events = |step| (0..collectives).map(move |at| collective(step, at)).chain([end_of(step)]);
    Batch { events: steps.flat_map(events).collect(), ..empty(run, world_size, seq) }
}

/// Returns a batch with one span of each of `steps`, none of which ends.
#[must_use]
pub fn unended(run: &str, world_size: u32, steps: std::ops::Range<u64>) -> Batch {
    let span = |step: u64| {
        let begin = MonoNanos(step as i64 * 1_000);
        let (kind, end) = (SpanKind::Forward, MonoNanos(begin.0 + 900));
        Event::Span(Span { step: Step(step), kind, begin, end, cpu_nanos: 0 })
    };
    Batch { events: steps.map(span).collect(), ..empty(run, world_size, 0) }
}

/// Returns a batch like [`steps`], in which each collective has a size of its own.
#[must_use]
pub fn sizes(run: &str, seq: u64, steps: std::ops::Range<u64>, collectives: u32) -> Batch {
    let mut batch = self::steps(run, 1, seq, steps, collectives);
    for event in &mut batch.events {
        if let Event::Bucket(bucket) = event {
            bucket.bytes = 1_000 + bucket.step.0 * u64::from(collectives) + u64::from(bucket.bucket.0);
            bucket.bucket = Bucket(0);
        }
    }
    batch
}

/// Returns a batch with many generations of a layout, about as many as a batch may hold: 11 MiB in memory, or 32 x
/// 4,000 buckets of 88 bytes.
#[must_use]
pub fn layouts(run: &str, seq: u64) -> Batch {
    let bucket = |bucket| LayoutBucket { bucket: Bucket(bucket), bytes: 1, ..LayoutBucket::default() };
    let layout = |generation: u32| {
        let buckets = (0..4_000).map(bucket).collect();
        Note::Layout(Layout { generation, buckets, ..Layout::default() })
    };
    let first = seq as u32 * 32;
    Batch { notes: (first..first + 32).map(layout).collect(), ..empty(run, 1, seq) }
}

#[must_use]
pub fn hello(name: &str) -> Note {
    Note::Hello(Hello {
        name: name.into(),
        host: name.into(),
        clock: String::new(),
        sample_unit: name.into(),
        ..fixtures::hello()
    })
}

/// Returns a small batch after which the server analyzes steps of `world_size` ranks: of an imported job in which rank 0 alone
/// has a file.
#[must_use]
pub fn claim(run: &str, world_size: u32) -> Batch {
    let mut batch = steps(run, world_size, 0, 3..6, 0);
    let Note::Hello(hello) = hello(run) else { return batch };
    batch.notes.push(Note::Hello(Hello { instrumentation: Instrumentation::Trace, ..hello }));
    batch
}

/// A name that acts on whatever shows it raw: a terminal, a page, a tracker of issues, a chat.
pub const NAME: &str =
    "\x1b]0;owned\x07\0 @team https://evil.example <img src=x onerror=y> _it_ *b* `c` #12 |";

/// Returns the end-of-run message of rank 0.
#[must_use]
pub fn goodbye(run: &str, world_size: u32, seq: u64) -> Batch {
    let bye = Note::Bye(Bye { completed: true, reason: String::new() });
    Batch { notes: vec![bye], ..empty(run, world_size, seq) }
}
