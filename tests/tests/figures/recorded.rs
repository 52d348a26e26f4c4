//! The collectives of recorded jobs, played through the inference of an unmodified job: all ranks must number them alike,
//! whatever each rank sees of their times, and the culprit must be that of the whole traces. The traces are not part of the
//! repository; without them, there is nothing to check.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::ensure;
use attach::call_log::Function;
use attach::infer::collective::{Collective, Ran, Timed};
use attach::infer::place::Placer;
use import::kineto::{DeviceStep, Kind, Trace, Work, device_steps, read};
use paceline::store::segment::Received;
use serde_json::Value;
use testkit::fetch;
use testkit::programs::report;
use testkit::stored::store;
use wire::batch::{Batch, Bye, Hello, Instrumentation, Note};
use wire::clock::{MonoNanos, Probe, ServerNanos};
use wire::event::{Event, Source};
use wire::fixtures;
use wire::ids::{Bucket, Rank, RunId, Seq, Step};

/// The sets that have the traces of several ranks of one job.
const SETS: [&str; 4] =
    ["param_dlrm8", "torchrec_a2a_opt2_runB", "torchrec_log_resnet18_2rank", "torchrec_sleep_pl"];
const COMMUNICATOR: u64 = 7;
/// How long a rank sleeps in a step, in nanoseconds.
const SLEEP_NANOS: i64 = 20_000_000;
/// How long a recorded step is played again and again, in nanoseconds.
const PLAYED_NANOS: i64 = 8_000_000_000;

/// The number of steps that a verdict on a played job rests on.
const JUDGED_STEPS: i64 = 60;

/// A collective of the recorded step on one rank; times in nanoseconds since the step began on some rank.
#[derive(Clone, Copy, Debug)]
struct Recorded {
    function: Function,
    launch: i64,
    start: i64,
    end: i64,
}

impl Recorded {
    fn later(self, nanos: i64) -> Self {
        let Self { function, launch, start, end } = self;
        Self { function, launch: launch + nanos, start: start + nanos, end: end + nanos }
    }
}

/// Returns the traces of a set, if it is there.
fn traces(set: &str) -> Option<Vec<Trace>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/traces").join(set);
    if !folder.is_dir() {
        fetch::skip("a recorded job", &format!("there is no folder {}", folder.display()));
        return None;
    }
    let files = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let mut files: Vec<PathBuf> = files.collect();
    files.sort();
    let trace = |path: PathBuf| read(File::open(path).expect("a file")).expect("a trace");
    Some(files.into_iter().map(trace).collect())
}

/// Returns the function of a kernel. The messages of these jobs are those of all-to-alls.
fn function(work: &Work) -> Option<Function> {
    match work.kind {
        Kind::Collective(Function::SendReceive) => Some(Function::AllToAll),
        Kind::Collective(function) => Some(function),
        _ => None,
    }
}

/// Returns the collectives of each step that a trace marks. Times are since the epoch.
fn steps(trace: &Trace) -> Vec<Vec<Recorded>> {
    let launches: BTreeMap<u64, i64> =
        trace.launches.iter().map(|launch| (launch.correlation, launch.at)).collect();
    let recorded = |work: &Work| {
        let launch = launches.get(&work.correlation).copied().unwrap_or(work.begin).min(work.begin);
        let [launch, start, end] = [launch, work.begin, work.end].map(|time| time + trace.base_nanos);
        Some(Recorded { function: function(work)?, launch, start, end })
    };
    let collectives =
        |step: &DeviceStep| step.work.iter().filter_map(|&at| recorded(&trace.work[at])).collect();
    device_steps(trace).iter().map(collectives).collect()
}

