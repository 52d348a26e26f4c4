//! Measures what the replay of a step costs the server, by the number of spans of each rank.
//!
//! The step has 8 ranks and 84 collectives, as a PyTorch job whose hooks record every module and every wait. Its spans alternate
//! between the phases and, with `waits`, waits for collectives, so that the step is replayed rank by rank. The time of a replay
//! is that of the whole analysis less that of the same step without a replay.
#![allow(clippy::print_stdout, reason = "the output of the program")]

use std::hint::black_box;
use std::time::Instant;

use analysis::records::{RankStep, StepRecords};
use analysis::step::analyze;
use serde_json::json;
use testkit::results::Results;
use timing::clocks::ClockFit;
use wire::clock::MonoNanos;
use wire::event::{BucketRecord, Function, Source, Span, SpanKind, StepRecord};
use wire::ids::{Bucket, Comm, Step};

const RANKS: i64 = 8;
const COLLECTIVES: i64 = 84;
const STEP_NANOS: i64 = 100_000_000;
/// How much later each rank works than the one before it.
const LATER_NANOS: i64 = 100;
const SPANS: [i64; 3] = [2, 693, 1_000];
const ROUNDS: usize = 200;

fn main() -> anyhow::Result<()> {
    let mut results = Results::begin("replay");
    for spans in SPANS {
        for waits in [false, true] {
            let mut samples = measure(&step(spans, waits));
            samples.sort_unstable_by(f64::total_cmp);
            let (median, p90) = (samples[ROUNDS / 2], samples[ROUNDS * 9 / 10]);
            println!("{spans} spans, waits in mid-step: {waits}: {median:.3} ms, 90 % below {p90:.3} ms");
            results.add(json!({
                "what": "replay", "ranks": RANKS, "collectives": COLLECTIVES, "spans": spans, "waits": waits,
                "median_ms": median, "p90_ms": p90, "samples_ms": samples,
            }));
        }
    }
    println!("raw: {}", results.finish()?.display());
    Ok(())
}

/// Returns the milliseconds that the replay takes, round by round.
fn measure(records: &StepRecords) -> Vec<f64> {
    let fits = vec![Some(ClockFit::exact()); records.ranks.len()];
    let mut shadowed = records.clone();
    // A step of which one rank is a shadow is analyzed and not replayed.
    shadowed.ranks.iter_mut().flatten().take(1).for_each(|rank| rank.record.shadow = true);
    assert!(analyze(records, &fits).replay.is_some() && analyze(&shadowed, &fits).replay.is_none());
    let millis = |records: &StepRecords| {
        let began = Instant::now();
        black_box(analyze(black_box(records), &fits));
        began.elapsed().as_secs_f64() * 1e3
    };
    (0..ROUNDS).map(|_| millis(records) - millis(&shadowed)).collect()
}

fn step(spans: i64, waits: bool) -> StepRecords {
    StepRecords {
        step: Step(0),
        ranks: (0..RANKS).map(|rank| Some(Box::new(rank_step(rank, spans, waits)))).collect(),
        absent: 0,
    }
}

fn rank_step(rank: i64, spans: i64, waits: bool) -> RankStep {
    use SpanKind::{Backward, Blocked, Forward, Input};
    let kinds =
        if waits { [Forward, Blocked, Backward, Input] } else { [Input, Forward, Backward, Backward] };
    let span_nanos = STEP_NANOS / spans;
    let span = |at: i64| Span {
        step: Step(0),
        kind: kinds[(at % 4) as usize],
        begin: MonoNanos(at * span_nanos),
        end: MonoNanos((at + 1) * span_nanos - rank),
        cpu_nanos: 0,
    };
    let bucket = |at: i64| {
        let start = MonoNanos((at + 1) * STEP_NANOS / (COLLECTIVES + 1) + rank * LATER_NANOS);
        BucketRecord {
            step: Step(0),
            comm: Comm(0),
            seq: Function::AllReduce.numbered(at as u64),
            bucket: Bucket(at as u32),
            bytes: 1 << 20,
            ready: start,
            launch: start,
            start,
            end: start + 10 * LATER_NANOS,
            source: Source::HostClock,
        }
    };
    let record = StepRecord {
        step: Step(0),
        begin: MonoNanos(0),
        end: MonoNanos(STEP_NANOS),
        samples: 1,
        shadow: false,
    };
    RankStep {
        record,
        spans: (0..spans).map(span).collect(),
        buckets: (0..COLLECTIVES).map(bucket).collect(),
    }
}
