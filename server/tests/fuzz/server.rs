//! A complete server on a disk in memory. Its router is called without a socket, and it has runs to show.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt as _;
use paceline::captures::Capturing;
use paceline::clock::ServerClock;
use paceline::http::assets::Asset;
use paceline::http::guard::Guard;
use paceline::http::{App, router};
use paceline::ingest::Intake;
use paceline::metrics::Metrics;
use paceline::state::hub::Hub;
use paceline::store::directory::Layout;
use paceline::store::log::Log;
use paceline::store::log::writer::Writer;
use paceline::store::sealer::Sealer;
use paceline::vitals::Vitals;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tower::ServiceExt as _;
use wire::batch::Batch;
use wire::clock::{ClockAnchor, MonoNanos, UnixNanos};
use wire::event::{BucketRecord, Event, Source, Span, SpanKind, StepRecord};
use wire::fixtures;
use wire::ids::{BatchSeq, Bucket, Comm, Rank, RunId, Seq, Step};

use super::memory::MemoryDisk;

/// A page of one document: without it, every path beyond the API is answered 503.
static PAGE: [Asset; 1] = [Asset { path: "index.html", plain: b"<!doctype html>", br: None, gz: None }];

/// A server, and what keeps it running.
pub struct Tried {
    pub runtime: Runtime,
    pub app: App,
    pub router: Router,
    /// Ends live streams once true is sent.
    pub stop: watch::Sender<bool>,
}

/// An answer of the server.
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Tried {
    /// Starts a server without runs.
    pub fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("threads can be started");
        let _inside = runtime.enter();
        let (metrics, clock, vitals) = (Arc::new(Metrics::new()), ServerClock::start(), Vitals::default());
        let layout = Layout::with_disk(Arc::new(MemoryDisk::default()), "/data");
        let (sealer, _thread) = Sealer::start(layout.clone(), &vitals).expect("a thread can be started");
        let log = Log::start(Writer::new(layout.clone()), metrics.server.clone(), sealer, &vitals);
        let log = log.expect("a thread can be started");
        let hub = Hub::start(Default::default(), clock, metrics.clone(), &vitals, log.clone(), None);
        let intake = Intake::new(hub.clone(), metrics.server.clone(), clock);
        let guard = Arc::new(Guard { loopback_only: true, ..Guard::default() });
        let (stop, stopping) = watch::channel(false);
        let captures = Capturing::new(hub.clone(), layout, clock);
        let (turns, imports, streams) = Default::default();
        let app = App {
            hub,
            log,
            captures,
            page: &PAGE,
            metrics,
            clock,
            guard,
            vitals,
            intake,
            turns,
            imports,
            streams,
            stopping,
        };
        let router = router(app.clone());
        Self { runtime, app, router, stop }
    }

    /// Starts a server with two runs: `one` of two ranks and 40 steps, and `wide`, whose two steps are as far apart as
    /// step numbers allow.
    pub fn with_runs() -> Self {
        let tried = Self::start();
        for rank in 0..2 {
            for part in 0..4 {
                let steps = part * 10..part * 10 + 10;
                assert_eq!(tried.send(&batch("one", rank, 2, part, steps)), StatusCode::OK);
            }
        }
        for (seq, step) in [0, u64::from(u32::MAX)].into_iter().enumerate() {
            assert_eq!(tried.send(&batch("wide", 0, 1, seq as u64, step..step + 1)), StatusCode::OK);
        }
        tried
    }

    pub fn send(&self, batch: &Batch) -> StatusCode {
        let frame = wire::codec::encode(batch).expect("it compresses");
        let request = Request::post("/api/v1/ingest").header("host", "localhost").body(Body::from(frame));
        self.ask(request.expect("a valid request")).status
    }

    pub fn get(&self, path: &str) -> Answer {
        let request = Request::get(path).header("host", "localhost").body(Body::empty());
        self.ask(request.expect("a valid request"))
    }

    pub fn ask(&self, request: Request<Body>) -> Answer {
        self.runtime.block_on(async {
            let Ok(answer) = self.router.clone().oneshot(request).await;
            let (parts, body) = answer.into_parts();
            let body = body.collect().await.expect("the body is in memory").to_bytes();
            Answer { status: parts.status, headers: parts.headers, body }
        })
    }

    /// Returns what is wrong with the server, if anything.
    pub fn trouble(&self) -> Option<String> {
        let aside = self.app.hub.snapshot();
        let aside =
            aside.aside.iter().next().map(|(run, reason)| format!("run {run} is set aside: {reason}"));
        self.app.vitals.failure().or(aside)
    }
}

/// Returns a batch with steps of one rank: phases, three collectives per step, and the ends of the steps.
pub fn batch(run: &str, rank: u32, world_size: u32, seq: u64, steps: std::ops::Range<u64>) -> Batch {
    let events = steps.flat_map(|step| step_events(step, rank)).collect();
    Batch {
        run: RunId::new(run).expect("a name"),
        rank: Rank(rank),
        world_size,
        seq: BatchSeq(seq),
        anchor: ClockAnchor { mono: MonoNanos(1_000), unix: UnixNanos(1_790_000_000_000_000_000) },
        events,
        ..fixtures::batch()
    }
}

const STEP_NANOS: i64 = 30_000_000;

fn step_events(number: u64, rank: u32) -> Vec<Event> {
    let begin = number as i64 * STEP_NANOS;
    let (step, late) = (Step(number), 1_000 * i64::from(rank));
    let phases = SpanKind::ALL.into_iter().zip(0..).map(|(kind, at)| {
        let begin = MonoNanos(begin + at * 4_000_000);
        Event::Span(Span { step, kind, begin, end: MonoNanos(begin.0 + 3_500_000), cpu_nanos: 3_000_000 })
    });
    let collectives = (0..3).map(|bucket| {
        let ready = begin + 10_000_000 + i64::from(bucket) * 2_000_000 + late;
        let [ready, launch, start, end] = [0, 10_000, 40_000, 900_000].map(|delay| MonoNanos(ready + delay));
        let (seq, bucket) = (Seq(number * 3 + u64::from(bucket)), Bucket(bucket));
        let (comm, bytes, source) = (Comm(0), 4_000, Source::HostClock);
        Event::Bucket(BucketRecord { step, comm, seq, bucket, bytes, ready, launch, start, end, source })
    });
    let end = MonoNanos(begin + STEP_NANOS - 1_000 + late);
    let whole =
        Event::Step(StepRecord { step, begin: MonoNanos(begin), end, samples: 8, shadow: number % 16 == 15 });
    phases.chain(collectives).chain([whole]).collect()
}
