//! Steps in the collectives of recorded jobs: all ranks must number them alike, whatever each rank sees of their times. The
//! traces are not part of the repository; without them, there is nothing to check.
#![allow(clippy::print_stderr, reason = "says that it checks nothing")]

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use import::kineto::{Kind, Trace, Work, device_steps, read};
use paceline_attach::call_log::Function;
use paceline_attach::infer::collective::{Collective, Ran, Timed};
use paceline_attach::infer::place::Placer;
use wire::clock::MonoNanos;
use wire::event::{Event, Source};
use wire::ids::{Bucket, Seq, Step};

/// The sets that have the traces of several ranks of one job.
const SETS: [&str; 4] =
    ["param_dlrm8", "torchrec_a2a_opt2_runB", "torchrec_log_resnet18_2rank", "torchrec_sleep_pl"];
const COMMUNICATOR: u64 = 7;
/// How long a rank sleeps in a step, in nanoseconds.
const SLEEP_NANOS: i64 = 20_000_000;
/// How long a recorded step is played again and again, in nanoseconds.
const PLAYED_NANOS: i64 = 8_000_000_000;

/// A collective of the recorded step on one rank; times in nanoseconds since the step began.
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
        eprintln!("SKIP: no recorded traces at {}", folder.display());
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

/// Returns the collectives of each step that a trace marks.
fn steps(trace: &Trace) -> Vec<Vec<Recorded>> {
    let launches: BTreeMap<u64, i64> =
        trace.launches.iter().map(|launch| (launch.correlation, launch.at)).collect();
    let recorded = |work: &Work, begin: i64| {
        let launch = launches.get(&work.correlation).copied().unwrap_or(work.begin).min(work.begin);
        let [launch, start, end] = [launch, work.begin, work.end].map(|time| time - begin);
        Some(Recorded { function: function(work)?, launch, start, end })
    };
    let of_step = |step: &import::kineto::DeviceStep| {
        step.work.iter().filter_map(|&at| recorded(&trace.work[at], step.begin)).collect()
    };
    device_steps(trace).iter().map(of_step).collect()
}

/// Returns the collectives of one step by rank: of the last step that is recorded alike on all ranks.
fn one_step(traces: &[Trace]) -> Vec<Vec<Recorded>> {
    let by_rank: Vec<Vec<Vec<Recorded>>> = traces.iter().map(steps).collect();
    let functions = |step: &[Recorded]| step.iter().map(|one| one.function).collect::<Vec<_>>();
    let is_alike = |at: &usize| {
        let first = by_rank[0].get(*at).map(|step| functions(step));
        first.as_ref().is_some_and(|first| !first.is_empty())
            && by_rank.iter().all(|steps| steps.get(*at).map(|step| functions(step)) == first)
    };
    let at = (0..by_rank[0].len()).rev().find(is_alike).expect("a step that is alike");
    by_rank.into_iter().map(|mut steps| steps.swap_remove(at)).collect()
}

/// Adds a sleep on rank `asleep` before its collective at `before`. The other ranks wait in that collective.
fn with_sleep(step: &[Vec<Recorded>], asleep: usize, before: usize) -> Vec<Vec<Recorded>> {
    let of_rank = |(rank, own): (usize, &Vec<Recorded>)| {
        let slept = |(at, one): (usize, &Recorded)| match at {
            at if at < before => *one,
            at if at == before && rank != asleep => Recorded { end: one.end + SLEEP_NANOS, ..*one },
            _ => one.later(SLEEP_NANOS),
        };
        own.iter().enumerate().map(slept).collect()
    };
    step.iter().enumerate().map(of_rank).collect()
}

/// Plays a step again and again on one rank, `length` nanoseconds apart. Returns the place of each collective.
fn places(step: &[Recorded], length: i64) -> BTreeMap<Seq, (Step, Bucket)> {
    let mut placer = Placer::default();
    placer.name_world(COMMUNICATOR);
    let mut counts: BTreeMap<Function, u64> = BTreeMap::new();
    let mut found = BTreeMap::new();
    for number in 0..PLAYED_NANOS / length {
        for one in step.iter().map(|one| one.later((number + 1) * length)) {
            let count = counts.entry(one.function).or_default();
            let [launch, start, end] = [one.launch, one.start, one.end].map(MonoNanos);
            let ran = Ran::Events { begin: start, end };
            let (communicator, function, seq, bytes) = (COMMUNICATOR, one.function, *count, 0);
            let (is_sent, begins) = (false, None);
            let collective = Collective { communicator, function, seq, bytes, launch, ran, is_sent, begins };
            *count += 1;
            placer.ingest(&Timed { collective, start, end, source: Source::DeviceEvent }, |event| {
                if let Event::Bucket(bucket) = event {
                    found.insert(bucket.seq, (bucket.step, bucket.bucket));
                }
            });
        }
    }
    found
}

/// Fails if two ranks give a collective another place.
fn check(set: &str, step: &[Vec<Recorded>], asleep: Option<(usize, usize)>) {
    let ends = step.iter().flatten().map(|one| one.end);
    let begins = step.iter().flatten().map(|one| one.start.min(0));
    let length = ends.max().unwrap_or(0) - begins.min().unwrap_or(0) + 1_000_000;
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
