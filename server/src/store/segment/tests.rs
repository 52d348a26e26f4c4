//! Tests that segments return the batches that were written.

use wire::batch::{Bye, Hello};
use wire::clock::{ClockAnchor, MonoNanos, Probe, UnixNanos};
use wire::event::{BucketRecord, Event, Source, Span, SpanKind, Started, StepRecord};
use wire::fixtures;
use wire::ids::{BatchSeq, Bucket, Comm, Seq, Step};

use super::*;
use crate::store::batches::{self, Condition};
use crate::store::directory::Layout;
use crate::store::log_format::write_entry;
use crate::store::manifest::Manifest;
use crate::store::sealer::seal;

fn batches() -> Vec<Received> {
    let batch = |rank: u32, seq: u64| {
        let time = |at: i64| MonoNanos(1_000_000 * seq as i64 + at);
        Batch {
            rank: Rank(rank),
            world_size: 2,
            incarnation: Incarnation(77 + u64::from(rank)),
            seq: BatchSeq(seq),
            anchor: ClockAnchor { mono: time(0), unix: UnixNanos(5) },
            probes: vec![Probe {
                sent: time(1),
                server_received: ServerNanos(1_790_000_000_000_000_000),
                server_sent: ServerNanos(1_790_000_000_000_000_500),
                received: time(900),
            }],
            notes: if seq == 0 {
                vec![
                    Note::Hello(Hello {
                        name: "n".into(),
                        local_rank: rank,
                        sample_unit: "tokens".into(),
                        parameters: 9,
                        ..fixtures::hello()
                    }),
                    Note::Bye(Bye { completed: false, reason: "x".into() }),
                ]
            } else {
                Vec::new()
            },
            events: vec![
                Event::Span(Span {
                    step: Step(seq),
                    kind: SpanKind::Backward,
                    begin: time(10),
                    end: time(20),
                    cpu_nanos: 8,
                }),
                Event::Step(StepRecord {
                    step: Step(seq),
                    begin: time(5),
                    end: time(50),
                    samples: 64,
                    shadow: seq == 1,
                }),
                Event::Bucket(BucketRecord {
                    step: Step(seq),
                    comm: Comm(0),
                    seq: Seq(seq * 2),
                    bucket: Bucket(1),
                    bytes: 4_096,
                    ready: time(11),
                    launch: time(12),
                    start: time(13),
                    end: time(19),
                    source: Source::DeviceEvent,
                }),
            ],
            ..fixtures::batch()
        }
    };
    (0..6).map(|i| Received { at: ServerNanos(i), batch: batch(i as u32 % 2, i as u64 / 2) }).collect()
}

/// Creates a run's directory with a log of these batches. The directory is removed when the first value is dropped.
fn stored(batches: &[Received]) -> (tempfile::TempDir, RunFolder) {
    let directory = tempfile::tempdir().unwrap();
    let folder = Layout::new(directory.path()).folder(&RunId::new("r").unwrap());
    std::fs::create_dir_all(&folder.path).unwrap();
    std::fs::write(folder.log(1), log(batches)).unwrap();
    (directory, folder)
}

fn log(batches: &[Received]) -> Vec<u8> {
    let mut log = Vec::new();
    for Received { at, batch } in batches {
        let offset = log.len() as u64;
        write_entry(&mut log, offset, *at, &wire::codec::encode(batch).unwrap());
    }
    log
}

fn read_back(folder: &RunFolder) -> (Vec<Received>, Condition) {
    let mut batches = Vec::new();
    let condition = batches::each_batch(folder, |batch| {
        batches.push(batch);
        Ok::<(), StoreError>(())
    });
    let mut condition = condition.unwrap();
    assert_eq!(std::mem::take(&mut condition.stored).values().sum::<u64>(), batches.len() as u64);
    (batches, condition)
}

#[test]
fn a_segment_returns_its_batches() {
    let (_directory, folder) = stored(&batches());
    seal(&folder, 1).unwrap();
    assert!(!folder.log(1).exists());
    assert_eq!(read_back(&folder), (batches(), Condition::default()));
}

