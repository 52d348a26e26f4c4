//! Tests of the reducer's records, as a server receives them.
#![allow(clippy::disallowed_methods, reason = "threads and queues of a test end with it")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Barrier;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use agent::{Agent, Config, Job};
use paceline_reducer::bucketing::Caps;
use paceline_reducer::{Instruments, Options, ParamId, Parameter, Reducer, Share};
use wire::batch::{Batch, Instrumentation, Note};
use wire::event::{BucketRecord, Event, SpanKind};
use wire::ids::{Bucket, Rank, RunId, Step};

use crate::worlds::{Kind, run, run_within};

const STEPS: u64 = 12;
/// Steps 2, 6 and 10 are shadow steps.
const SHADOW_EVERY: u64 = 4;

/// Starts a server that accepts every batch. Its threads end with the agents' connections.
fn collector() -> (String, Receiver<Batch>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (sender, batches) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let sender = sender.clone();
            std::thread::spawn(move || serve(stream.unwrap(), &sender));
        }
    });
    (address, batches)
}

fn serve(mut stream: TcpStream, batches: &Sender<Batch>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|read| read > 0) {
        let mut length = 0;
        while line.trim() != "" {
            let lower = line.to_lowercase();
            length = lower.strip_prefix("content-length:").map_or(length, |n| n.trim().parse().unwrap());
            line.clear();
            reader.read_line(&mut line).unwrap();
        }
        line.clear();
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let mut receipt = String::new();
        if length > 0 {
            let batch = wire::codec::decode(&body).unwrap();
            receipt = format!("{}: {}\r\n", wire::batch::RECEIPT_HEADER, batch.receipt());
            // Without a receiver, the test has ended.
            let _ended = batches.send(batch);
        }
        let answer = r#"{"received_nanos":0,"sent_nanos":0}"#;
        let head = format!("HTTP/1.1 200 OK\r\n{receipt}content-length: {}\r\n\r\n", answer.len());
        if stream.write_all(format!("{head}{answer}").as_bytes()).is_err() {
            return;
        }
    }
}

fn observe(server: &str, rank: Rank) -> Agent {
    Agent::start(Config {
        server: server.into(),
        token: None,
        run: RunId::new("records").unwrap(),
        rank,
        local_rank: rank.0,
        world_size: 2,
        job: Job { name: "records".into(), sample_unit: "rows".into(), parameters: 30 },
        instrumentation: Instrumentation::Reducer,
        labels: std::collections::BTreeMap::new(),
        spool_bytes: 1 << 20,
        leftovers: None,
        shadow_every: SHADOW_EVERY,
        overhead_budget: 1.0,
    })
}

fn record(server: &str) {
    run(Kind::Ring, 2, |comm| {
        let agent = observe(server, comm.rank());
        let mut marks = agent.step_marks();
        let parameters = (0..3).map(|id| Parameter::new(format!("p{id}"), [10])).collect();
        let options = Options { caps: Caps { first_bytes: 40, other_bytes: 80 }, ..Options::default() };
        let mut reducer = Reducer::new(parameters, comm, options, Instruments::new(&agent)).unwrap();
        for step in 0..STEPS {
            let context = marks.begin_step(Step(step));
            marks.enter(SpanKind::Backward);
            reducer.begin_step(context, Share::even(2)).unwrap();
            (0..3).rev().for_each(|id| reducer.mark_ready(ParamId(id), &[1.0; 10]).unwrap());
            reducer.finish_step().unwrap();
            marks.end_step(1);
        }
        agent.finish(Ok(()));
    });
}

#[test]
fn every_bucket_is_recorded_except_in_shadow_steps() {
    let (server, batches) = collector();
    record(&server);
    let batches: Vec<Batch> = batches.try_iter().collect();
    let batches_of = |rank: u32| batches.iter().filter(move |batch| batch.rank == Rank(rank));
    let (mut seqs, mut digests) = (Vec::new(), Vec::new());
    for rank in 0..2 {
        let events: Vec<Event> = batches_of(rank).flat_map(|batch| batch.events.clone()).collect();
        let mut buckets: BTreeMap<(Step, Bucket), BucketRecord> = BTreeMap::new();
        for event in &events {
            if let Event::Bucket(bucket) = event {
                assert!(
                    bucket.ready <= bucket.launch
                        && bucket.launch <= bucket.start
                        && bucket.start < bucket.end
                );
                assert!(buckets.insert((bucket.step, bucket.bucket), *bucket).is_none());
            }
        }
        let observed = (0..STEPS).filter(|step| step % SHADOW_EVERY != SHADOW_EVERY / 2);
        let expected: Vec<_> =
            observed.clone().flat_map(|step| [0, 1].map(|b| (Step(step), Bucket(b)))).collect();
        assert_eq!(buckets.keys().copied().collect::<Vec<_>>(), expected);
        assert_eq!(buckets.values().map(|bucket| bucket.bytes).collect::<Vec<_>>(), [40, 80].repeat(9));
        // The agent omits a started record if the same batch has the bucket record.
        for event in &events {
            if let Event::Started(started) = event {
                let finished = buckets[&(started.step, started.bucket)];
                assert_eq!(
                    (started.seq, started.bytes, started.launch),
                    (finished.seq, finished.bytes, finished.launch)
                );
            }
        }
        let blocked = events.iter().filter_map(|event| match event {
            Event::Span(span) if span.kind == SpanKind::Blocked && span.begin <= span.end => {
                Some(span.step.0)
            }
            _ => None,
        });
        assert_eq!(blocked.collect::<Vec<_>>(), observed.collect::<Vec<_>>());
        let generations = batches_of(rank).flat_map(|batch| &batch.notes).filter_map(|note| {
            let Note::Layout(layout) = note else { return None };
            digests.push(layout.digest);
            Some((layout.generation, layout.since, layout.buckets.len()))
        });
        // Ranks other than 0 send the digest alone.
        let sent = if rank == 0 { 2 } else { 0 };
        assert_eq!(generations.collect::<Vec<_>>(), [(0, None, sent), (1, Some(1), sent)]);
        seqs.push(buckets.values().map(|bucket| bucket.seq).collect::<Vec<_>>());
    }
    assert!(seqs[0].is_sorted_by(|a, b| a < b));
    assert_eq!(seqs[0], seqs[1], "the ranks count collectives alike");
    assert_eq!(digests[..2], digests[2..], "the ranks have the same layouts");
}

#[test]
fn a_hanging_collective_is_recorded_as_started() {
    let (server, batches) = collector();
    let given_up = Barrier::new(2);
    run_within(Kind::Ring, 2, Duration::from_millis(300), |comm| {
        let agent = observe(&server, comm.rank());
        let parameters = vec![Parameter::new("p", [4])];
        let mut reducer =
            Reducer::new(parameters, comm, Options::default(), Instruments::new(&agent)).unwrap();
        if reducer.rank() == Rank(0) {
            let context = agent.step_marks().begin_step(Step(0));
            reducer.begin_step(context, Share::even(2)).unwrap();
            reducer.mark_ready(ParamId(0), &[1.0; 4]).unwrap();
            assert!(reducer.finish_step().is_err());
            agent.finish(Err("rank 1 does not arrive".into()));
        }
        given_up.wait();
    });
    let events: Vec<Event> =
        batches.try_iter().filter(|batch| batch.rank == Rank(0)).flat_map(|batch| batch.events).collect();
    assert!(matches!(&events[..], [Event::Started(started)] if started.bytes == 16), "{events:?}");
}