/// Returns the collectives of one step by rank: of the last step that is recorded alike on all ranks.
fn one_step(traces: &[Trace]) -> Vec<Vec<Recorded>> {
    let by_rank: Vec<Vec<Vec<Recorded>>> = traces.iter().map(steps).collect();
    let functions = |step: &[Recorded]| step.iter().map(|collective| collective.function).collect::<Vec<_>>();
    let is_alike = |at: &usize| {
        let first = by_rank[0].get(*at).map(|step| functions(step));
        first.as_ref().is_some_and(|first| !first.is_empty())
            && by_rank.iter().all(|steps| steps.get(*at).map(|step| functions(step)) == first)
    };
    let at = (0..by_rank[0].len()).rev().find(is_alike).expect("a step that is alike");
    let step: Vec<Vec<Recorded>> = by_rank.into_iter().map(|mut steps| steps.swap_remove(at)).collect();
    let origin = step.iter().flatten().map(|collective| collective.start).min().unwrap_or(0);
    step.into_iter()
        .map(|own| own.into_iter().map(|collective| collective.later(-origin)).collect())
        .collect()
}

/// Adds a sleep on rank `asleep` before its collective at `before`. The other ranks wait in that collective.
fn with_sleep(step: &[Vec<Recorded>], asleep: usize, before: usize) -> Vec<Vec<Recorded>> {
    let delayed = |(rank, own): (usize, &Vec<Recorded>)| {
        let slept = |(at, recorded): (usize, &Recorded)| match at {
            at if at < before => *recorded,
            at if at == before && rank != asleep => Recorded { end: recorded.end + SLEEP_NANOS, ..*recorded },
            _ => recorded.later(SLEEP_NANOS),
        };
        own.iter().enumerate().map(slept).collect()
    };
    step.iter().enumerate().map(delayed).collect()
}

/// Returns the time from one play of a step to the next, in nanoseconds.
fn length(step: &[Vec<Recorded>]) -> i64 {
    let ends = step.iter().flatten().map(|collective| collective.end);
    let begins = step.iter().flatten().map(|collective| collective.launch.min(0));
    ends.max().unwrap_or(0) - begins.min().unwrap_or(0) + 1_000_000
}

/// Plays a step `times` times on one rank, `length` nanoseconds apart. Returns the records that the inference makes.
fn records(step: &[Recorded], length: i64, times: i64) -> Vec<Event> {
    let mut placer = Placer::default();
    placer.name_world(COMMUNICATOR);
    let mut counts: BTreeMap<Function, u64> = BTreeMap::new();
    let mut found = Vec::new();
    for number in 0..times {
        for recorded in step.iter().map(|collective| collective.later((number + 1) * length)) {
            let count = counts.entry(recorded.function).or_default();
            let [launch, start, end] = [recorded.launch, recorded.start, recorded.end].map(MonoNanos);
            let ran = Ran::Events { begin: start, end };
            let (communicator, function, seq, bytes) = (COMMUNICATOR, recorded.function, *count, 0);
            let (is_sent, begins) = (false, None);
            let collective = Collective { communicator, function, seq, bytes, launch, ran, is_sent, begins };
            *count += 1;
            let timed = Timed { collective, start, end, source: Source::DeviceEvent };
            placer.ingest(&timed, |event| found.push(event));
            placer.settle(|event| found.push(event));
        }
    }
    found
}

/// Returns the place of each collective of a rank that plays a step again and again.
fn places(step: &[Recorded], length: i64) -> BTreeMap<Seq, (Step, Bucket)> {
    let placed = |event| match event {
        Event::Bucket(bucket) => Some((bucket.seq, (bucket.step, bucket.bucket))),
        _ => None,
    };
    records(step, length, PLAYED_NANOS / length).into_iter().filter_map(placed).collect()
}

