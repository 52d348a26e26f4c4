//! Tests of the comparison, on small traces and on real ones.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::*;

/// Returns the files in a folder, in the order of their names.
fn files_of(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// Returns the folder of recorded traces. Where it does not exist, returns `None` and says that the test is skipped.
#[expect(clippy::print_stderr, reason = "says that a test is skipped")]
fn recorded(name: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/traces");
    let found = Some(folder.join(name)).filter(|path| path.exists());
    if found.is_none() {
        eprintln!("SKIP recorded traces: {} does not exist", folder.display());
    }
    found
}

fn read(path: &Path) -> Summary {
    let file = File::open(path).unwrap();
    if path.extension().is_some_and(|extension| extension == "gz") {
        summary(flate2::read::MultiGzDecoder::new(file)).unwrap()
    } else {
        summary(file).unwrap()
    }
}

fn of(summary: &Summary, kind: TraceRowKind, name: &str) -> (f64, u64) {
    summary.sums[&(kind, name.to_owned())]
}

const SMALL: &str = r#"{"schemaVersion": 1, "traceEvents": [
    {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#8", "pid": 1, "tid": 1, "ts": 1200.0, "dur": 100.5},
    {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#7", "pid": 1, "tid": 1, "ts": 1000.0, "dur": 200},
    {"ph": "X", "cat": "cpu_op", "name": "aten::conv", "pid": 1, "tid": 1, "ts": 1010, "dur": 100, "args": {"Ev Idx": 3}},
    {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 1020, "dur": 30},
    {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 2, "ts": 1020, "dur": 50},
    {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 1025, "dur": 5, "args": {"correlation": 4}},
    {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 900, "dur": 50},
    {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 1310, "dur": 40, "args": {"correlation": 4, "stream": 7}},
    {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 1100, "dur": 40, "args": {"correlation": 3}},
    {"ph": "i", "cat": "cpu_op", "name": "instant", "pid": "Traces", "tid": "Trace", "ts": 1, "s": "g"},
    {"ph": "f", "name": "flow", "id": 3, "pid": 1, "tid": 1, "ts": 3.5}
], "traceName": "x"}"#;

#[test]
fn self_time_leaves_out_what_lies_within_and_a_kernel_belongs_to_the_step_that_launched_it() {
    let small = summary(SMALL.as_bytes()).unwrap();
    let operator = TraceRowKind::Operator;
    assert_eq!(of(&small, operator, "aten::conv"), (70_000.0, 1));
    assert_eq!(of(&small, operator, "aten::add"), (75_000.0, 2), "before the first step nothing counts");
    assert_eq!(of(&small, TraceRowKind::Runtime, "cudaLaunchKernel"), (5_000.0, 1));
    assert_eq!(of(&small, TraceRowKind::Kernel, "gemm"), (40_000.0, 1));
    assert_eq!(of(&small, TraceRowKind::Outside, OUTSIDE), (200_500.0, 2));
    let totals = small.totals;
    assert_eq!((totals.steps, totals.step_nanos, totals.kernel_nanos), (2, 150_250.0, Some(20_000.0)));
    assert_eq!((totals.operator_nanos, totals.gap_nanos), (72_500.0, Some(0.0)));
}

#[test]
fn what_takes_the_compared_rank_longer_comes_first() {
    let slow = SMALL.replace(r#""ts": 1010, "dur": 100"#, r#""ts": 1010, "dur": 150"#);
    let [slow, small] = [&slow, SMALL].map(|text| summary(text.as_bytes()).unwrap());
    let compared = compare((Rank(2), &slow), (Rank(3), &small), Step(7));
    let rows: Vec<(&str, f64)> =
        compared.rows.iter().map(|row| (row.name.as_str(), row.difference())).collect();
    assert_eq!(rows, [("aten::conv", 25_000.0), (OUTSIDE, -25_000.0)]);
    assert_eq!((compared.rank, compared.against, compared.left_out), (Rank(2), Rank(3), 0));
    assert!(compare((Rank(0), &small), (Rank(1), &small), Step(7)).rows.is_empty());
}

#[test]
fn a_text_that_is_no_trace_is_an_error() {
    for (text, reason) in [
        ("", "cannot be read"),
        ("[]", "marks no step"),
        ("{\"traceEvents\": [", "cannot be read"),
        ("{\"traceEvents\": 3}", "cannot be read"),
        (&SMALL[..SMALL.len() / 2], "cannot be read"),
        (&SMALL.replace("ProfilerStep", "Step"), "marks no step"),
    ] {
        let error = summary(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(reason), "{text}: {error}");
    }
}

#[test]
fn recorded_traces_of_several_schemas_are_read() {
    let Some(folder) = recorded("") else { return };
    for (name, steps, has_operators) in [
        ("kineto_2021/samples__resnet50_num_workers_4__worker0.pt.trace.json.gz", None, true),
        ("torchrec_sleep_pl", Some(3), true),
        ("torchrec_a2a_opt2_runB", Some(3), true),
        // Its operators are all outside of its step.
        ("hta_cpu_only", Some(1), false),
    ] {
        let path = folder.join(name);
        for file in if path.is_dir() { files_of(&path) } else { vec![path] } {
            let totals = read(&file).totals;
            assert!(steps.is_none_or(|steps| totals.steps == steps), "{}: {totals:?}", file.display());
            assert_eq!(totals.operator_nanos > 0.0, has_operators, "{}: {totals:?}", file.display());
            assert!(totals.operator_nanos.is_sign_positive() && totals.step_nanos > 0.0, "{totals:?}");
        }
    }
}

/// In these traces, rank 2 sleeps for a second in each step, within a range that the job names. The others wait for it in an
/// operator.
#[test]
fn a_planted_sleep_is_what_differs() {
    let Some(folder) = recorded("torchrec_sleep_pl") else { return };
    let ranks: Vec<Summary> = files_of(&folder).iter().map(|file| read(file)).collect();
    let compared = |rank: usize, against: usize| {
        compare((Rank(rank as u32), &ranks[rank]), (Rank(against as u32), &ranks[against]), Step(4))
    };
    for other in [0, 1, 3] {
        let found = compared(2, other);
        let (first, last) = (&found.rows[0], found.rows.last().unwrap());
        assert!(
            first.kind == TraceRowKind::Range && (0.9e9..1.1e9).contains(&first.difference()),
            "{first:?}"
        );
        assert!(last.difference() < -0.9e9, "{last:?}");
    }
    assert!(compared(0, 1).rows.iter().all(|row| row.difference().abs() < 0.1e9));
}
