//! A segment gives back what went in.

use wire::batch::{Bye, Hello};

use super::*;

fn batches() -> Vec<Received> {
    let batch = |rank: u32, seq: u64| {
        let time = |at: i64| MonoNanos(1_000_000 * seq as i64 + at);
        Batch {
            run: RunId::new("r").unwrap(),
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
            drops: Vec::new(),
            notes: if seq == 0 {
                vec![
                    Note::Hello(Hello {
                        name: "n".into(),
                        host: "h".into(),
                        clock: "c".into(),
                        pid: 1,
                        local_rank: rank,
                        sample_unit: "tokens".into(),
                        parameters: 9,
                        origin: "reducer".into(),
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
        }
    };
    (0..6).map(|i| Received { at: ServerNanos(i), batch: batch(i as u32 % 2, i as u64 / 2) }).collect()
}

#[test]
fn a_segment_gives_its_batches_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("segment-000001");
    write(&path, &batches()).unwrap();
    assert_eq!(read(&path).unwrap(), batches());
}

#[test]
fn sealing_can_be_interrupted_and_done_again() {
    let directory = tempfile::tempdir().unwrap();
    let run = directory.path();
    let log_path = run.join("log-000001.plog");
    let mut log = Vec::new();
    for Received { at, batch } in batches() {
        let frame = wire::codec::encode(&batch).unwrap();
        let mut checksum = crc32fast::Hasher::new();
        checksum.update(&at.0.to_le_bytes());
        checksum.update(&frame);
        log.extend_from_slice(&(frame.len() as u32).to_le_bytes());
        log.extend_from_slice(&checksum.finalize().to_le_bytes());
        log.extend_from_slice(&at.0.to_le_bytes());
        log.extend_from_slice(&frame);
    }
    // A crash in the middle of the first try left half a segment that no manifest names.
    fs::write(&log_path, &log).unwrap();
    write(&run.join("segment-000001"), &batches()[..2]).unwrap();
    seal(run, &log_path).unwrap();
    // A crash after the manifest left the log.
    fs::write(&log_path, &log).unwrap();
    seal(run, &log_path).unwrap();
    assert!(!log_path.exists());
    assert_eq!(manifest(run).unwrap().segments, ["segment-000001"]);
    assert_eq!(read(&run.join("segment-000001")).unwrap(), batches());
}

#[test]
fn a_segment_with_a_missing_column_says_which_file_and_column() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("segment-000001");
    write(&path, &batches()).unwrap();
    fs::copy(path.join("probes.parquet"), path.join("steps.parquet")).unwrap();
    let error = read(&path).unwrap_err().to_string();
    assert!(error.contains("steps.parquet") && error.contains("rank"), "{error}");
}