/// A process was killed in a collective, or hangs in it: the report is the same after the server's restart.
#[test]
fn the_newest_collective_in_flight_of_a_process_is_stored() {
    let started = |seq: u64| {
        let (step, launch) = (Step(seq / 2), MonoNanos(seq as i64));
        Event::Started(Started { step, comm: Comm(0), seq: Seq(seq), bucket: Bucket(1), bytes: 8, launch })
    };
    let mut sent = batches();
    // On both ranks, collective 4 ends in the last batch.
    sent[4].batch.events.extend([started(3), started(4), started(5), started(6)]);
    sent[5].batch.events.push(started(4));
    let (_directory, folder) = stored(&sent);
    seal(&folder, 1).unwrap();
    let mut left = batches();
    left[4].batch.events.insert(0, started(6));
    assert_eq!(read_back(&folder), (left, Condition::default()));
}

#[test]
fn interrupted_sealing_can_be_repeated() {
    let (_directory, folder) = stored(&batches());
    // A crash during the first attempt left a partial segment that no manifest names.
    write(&folder, 1, &batches()[..2]).unwrap();
    seal(&folder, 1).unwrap();
    // A crash after writing the manifest left the log.
    std::fs::write(folder.log(1), log(&batches())).unwrap();
    seal(&folder, 1).unwrap();
    assert!(!folder.log(1).exists());
    assert_eq!(Manifest::read(&folder).unwrap().segments.len(), 1);
    assert_eq!(read_back(&folder), (batches(), Condition::default()));
}

/// An agent that receives no answer sends a batch again: the log has it twice, a segment once.
#[test]
fn a_batch_that_was_stored_twice_is_read_once() {
    let twice: Vec<Received> = batches().into_iter().flat_map(|batch| [batch.clone(), batch]).collect();
    let (_directory, folder) = stored(&twice);
    seal(&folder, 1).unwrap();
    assert_eq!(read_back(&folder), (batches(), Condition::default()));
}

/// The bytes of a released version never change. The golden batches of the wire format have every kind of note.
#[test]
fn notes_of_version_1_are_pinned() {
    let golden =
        fuzz::Corpus::files(concat!(env!("CARGO_MANIFEST_DIR"), "/../wire/src/codec/golden_v1"), ".hex");
    let batches = golden.entries().zip(0..).map(|((_, plain), number)| {
        let batch = wire::codec::decode_plain(plain).unwrap();
        let (run, seq) = (RunId::new("r").unwrap(), BatchSeq(number as u64));
        Received { at: ServerNanos(number), batch: Batch { run, seq, ..batch } }
    });
    let batches: Vec<Received> = batches.collect();
    let (_directory, folder) = stored(&[]);
    let files = write(&folder, 1, &batches).unwrap();
    let written = std::fs::read_to_string(folder.segment(1).join(NOTES)).unwrap();
    assert_eq!(written, include_str!("golden_notes_v1.json"));
    let sealed = Sealed { files, ..Sealed::unchecked("segment-000001".into()) };
    let notes = |batches: &[Received]| -> Vec<_> {
        batches.iter().map(|received| (received.batch.notes.clone(), received.batch.drops.clone())).collect()
    };
    assert_eq!(notes(&read(&folder, &sealed).unwrap()), notes(&batches));
}

/// Another version is named, before anything else of the file is read.
#[test]
fn a_segment_of_another_version_is_refused() {
    let (_directory, folder) = stored(&[]);
    write(&folder, 1, &batches()).unwrap();
    let path = folder.segment(1).join(NOTES);
    for version in [0, 2] {
        std::fs::write(&path, format!("{{\"version\":{version}}}")).unwrap();
        let error = read(&folder, &Sealed::unchecked("segment-000001".into())).unwrap_err().to_string();
        let said = format!("it is of version {version}, and this program reads version 1");
        assert!(error.contains(&said), "{error}");
    }
}

