//! Measures the size and speed of records on the wire and on disk: `cargo xtask bench wire`.
//!
//! The records are those of a simulated job, with times made as uneven as measured ones; the code is the real code. The
//! records of a rank are batched in three ways: *tick*, like an agent (one batch per 100 ms, which at three steps per
//! second holds about eleven bucket records); *step*, one batch per step; and *gathered*, like an agent whose server is
//! not reachable. Small batches cost more bytes per record, because every batch identifies its sender.
#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

#[path = "wire/disk.rs"]
mod disk;
#[path = "wire/workload.rs"]
mod workload;

use std::time::Instant;

use paceline::state::run::Run;
use paceline::store::segment::Received;
use serde_json::{Value, json};
use testkit::results::Results;
use testkit::spread::median;
use wire::batch::Batch;
use wire::event::{Event, EventKind};

/// The number of repetitions. Each speed is the median.
const ROUNDS: usize = 5;

fn main() -> anyhow::Result<()> {
    let mut results = Results::begin("wire");
    println!("{} ranks x {} buckets x {} steps", workload::RANKS, workload::BUCKETS, workload::STEPS);
    let by_step = workload::make();
    let ticks = workload::batched_by_tick(&by_step, workload::TICK);
    let gathered = workload::batched_by_tick(&by_step, workload::GATHER);
    for (batching, batches) in [("tick", &ticks), ("step", &by_step), ("gathered", &gathered)] {
        let frames = frames(batches);
        results.add(sizes(batching, batches, &frames));
        results.add(disk::sizes(batching, batches, &frames)?);
        results.add(speeds(batching, batches, &frames));
    }
    println!("raw: {}", results.finish()?.display());
    Ok(())
}

fn frames(batches: &[Received]) -> Vec<Vec<u8>> {
    batches.iter().map(|received| encode(&received.batch)).collect()
}

fn encode(batch: &Batch) -> Vec<u8> {
    wire::codec::encode(batch).expect("the batch can be encoded")
}

/// Returns the number of bucket records.
fn bucket_records(batches: &[Received]) -> usize {
    let kinds = batches.iter().flat_map(|received| received.batch.events.iter().map(Event::kind));
    kinds.filter(|kind| *kind == EventKind::Bucket).count()
}

fn records(batches: &[Received]) -> usize {
    batches.iter().map(|received| received.batch.events.len()).sum()
}

/// Measures the bytes of all frames per bucket record, and the bytes that bucket records alone add.
fn sizes(batching: &str, batches: &[Received], frames: &[Vec<u8>]) -> Value {
    let total: usize = frames.iter().map(Vec::len).sum();
    let bytes_without_buckets: usize =
        batches.iter().map(|received| encode(&remove_buckets(&received.batch)).len()).sum();
    let (buckets, records) = (bucket_records(batches), records(batches));
    let by_bucket = total as f64 / buckets as f64;
    let by_record = total as f64 / records as f64;
    let alone = (total - bytes_without_buckets) as f64 / buckets as f64;
    let in_batch = buckets as f64 / batches.len() as f64;
    println!(
        "\nbatch = {batching}: {in_batch:.1} bucket records in each of {} batches\n\
         wire     {alone:6.2} bytes per bucket record; {by_bucket:.2} with everything else; {by_record:.2} per record",
        batches.len()
    );
    json!({
        "what": "wire_bytes", "batching": batching, "batches": batches.len(), "bucket_records": buckets,
        "records": records, "frame_bytes": total, "frame_bytes_without_buckets": bytes_without_buckets,
        "bytes_per_bucket_record": alone, "all_bytes_per_bucket_record": by_bucket,
        "bytes_per_record": by_record,
    })
}

fn remove_buckets(batch: &Batch) -> Batch {
    let mut batch = batch.clone();
    batch.events.retain(|event| event.kind() != EventKind::Bucket);
    batch
}

/// Measures records of all kinds per second on one core.
fn speeds(batching: &str, batches: &[Received], frames: &[Vec<u8>]) -> Value {
    let records = records(batches);
    let encoding = rates(records, || {
        let began = Instant::now();
        assert_eq!(self::frames(batches).len(), frames.len());
        began.elapsed().as_secs_f64()
    });
    let decoding = rates(records, || {
        let began = Instant::now();
        assert!(frames.iter().all(|frame| wire::codec::decode(frame).is_ok()));
        began.elapsed().as_secs_f64()
    });
    let applying = rates(records, || apply(batches));
    let share = 1.0 / (1.0 / median(&decoding) + 1.0 / median(&applying));
    println!(
        "speed    encode {:.2} M records/s, decode {:.2}, apply and analyze {:.2}; decode and apply {:.2}",
        median(&encoding) / 1e6,
        median(&decoding) / 1e6,
        median(&applying) / 1e6,
        share / 1e6
    );
    json!({
        "what": "speed", "batching": batching, "unit": "records/s", "encode": encoding, "decode": decoding,
        "apply": applying, "decode_and_apply_median": share,
    })
}

/// Returns the seconds that a run's state takes to apply all batches and analyze their steps.
fn apply(batches: &[Received]) -> f64 {
    let first = &batches[0];
    let mut run = Run::new(first.batch.run.clone(), first.batch.world_size, first.at);
    let copies: Vec<Received> = batches.to_vec();
    let began = Instant::now();
    let mut closed = 0;
    for Received { at, batch } in copies {
        closed += run.apply(batch, at).expect("a simulated batch is valid").len();
    }
    let took = began.elapsed().as_secs_f64();
    assert_eq!(closed as u64, workload::STEPS, "every step is analyzed");
    took
}

fn rates(records: usize, mut seconds: impl FnMut() -> f64) -> Vec<f64> {
    (0..ROUNDS).map(|_| (records as f64 / seconds()).round()).collect()
}
