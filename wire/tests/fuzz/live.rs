//! Fuzz targets for frames of the live stream, as the dashboard decodes them. Frames carry the version of this build,
//! so the corpus is made here and not stored in files.

use fuzz::{Corpus, Verdict};
use paceline_wire::fixtures;
use paceline_wire::live::tile::{MAX_CELLS, Tile};
use paceline_wire::live::{FLAG_SHADOW, SliceKind, StepColumns, StepRanks, Waterfall, view};
use paceline_wire::views::{Cause, Culprit, LiveView, RunSummary, VerdictState, WorstVerdict};

use super::{ensure, measured};

/// The memory that a reader reserves for a list of a view before it knows the list's length, for all nested lists.
const RESERVED: usize = 8 << 20;

fn corpus() -> Corpus {
    let (two, parts) = (vec![1.0; 2], std::array::from_fn(|part| vec![part as f32; 2]));
    let steps = StepColumns {
        reset: true,
        ranks: 2,
        step: vec![7, 9],
        ended_unix_nanos: vec![1, u64::MAX],
        step_nanos: vec![30.0, f32::NAN],
        samples: vec![8, 8],
        overlap: vec![0.5, f32::INFINITY],
        parts: parts.clone(),
        flags: vec![FLAG_SHADOW, 0],
    };
    let ranks = StepRanks { step: 3, parts, rank_nanos: two.clone(), lateness: two, flags: vec![0, 1] };
    let tile = Tile { step: 8, per_column: 4, rank: 0, per_row: 2, rows: 2, values: vec![1.0; 6] };
    let summary = RunSummary {
        throughput: Some(1.5),
        batch: Some(64.0),
        efficiency_implied: Some(0.5),
        verdict: Some("one".into()),
        worst: Some(WorstVerdict {
            culprit: Some(Culprit::Ranks(vec![1, 2])),
            cause: Cause::Input,
            state: VerdictState::Active,
            cost_share: 0.25,
        }),
        step_times: vec![1e6, f32::NAN],
        ..fixtures::run_summary()
    };
    let runs = LiveView::Runs { runs: vec![summary.clone(), summary] };
    let encoded = |view: &LiveView| view::encode(view).expect("it is plain data");
    Corpus::default()
        .with("steps", steps.encode())
        .with("no steps", StepColumns::default().encode())
        .with("ranks", ranks.encode())
        .with("waterfall", waterfall().encode())
        .with("tile", tile.encode())
        .with("runs", encoded(&runs))
        .with("no such run", encoded(&LiveView::NoSuchRun))
}

fn waterfall() -> Waterfall {
    Waterfall {
        step: 3,
        origin_unix_nanos: 5,
        span_nanos: 9.0,
        only_enqueued: true,
        rank: vec![0, 1],
        clock_bound: vec![1.0, 2.0],
        rank_begin: vec![0.0; 2],
        rank_end: vec![9.0; 2],
        slice_row: vec![0, 1],
        slice_kind: vec![0, 10],
        slice_bucket: vec![u32::MAX, 0],
        slice_begin: vec![0.0; 2],
        slice_end: vec![4.0; 2],
        bucket_row: vec![1],
        bucket: vec![0],
        bucket_seq: vec![77],
        bucket_function: vec![4],
        bucket_comm: vec![0],
        bucket_bytes: vec![4],
        bucket_ready: vec![1.0],
        bucket_launch: vec![2.0],
        bucket_start: vec![3.0],
        bucket_end: vec![4.0],
        bucket_wait: vec![0.5],
        bucket_wait_clock_free: vec![f64::NAN],
    }
}

/// Indexes a consistent frame without checks, as a chart does.
fn is_readable(steps: &StepColumns) -> Verdict {
    let sum: f64 = (0..steps.step.len())
        .filter(|_| steps.is_consistent())
        .map(|at| {
            let parts: f32 = steps.parts.iter().map(|part| part[at]).sum();
            f64::from(parts + steps.step_nanos[at] + steps.overlap[at])
                + (steps.ended_unix_nanos[at] ^ steps.samples[at]) as f64
                + f64::from(steps.flags[at])
        })
        .sum();
    ensure(sum.is_nan() || sum.is_infinite() || sum.abs() >= 0.0, || "the sum is not a number".into())
}