#[test]
fn segments_and_logs_are_read_in_the_order_they_were_written() {
    let (_directory, folder) = stored(&batches()[..2]);
    std::fs::write(folder.log(2), log(&batches()[2..4])).unwrap();
    std::fs::write(folder.log(3), log(&batches()[4..])).unwrap();
    assert_eq!(read_back(&folder).0, batches());
    // Seal in another order than the sealer does.
    std::fs::rename(folder.log(1), folder.path.join("aside")).unwrap();
    seal(&folder, 2).unwrap();
    std::fs::rename(folder.path.join("aside"), folder.log(1)).unwrap();
    assert_eq!(read_back(&folder).0, batches());
    seal(&folder, 3).unwrap();
    assert_eq!(folder.logs().unwrap(), [0_u32; 0], "every log is sealed, not only the newest");
    assert_eq!(read_back(&folder).0, batches());
}

/// A bit is flipped at any place in a log of six batches: five batches remain, before and after sealing, and the log
/// stays.
#[test]
fn a_flipped_bit_in_a_log_costs_one_batch_and_stays_reported() {
    let whole = log(&batches());
    for at in (0..whole.len()).step_by(7) {
        let (_directory, folder) = stored(&batches());
        let mut spoilt = whole.clone();
        spoilt[at] ^= 1 << (at % 8);
        std::fs::write(folder.log(1), &spoilt).unwrap();
        for sealed in [false, true, true] {
            if sealed {
                seal(&folder, 1).unwrap();
            }
            let (left, condition) = read_back(&folder);
            assert_eq!(left.len(), 5, "byte {at}");
            assert!(left.iter().all(|batch| batches().contains(batch)));
            assert_eq!(condition.damage.len(), 1, "byte {at}");
            assert_eq!(condition.damage[0].batches, 1);
            assert!(condition.damage[0].reason.contains("log-000001.plog"), "{condition:?}");
            assert_eq!(std::fs::read(folder.log(1)).unwrap(), spoilt, "the damaged file stays");
        }
    }
}

/// Wherever a bit of a segment is flipped, its batches are reported as lost, and no figure changes silently.
#[test]
fn a_flipped_bit_in_a_segment_is_detected() {
    let (_directory, folder) = stored(&batches());
    std::fs::write(folder.log(2), log(&batches())).unwrap();
    seal(&folder, 1).unwrap();
    for entry in std::fs::read_dir(folder.segment(1)).unwrap() {
        let path = entry.unwrap().path();
        let whole = std::fs::read(&path).unwrap();
        for at in (0..whole.len()).step_by(11) {
            let mut spoilt = whole.clone();
            spoilt[at] ^= 1 << (at % 8);
            std::fs::write(&path, &spoilt).unwrap();
            let (left, condition) = read_back(&folder);
            assert_eq!(left, batches(), "the batches of the log remain");
            assert_eq!((condition.damage.len(), condition.damage[0].batches), (1, 6));
            assert!(condition.damage[0].reason.contains("checksum"), "{condition:?}");
        }
        std::fs::write(&path, &whole).unwrap();
    }
}

/// A segment that is damaged while its log still exists is written again.
#[test]
fn a_log_is_removed_only_when_its_segment_can_be_read() {
    let (_directory, folder) = stored(&batches());
    seal(&folder, 1).unwrap();
    std::fs::write(folder.segment(1).join("steps.parquet"), b"PAR1").unwrap();
    std::fs::write(folder.log(1), log(&batches())).unwrap();
    assert_eq!(read_back(&folder), (batches(), Condition::default()));
    seal(&folder, 1).unwrap();
    assert!(!folder.log(1).exists());
    assert_eq!(read_back(&folder), (batches(), Condition::default()));
}

#[test]
fn an_error_of_a_missing_column_names_the_file_and_the_column() {
    let (_directory, folder) = stored(&batches());
    seal(&folder, 1).unwrap();
    let path = folder.segment(1);
    std::fs::copy(path.join("probes.parquet"), path.join("steps.parquet")).unwrap();
    let error = read(&folder, &Sealed::unchecked("segment-000001".into())).unwrap_err().to_string();
    assert!(error.contains("steps.parquet") && error.contains("rank"), "{error}");
}
