//! What ran, by name: sums over recorded traces against an independent program, and planted differences between ranks.

use std::fs::File;

use import::kineto::{Trace, device_steps, read, summary};
use wire::traces::{TraceRowKind, TraceSummary};

fn summaries(set: &str) -> Option<Vec<TraceSummary>> {
    let folder = super::traces()?.join(set);
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    Some(files.iter().map(|file| trace_summary(&read(File::open(file).unwrap()).unwrap())).collect())
}

fn trace_summary(trace: &Trace) -> TraceSummary {
    summary(trace, &device_steps(trace).iter().collect::<Vec<_>>())
}

/// Returns the time and the gaps of what has this name, in nanoseconds per step of these ranks.
fn per_step(ranks: &[TraceSummary], kind: TraceRowKind, name: &str) -> (f64, f64) {
    let steps: u32 = ranks.iter().map(|rank| rank.steps).sum();
    let rows = ranks.iter().flat_map(|rank| &rank.rows).filter(|row| row.kind == kind && row.name == name);
    let (nanos, gaps) = rows.fold((0, 0), |sum, row| (sum.0 + row.nanos, sum.1 + row.gap_nanos));
    (nanos as f64 / f64::from(steps), gaps as f64 / f64::from(steps))
}

#[test]
fn sums_are_those_of_an_independent_program() {
    let Some(ranks) = summaries("torchrec_sleep_pl") else { return };
    for (kind, name, millis) in [
        (TraceRowKind::Runtime, "cudaStreamSynchronize", 479.221),
        (TraceRowKind::Operator, "aten::cat", 251.708),
        (TraceRowKind::Range, "# running sparse arch", 251.274),
        (TraceRowKind::Runtime, "cudaMalloc", 63.015),
        (TraceRowKind::Kernel, "volta_sgemm_128x64_tn", 16.528),
        (TraceRowKind::Operator, "aten::split_with_sizes", 2.5),
    ] {
        let (nanos, _) = per_step(&ranks, kind, name);
        assert!((nanos / 1e6 - millis).abs() < 0.001, "{name}: {nanos} ns per step, not {millis} ms");
    }
}

/// In these traces, rank 2 sleeps for a second in each step, within a range that the job names. The others wait for it in a call
/// of the runtime.
#[test]
fn a_planted_sleep_is_what_differs() {
    let Some(ranks) = summaries("torchrec_sleep_pl") else { return };
    let slept = |rank: usize| per_step(&ranks[rank..=rank], TraceRowKind::Range, "# running sparse arch").0;
    assert!((0.9e9..1.1e9).contains(&slept(2)), "{}", slept(2));
    assert!([0, 1, 3].iter().all(|rank| slept(*rank) < 0.1e9));
    let waited =
        |rank: usize| per_step(&ranks[rank..=rank], TraceRowKind::Runtime, "cudaStreamSynchronize").0;
    assert!([0, 1, 3].iter().all(|rank| waited(*rank) > 0.5e9) && waited(2) < 0.1e9);
}

#[test]
fn traces_of_all_releases_have_operators_and_steps() {
    let Some(folder) = super::traces() else { return };
    for (name, steps) in [
        ("kineto_2021/samples__resnet50_num_workers_4__worker0.pt.trace.json.gz", None),
        ("torchrec_a2a_opt2_runB", Some(3)),
        ("hta_cpu_only", Some(1)),
    ] {
        let path = folder.join(name);
        let files = match path.is_dir() {
            true => std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()).collect(),
            false => vec![path],
        };
        for file in files {
            let summary = trace_summary(&read(File::open(&file).unwrap()).unwrap());
            let totals = summary.totals();
            assert!(steps.is_none_or(|steps| summary.steps == steps), "{}: {totals:?}", file.display());
            assert!(totals.step_nanos > 0.0 && !summary.rows.is_empty(), "{}: {totals:?}", file.display());
            assert!(
                totals.gap_nanos.unwrap_or(0.0) < 2.0 * totals.step_nanos,
                "{}: {totals:?}",
                file.display()
            );
        }
    }
}
