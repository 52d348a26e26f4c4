//! Tests of the agent with a server that is slow, unreachable, or not a Paceline server, and with one that asks for fewer
//! batches.
#![allow(clippy::disallowed_methods, reason = "threads and queues of a test end with it")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use paceline_agent::{Agent, Config, Job, Recorder};
use wire::batch::{Batch, Instrumentation, RECEIPT_HEADER};
use wire::clock::MonoNanos;
use wire::event::{Event, SpanKind, StepRecord};
use wire::ids::{Rank, RunId, Step};

const TIME: &str = r#"{"received_nanos":1,"sent_nanos":1}"#;

/// The answer of a server to a batch: status and headers, and how long the answer takes.
type Answer = Arc<dyn Fn(&Batch) -> (String, Duration) + Send + Sync>;

/// Serves on a free port until the test process ends.
fn server(answer: Answer) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = format!("http://{}", listener.local_addr().expect("it is bound"));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = answer.clone();
            // An agent that closed its connection opens another one.
            std::thread::spawn(move || drop(serve(&stream, &answer)));
        }
    });
    address
}

fn serve(mut stream: &TcpStream, answer: &Answer) -> std::io::Result<()> {
    let mut input = BufReader::new(stream);
    loop {
        let mut length = 0;
        let mut line = String::new();
        while input.read_line(&mut line)? > 2 {
            let lower = line.to_ascii_lowercase();
            let value = lower.strip_prefix("content-length:").and_then(|value| value.trim().parse().ok());
            length = value.unwrap_or(length);
            line.clear();
        }
        if line.is_empty() {
            return Ok(());
        }
        let mut body = vec![0; length];
        input.read_exact(&mut body)?;
        let head = if length == 0 {
            "200 OK\r\n".to_owned()
        } else {
            let batch = wire::codec::decode(&body).map_err(std::io::Error::other)?;
            let (head, takes) = answer(&batch);
            std::thread::sleep(takes);
            head
        };
        write!(stream, "HTTP/1.1 {head}content-length: {}\r\n\r\n{TIME}", TIME.len())?;
    }
}

fn acknowledged(batch: &Batch) -> String {
    format!("200 OK\r\n{RECEIPT_HEADER}: {}\r\n", batch.receipt())
}

fn agent(server: String) -> Agent {
    Agent::start(config(server))
}

fn config(server: String) -> Config {
    Config {
        server,
        token: None,
        run: RunId::new("flush").expect("it is a run id"),
        rank: Rank(0),
        local_rank: 0,
        world_size: 1,
        job: Job { name: "flush".into(), sample_unit: "samples".into(), parameters: 0 },
        instrumentation: Instrumentation::Reducer,
        labels: std::collections::BTreeMap::new(),
        spool_bytes: 64 << 20,
        leftovers: None,
        shadow_every: 0,
        overhead_budget: 1.0,
    }
}

fn step(number: u64) -> Event {
    let begin = MonoNanos(number as i64);
    Event::Step(StepRecord { step: Step(number), begin, end: begin, samples: 1, shadow: false })
}

/// After an outage the server needs 1.5 s per batch. Ten batches would take 15 s.
#[test]
fn the_end_of_a_job_waits_at_most_five_seconds_for_a_slow_server() {
    let is_away = Arc::new(AtomicBool::new(true));
    let away = is_away.clone();
    let address = server(Arc::new(move |batch| {
        if away.load(Ordering::SeqCst) {
            ("503 Service Unavailable\r\nretry-after: 0\r\n".into(), Duration::ZERO)
        } else {
            (acknowledged(batch), Duration::from_millis(1_500))
        }
    }));
    let agent = agent(address);
    let mut recorders: Vec<_> = (0..3).map(|_| agent.recorder()).collect();
    // Each round makes more than half of a batch, which the drain thread's next turn seals.
    for _ in 0..10 {
        for recorder in &mut recorders {
            (0..20_000).for_each(|number| recorder.record(step(number)));
        }
        std::thread::sleep(Duration::from_millis(250));
    }
    is_away.store(false, Ordering::SeqCst);
    let began = Instant::now();
    agent.finish(Ok(()));
    let took = began.elapsed();
    assert!(took < Duration::from_millis(5_500), "the end took {took:?}");
}