fn is_readable_waterfall(step: &Waterfall) -> Verdict {
    if !step.is_consistent() {
        return Ok(());
    }
    for at in 0..step.slice_row.len() {
        let row = step.slice_row[at] as usize;
        let length = (step.slice_end[at] - step.slice_begin[at]) + step.rank_end[row] - step.rank_begin[row];
        let kind = SliceKind::ALL[usize::from(step.slice_kind[at])];
        let bucket = step.slice_bucket[at];
        let bytes = if bucket == u32::MAX { 0 } else { step.bucket_bytes[bucket as usize] };
        ensure(length.is_nan() || !kind.name().is_empty() || bytes > 0, || "nothing".into())?;
    }
    for at in 0..step.bucket_row.len() {
        let times = [&step.bucket_ready, &step.bucket_launch, &step.bucket_start, &step.bucket_end];
        let waits = [&step.bucket_wait, &step.bucket_wait_clock_free];
        let sum: f64 = times.into_iter().chain(waits).map(|column| column[at]).sum();
        let known = step.rank[step.bucket_row[at] as usize];
        ensure(sum.is_nan() || u64::from(known) <= u64::from(u32::MAX), || "nothing".into())?;
    }
    Ok(())
}

/// Checks that a decoded frame encodes to the same bytes.
macro_rules! same_bytes {
    ($type:ident, $bytes:expr, $also:expr) => {{
        let (decoded, held) = measured(|| $type::decode($bytes));
        ensure(held <= 2 * $bytes.len() + 1_024, || format!("decoding held {held} bytes"))?;
        if let Ok(frame) = decoded {
            ensure(frame.encode() == *$bytes, || format!("it decodes as {frame:?}"))?;
            $also(&frame)?;
            true
        } else {
            false
        }
    }};
}

#[test]
fn frames() {
    // The version is restored, because nearly every mutation would otherwise spoil it.
    let version = StepRanks::default().encode()[4..6].to_vec();
    corpus().check("live", 40_000, |bytes, choice| {
        let mut bytes = bytes.to_vec();
        if bytes.len() >= 8 && !choice.is_multiple_of(16) {
            bytes[..4].copy_from_slice(b"PCLV");
            bytes[4..6].copy_from_slice(&version);
        }
        let kinds = [
            same_bytes!(StepColumns, &bytes, is_readable),
            same_bytes!(StepRanks, &bytes, |ranks: &StepRanks| {
                let entries = ranks.rank_nanos.len().min(if ranks.is_consistent() { usize::MAX } else { 0 });
                let known = (0..entries).filter(|&at| ranks.flags[at] == 0 && ranks.parts[7][at] > 0.0);
                ensure(known.count() <= ranks.lateness.len(), || "there are more ranks than entries".into())
            }),
            same_bytes!(Waterfall, &bytes, is_readable_waterfall),
            same_bytes!(Tile, &bytes, |tile: &Tile| {
                let cells = tile.columns() * tile.rows as usize;
                let is_whole = cells == tile.values.len() && cells <= MAX_CELLS;
                ensure(!tile.is_consistent() || is_whole, || format!("{cells} cells"))
            }),
            is_view(&bytes)?,
        ];
        let kinds = kinds.into_iter().filter(|&is| is).count();
        ensure(kinds <= 1, || format!("the bytes are {kinds} kinds of frame at once"))
    });
}

/// Checks that a decoded view survives another round trip. Its bytes may differ, because a view may encode a number in
/// two ways.
fn is_view(bytes: &[u8]) -> Result<bool, String> {
    let (decoded, held) = measured(|| view::decode::<LiveView>(bytes));
    ensure(held <= 128 * bytes.len() + RESERVED, || format!("a view held {held} bytes"))?;
    let Ok(shown) = decoded else { return Ok(false) };
    let encode = |shown: &LiveView| view::encode(shown).map_err(|error| error.to_string());
    let written = encode(&shown)?;
    ensure(written.len() <= bytes.len(), || format!("it decodes as {shown:?}"))?;
    let again: LiveView = view::decode(&written).map_err(|error| error.to_string())?;
    ensure(encode(&again)? == written, || format!("after a round trip it is {again:?}"))?;
    Ok(true)
}
