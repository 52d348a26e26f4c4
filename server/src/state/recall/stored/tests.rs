//! Tests that a step that is read back equals the step that closed.

use std::time::Duration;

use wire::batch::Batch;
use wire::clock::{ClockAnchor, MonoNanos, Probe, ServerNanos, UnixNanos};
use wire::event::{BucketRecord, Event, Source, Span, SpanKind, StepRecord};
use wire::fixtures;
use wire::ids::{Bucket, Comm, RunId, Seq};

use super::*;
use crate::state::run::Run;
use crate::store::directory::Layout;
use crate::store::log::writer::{Record, Writer};
use crate::store::sealer::seal;

/// The world size of the run that these tests store.
pub const RANKS: u32 = 3;

/// Returns the batch that rank `rank` sends of step `step`. Within a step, ranks send 70 us apart.
pub fn sent(rank: u32, step: u64) -> Received {
    let begin = MonoNanos(step as i64 * 1_000_000 + i64::from(rank) * 70_000);
    let at = ServerNanos(begin.0 + 900_000);
    let bucket = |bucket: u32| {
        let ready = begin + 200_000 + i64::from(bucket) * 50_000;
        Event::Bucket(BucketRecord {
            step: Step(step),
            comm: Comm(0),
            seq: Seq(step * 2 + u64::from(bucket)),
            bucket: Bucket(bucket),
            bytes: 4_096,
            ready,
            launch: ready + 10,
            start: ready + 20,
            end: MonoNanos(step as i64 * 1_000_000 + 500_000 + i64::from(bucket) * 50_000),
            source: Source::HostClock,
        })
    };
    let span = |kind, from: i64, to: i64| {
        Event::Span(Span { step: Step(step), kind, begin: begin + from, end: begin + to, cpu_nanos: 9 })
    };
    let end = StepRecord { step: Step(step), begin, end: begin + 800_000, samples: 4, shadow: false };
    let probe = Probe {
        sent: begin,
        server_received: ServerNanos(begin.0 + 100),
        server_sent: ServerNanos(begin.0 + 110),
        received: begin + 200,
    };
    let batch = Batch {
        rank: Rank(rank),
        world_size: RANKS,
        seq: BatchSeq(step),
        anchor: ClockAnchor { mono: begin, unix: UnixNanos(0) },
        probes: vec![probe],
        events: vec![
            span(SpanKind::Forward, 0, 150_000),
            bucket(0),
            span(SpanKind::Backward, 150_000, 400_000),
            Event::Step(end),
            bucket(1),
        ],
        ..fixtures::batch()
    };
    Received { at, batch }
}

/// Returns all ranks' batches of some steps, in order of arrival.
pub fn all_ranks(steps: std::ops::Range<u64>) -> Vec<Received> {
    steps.flat_map(|step| (0..RANKS).map(move |rank| sent(rank, step))).collect()
}

/// Appends batches as the server does. Each call begins a new log.
pub fn store(layout: &Layout, batches: &[Received]) {
    let records: Vec<Record> = batches.iter().map(record).collect();
    Writer::new(layout.clone()).append(&batches[0].batch.run, &records).unwrap();
}

/// Encodes a batch for the log.
pub fn record(received: &Received) -> Record {
    let frame = wire::codec::encode(&received.batch).unwrap().into();
    Record { received: received.at, frame, decoded_bytes: received.batch.held_bytes() as u64 }
}

fn limits() -> Limits {
    Limits { bytes: 1 << 20, deadline: Instant::now() + Duration::from_secs(600) }
}

fn read(folder: &RunFolder, step: u64) -> (Option<Closed>, Vec<Lost>) {
    read_step(folder, Step(step), &limits()).unwrap()
}

fn directory() -> (tempfile::TempDir, Layout, RunFolder) {
    let directory = tempfile::tempdir().unwrap();
    let layout = Layout::new(directory.path());
    let folder = layout.folder(&RunId::new("r").unwrap());
    (directory, layout, folder)
}

fn damage(folder: &RunFolder, number: u32) {
    let path = folder.segment(number).join("spans.parquet");
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

/// Applies all batches to a run, so that the run has every step in memory.
fn applied(batches: &[Received]) -> Run {
    let mut run = Run::new(batches[0].batch.run.clone(), RANKS, batches[0].at);
    for Received { at, batch } in batches {
        let _refused = run.apply(batch.clone(), *at);
    }
    run
}

#[test]
fn every_step_read_back_equals_the_step_in_memory() {
    let (_directory, layout, folder) = directory();
    let mut batches = all_ranks(0..40);
    // Ranks are a step apart, and one of them sends a batch again.
    batches.swap(32, 33);
    batches.insert(50, batches[44].clone());
    // Some steps begin in one file and end in the next. The last file is a log.
    for part in [&batches[..37], &batches[37..80], &batches[80..]] {
        store(&layout, part);
    }
    seal(&folder, 2).unwrap();
    assert_eq!(folder.logs().unwrap(), [3]);
    let run = applied(&batches);
    for step in 0..40 {
        let (closed, damage) = read(&folder, step);
        let known = run.placed(Some(Step(step))).unwrap();
        assert_eq!((&closed.unwrap().records, damage), (known.records.as_ref(), Vec::new()), "step {step}");
    }
    assert!(read(&folder, 40).0.is_none());
    let mut range = Vec::new();
    let steps = StepRange { first: Step(11), last: Step(27) };
    visit(&folder, steps, &limits(), |closed| {
        range.push(closed.records.step.0);
        Ok::<(), NotRead>(())
    })
    .unwrap();
    assert_eq!(range, (11..=27).collect::<Vec<_>>());
}

#[test]
fn a_step_that_one_rank_never_ended_has_the_other_ranks() {
    let (_directory, layout, folder) = directory();
    let mut batches = all_ranks(0..4);
    batches.retain(|received| (received.batch.rank.0, received.batch.seq.0) != (1, 2));
    store(&layout, &batches);
    let ranks = read(&folder, 2).0.unwrap().records.ranks;
    assert_eq!(ranks.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, true]);
}

#[test]
fn only_files_that_may_hold_the_step_are_read_and_their_damage_is_named() {
    let (_directory, layout, folder) = directory();
    for first in [0, 10, 20] {
        store(&layout, &all_ranks(first..first + 10));
    }
    seal(&folder, 3).unwrap();
    damage(&folder, 2);
    for step in [3, 25] {
        let (closed, damage) = read(&folder, step);
        assert!(closed.is_some() && damage.is_empty(), "step {step}: {damage:?}");
    }
    let (closed, damage) = read(&folder, 15);
    assert!(closed.is_none());
    assert_eq!(damage[0].steps, Some(StepRange { first: Step(10), last: Step(19) }));
    let reason = &damage[0].damage.reason;
    assert!(reason.contains("segment-000002/spans.parquet: it does not match"), "{reason}");
}

#[test]
fn a_step_beyond_the_limits_is_refused_with_the_reason() {
    let (_directory, layout, folder) = directory();
    store(&layout, &all_ranks(0..3));
    let small = Limits { bytes: 700, ..limits() };
    let error = read_step(&folder, Step(1), &small).err().unwrap().to_string();
    assert_eq!(error, "the records of step 1 take more than 0 MiB");
    let late = Limits { deadline: Instant::now(), ..limits() };
    let error = read_step(&folder, Step(1), &late).err().unwrap().to_string();
    assert_eq!(error, "the records of step 1 are in too many files: 0 of 1 were read in time");
}