/// Any cost exceeds a budget of 0. After three seconds above it, only every second step is recorded in full.
#[test]
fn an_agent_above_its_budget_records_fewer_steps_in_full() {
    let address = server(Arc::new(|batch| (acknowledged(batch), Duration::ZERO)));
    let agent = Agent::start(Config { overhead_budget: 0.0, ..config(address) });
    let mut marks = agent.step_marks();
    let began = Instant::now();
    let first = (0..).find(|&step| {
        let is_shadow = marks.begin_step(Step(step)).shadow;
        marks.enter(SpanKind::Forward);
        std::thread::sleep(Duration::from_millis(1));
        marks.end_step(1);
        is_shadow || began.elapsed() > Duration::from_secs(30)
    });
    let first = first.expect("steps do not run out");
    assert!(first % 2 == 1, "step {first} is not recorded in full after {:?}", began.elapsed());
    assert!(began.elapsed() > Duration::from_secs(3), "one high second is not enough");
    assert!(!marks.begin_step(Step(first + 1)).shadow, "the next step is recorded again");
    agent.finish(Ok(()));
}

/// A server that sends one byte now and then keeps a connection open forever.
#[test]
fn a_server_that_trickles_its_answer_does_not_block_a_job() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = format!("http://{}", listener.local_addr().expect("it is bound"));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut head = "HTTP/1.1 200 OK\r\nx-slow: ".to_owned() + &"a".repeat(10_000);
                while !head.is_empty() && stream.write_all(head.drain(..1).as_str().as_bytes()).is_ok() {
                    std::thread::sleep(Duration::from_millis(50));
                }
            });
        }
    });
    let agent = agent(address);
    agent.recorder().record(step(0));
    let began = Instant::now();
    agent.finish(Ok(()));
    let took = began.elapsed();
    assert!(took < Duration::from_millis(5_500), "the end took {took:?}");
}

/// Records until `count` more batches have arrived. Returns the time between each and the one before it.
fn gaps(recorder: &mut Recorder, arrivals: &mpsc::Receiver<Instant>, count: usize) -> Vec<Duration> {
    let mut arrived = Vec::new();
    while arrived.len() <= count {
        recorder.record(step(0));
        arrived.extend(arrivals.recv_timeout(Duration::from_millis(5)));
    }
    arrived.windows(2).map(|two| two[1] - two[0]).collect()
}

#[test]
fn an_agent_waits_between_batches_as_long_as_the_server_asks() {
    let (arrived, arrivals) = mpsc::channel();
    let asked = Arc::new(AtomicU64::new(700));
    let address = {
        let asked = asked.clone();
        server(Arc::new(move |batch| {
            // The receiver is gone after the end of the test.
            let _ended = arrived.send(Instant::now());
            let interval = asked.load(Ordering::SeqCst);
            (format!("{}paceline-batch-interval: {interval}\r\n", acknowledged(batch)), Duration::ZERO)
        }))
    };
    let agent = agent(address);
    let mut recorder = agent.recorder();
    let slow = gaps(&mut recorder, &arrivals, 2);
    assert!(slow.iter().all(|gap| *gap >= Duration::from_millis(700)), "{slow:?}");
    // Longer than an agent accepts.
    asked.store(60_000, Ordering::SeqCst);
    let fast = gaps(&mut recorder, &arrivals, 6);
    assert!(fast.iter().min().is_some_and(|gap| *gap < Duration::from_millis(400)), "{fast:?}");
    let began = Instant::now();
    agent.finish(Ok(()));
    assert!(began.elapsed() < Duration::from_millis(500), "the end of a job waits for no interval");
}

/// A record stays in the spool until a server proves that it has stored the record.
#[test]
fn neither_a_redirect_nor_an_answer_without_a_receipt_acknowledges_a_batch() {
    let (stored, batches) = mpsc::channel();
    let answers = Arc::new(AtomicU64::new(0));
    let wrong = server(Arc::new(|_: &Batch| ("200 OK\r\n".into(), Duration::ZERO)));
    let address = server(Arc::new(move |batch| {
        let head = match answers.fetch_add(1, Ordering::SeqCst) {
            0 => "200 OK\r\n".into(),
            1 => format!("307 Temporary Redirect\r\nlocation: {wrong}/api/v1/ingest\r\n"),
            2 => format!("303 See Other\r\nlocation: {wrong}/api/v1/clock\r\n"),
            3 => format!("200 OK\r\n{RECEIPT_HEADER}: flush/0/1/0\r\n"),
            _ => {
                // The receiver is gone after the end of the test.
                let _ended = stored.send(batch.clone());
                acknowledged(batch)
            }
        };
        (head, Duration::ZERO)
    }));
    let agent = agent(address);
    agent.recorder().record(step(7));
    agent.finish(Ok(()));
    let events: Vec<Event> = batches.try_iter().flat_map(|batch| batch.events).collect();
    assert_eq!(events, [step(7)], "the record is stored, once");
}