/// Fails if two ranks give a collective another place.
fn check(set: &str, step: &[Vec<Recorded>], asleep: Option<(usize, usize)>) {
    let length = length(step);
    let by_rank: Vec<_> = step.iter().map(|own| places(own, length)).collect();
    assert!(by_rank.iter().all(|places| places.len() > 20), "{set}: steps are found on all ranks");
    for (rank, places) in by_rank.iter().enumerate() {
        for (seq, place) in places {
            let other = by_rank[0].get(seq).unwrap_or(place);
            assert_eq!(place, other, "{set}: rank {rank} and rank 0 on {seq:?}, asleep: {asleep:?}");
        }
    }
}

#[test]
fn all_ranks_of_recorded_jobs_number_collectives_alike_even_if_one_sleeps() {
    for set in SETS {
        let Some(traces) = traces(set) else { continue };
        let step = one_step(&traces);
        check(set, &step, None);
        for asleep in (0..step.len()).flat_map(|rank| (0..step[0].len()).map(move |at| (rank, at))) {
            check(set, &with_sleep(&step, asleep.0, asleep.1), Some(asleep));
        }
    }
}

/// Returns what the hooks would have sent of a rank, on a clock that is known to the microsecond.
fn batch(set: &str, (rank, ranks): (usize, usize), events: Vec<Event>, end: i64) -> Batch {
    let hello = Hello {
        name: set.to_owned(),
        host: "played".into(),
        clock: "played".into(),
        local_rank: rank as u32,
        instrumentation: Instrumentation::Nccl,
        ..fixtures::hello()
    };
    let probe = |at: i64| Probe {
        sent: MonoNanos(at),
        server_received: ServerNanos(at + 500),
        server_sent: ServerNanos(at + 500),
        received: MonoNanos(at + 1_000),
    };
    Batch {
        run: RunId::new("played").expect("a run id"),
        rank: Rank(rank as u32),
        world_size: ranks as u32,
        probes: vec![probe(0), probe(end)],
        notes: vec![Note::Hello(hello), Note::Bye(Bye { completed: true, reason: String::new() })],
        events,
        ..fixtures::batch()
    }
}

/// Plays a step on all ranks, and returns the report.
fn judged(set: &str, step: &[Vec<Recorded>]) -> anyhow::Result<Value> {
    let length = length(step);
    let times = JUDGED_STEPS.max(PLAYED_NANOS / length);
    let received = |(rank, own): (usize, &Vec<Recorded>)| {
        let (end, events) = ((times + 1) * length, records(own, length, times));
        Received { at: ServerNanos(end), batch: batch(set, (rank, step.len()), events, end) }
    };
    let batches: Vec<Received> = step.iter().enumerate().map(received).collect();
    let data = tempfile::tempdir()?;
    store(data.path(), &batches)?;
    report(data.path(), "latest")
}

#[test]
fn the_collectives_of_recorded_jobs_name_the_rank_that_their_traces_name() -> anyhow::Result<()> {
    for (set, culprit) in [
        ("torchrec_sleep_pl", Some(2)),
        ("torchrec_a2a_opt2_runB", Some(2)),
        ("param_dlrm8", None),
        // In the one step that is played, rank 1 is 2 ms late: an import takes that for chance, and sixty times it is a fault.
        ("torchrec_log_resnet18_2rank", Some(1)),
    ] {
        let Some(traces) = traces(set) else { continue };
        let report = judged(set, &one_step(&traces))?;
        ensure!(report["steps"].as_u64() >= Some(20), "{set}: {report:#}");
        let verdicts = report["verdicts"].as_array().into_iter().flatten();
        let named: Vec<(&Value, &Value)> =
            verdicts.map(|verdict| (&verdict["culprit"]["rank"], &verdict["cause"])).collect();
        let expected: Vec<u64> = culprit.into_iter().collect();
        let found: Vec<u64> = named.iter().filter_map(|(rank, _)| rank.as_u64()).collect();
        ensure!(found == expected, "{set}: {:#}", report["verdicts"]);
        // Collectives alone do not tell slow compute from a late host.
        ensure!(named.iter().all(|(_, cause)| *cause != "compute"), "{set}: {named:?}");
    }
    Ok(())
}
