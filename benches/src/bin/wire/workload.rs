//! The batches of a simulated job, with times as uneven as measured ones.

use paceline::store::segment::Received;
use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;
use testkit::simulator::{Plan, Simulation};
use wire::batch::Batch;
use wire::clock::MonoNanos;
use wire::event::{BucketRecord, Event};
use wire::ids::BatchSeq;

pub const RANKS: usize = 8;
pub const BUCKETS: usize = 40;
/// 100 seconds of training at three steps per second.
pub const STEPS: u64 = 300;
/// The interval at which agents send, in nanoseconds.
pub const TICK: i64 = 100_000_000;
/// The time for which agents gather records while the server is not reachable, in nanoseconds.
pub const GATHER: i64 = 1_000_000_000;

/// Returns one batch per step, as the simulator produces them.
pub fn make() -> Vec<Received> {
    let plan = Plan {
        ranks: RANKS,
        ranks_per_host: 4,
        steps: STEPS,
        buckets: BUCKETS,
        bucket_bytes: 25 << 20,
        compute: 330_000_000,
        jitter: 0.02,
        sequence_spread: 0.05,
        beta: 0.1,
        late: 5_000_000,
        ..Plan::small(1)
    };
    let mut random = ChaCha8Rng::seed_from_u64(2);
    let mut batches = Simulation::run(&plan).batches;
    for received in &mut batches {
        let mut free = MonoNanos(0);
        for event in &mut received.batch.events {
            if let Event::Bucket(bucket) = event {
                roughen(bucket, &mut free, &mut random);
            }
        }
    }
    batches
}

/// Makes the times of a bucket uneven. The simulator spaces the buckets of a step evenly. Measured buckets differ by
/// layer in size and time. Intervals between the times of a bucket have a minimum and a long tail (char_lm: 0.2 to 1 us
/// from ready to launch, 2 to 20 us from launch to start on an idle thread). A bucket starts after the previous one has
/// ended. All times move to earlier ones, so that the step still ends after its buckets. `free` is the end of the
/// previous bucket.
fn roughen(bucket: &mut BucketRecord, free: &mut MonoNanos, random: &mut ChaCha8Rng) {
    let layer = u64::from(bucket.bucket.0 * 7 % 11);
    // Sizes differ by multiples of rows of 768 floats, which are typical of a transformer's parameters.
    bucket.bytes -= layer * 17 * 3_072;
    let transfer = ((bucket.end - bucket.start) as f64 * (0.75 + 0.2 * random.random::<f64>())) as i64;
    let earlier = layer as i64 * 150_000 + random.random_range(0..400_000);
    bucket.ready = MonoNanos(bucket.ready.0 - earlier);
    bucket.launch = bucket.ready + tail(200, 800, random);
    let idle = bucket.launch + tail(2_000, 18_000, random);
    bucket.start = idle.max(*free + tail(500, 2_000, random));
    bucket.end = bucket.start + transfer;
    *free = bucket.end;
}

fn tail(floor: i64, most: i64, random: &mut ChaCha8Rng) -> i64 {
    floor + (most as f64 * random.random::<f64>().powi(4)) as i64
}

/// Returns the same records, each in the batch of the `tick` in which it ended.
pub fn batched_by_tick(by_step: &[Received], tick: i64) -> Vec<Received> {
    let mut batches: Vec<Received> = Vec::new();
    for rank in 0..RANKS as u32 {
        let own: Vec<&Received> = by_step.iter().filter(|received| received.batch.rank.0 == rank).collect();
        batches.extend(ticks_of_rank(&own, tick));
    }
    batches.sort_by_key(|received| received.at);
    batches
}

fn ticks_of_rank(batches: &[&Received], tick: i64) -> Vec<Received> {
    let first = &batches[0];
    let to_server = first.at - wire::clock::ServerNanos(first.batch.anchor.mono.0);
    let mut events: Vec<Event> = batches.iter().flat_map(|received| received.batch.events.clone()).collect();
    events.sort_by_key(ended);
    let mut head = 0;
    let mut out: Vec<Received> = Vec::new();
    for group in events.chunk_by(|a, b| ended(a).0 / tick == ended(b).0 / tick) {
        let mono = MonoNanos((ended(&group[0]).0 / tick + 1) * tick);
        let empty = Batch { probes: Vec::new(), notes: Vec::new(), ..batches[0].batch.clone() };
        let mut batch = Batch { seq: BatchSeq(out.len() as u64), events: group.to_vec(), ..empty };
        batch.anchor.unix = batch.anchor.unix + (mono - batch.anchor.mono);
        batch.anchor.mono = mono;
        // Probes and notes belong to the first tick after them.
        while head < batches.len() && (head == 0 || batches[head].batch.anchor.mono <= mono) {
            batch.probes.extend(&batches[head].batch.probes);
            batch.notes.extend(batches[head].batch.notes.clone());
            head += 1;
        }
        out.push(Received { at: wire::clock::ServerNanos(mono.0) + to_server, batch });
    }
    let last = out.last_mut().expect("a rank has records");
    for rest in &batches[head..] {
        last.batch.notes.extend(rest.batch.notes.clone());
    }
    out
}

fn ended(event: &Event) -> MonoNanos {
    match event {
        Event::Span(span) => span.end,
        Event::Step(step) => step.end,
        Event::Started(started) => started.launch,
        Event::Bucket(bucket) => bucket.end,
    }
}
