//! The figures of recorded traces against reference results, computed independently with exact arithmetic.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use import::kineto::figures::{Figures, Window, figures, work_figures};
use import::kineto::{Trace, device_steps, read};
use import::records::records;
use timing::intervals::Intervals;
use wire::event::{Event, SpanKind};

/// Returns the traces of a set by rank. Where traces do not say their ranks, the order of their names does.
fn set(folder: &Path) -> BTreeMap<u32, Trace> {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = files.collect();
    files.sort();
    let traces = files.iter().map(|path| read(File::open(path).unwrap()).unwrap());
    traces.enumerate().map(|(at, trace)| (trace.rank.unwrap_or(at as u32), trace)).collect()
}

/// The rows of a table, each by column.
fn table(path: &Path) -> Vec<BTreeMap<String, String>> {
    let text = std::fs::read_to_string(path).unwrap();
    let mut lines = text.lines();
    let columns: Vec<&str> = lines.next().unwrap().split(',').collect();
    let row = |line: &str| {
        let cells = columns.iter().zip(line.split(','));
        cells.map(|(column, cell)| ((*column).to_owned(), cell.to_owned())).collect()
    };
    lines.map(row).collect()
}

/// Checks microseconds, to a nanosecond.
fn same(nanos: u64, row: &BTreeMap<String, String>, column: &str) {
    let micros: f64 = row[column].parse().unwrap();
    assert!((nanos as f64 - micros * 1e3).abs() < 1.0, "{column} of {row:?}: {nanos} ns");
}

fn same_overlap(figures: &Figures, row: &BTreeMap<String, String>, column: &str) {
    let percent: Option<f64> = row[column].parse().ok();
    let own = figures.overlap().map(|overlap| overlap * 100.0);
    assert_eq!(own.is_some(), percent.is_some(), "{column} of {row:?}");
    let (own, percent) = (own.unwrap_or(0.0), percent.unwrap_or(0.0));
    assert!((own - percent).abs() <= 0.01, "{column} of {row:?}: {own}");
}

#[test]
fn figures_of_whole_traces_are_the_exact_ones() {
    let Some(folder) = super::traces() else { return };
    let (mut sets, mut checked) = (BTreeMap::new(), 0);
    for row in table(&folder.join("reference_all.csv")) {
        let name = row["set"].clone();
        let set = sets.entry(name.clone()).or_insert_with(|| set(&folder.join(&name)));
        let rank: u32 = row["rank"].parse().unwrap();
        let window = match row["mode"].as_str() {
            "all" => Window::All,
            "default" => Window::WithoutLastStep,
            _ => Window::WithLastStep,
        };
        let found = figures(&set[&rank], window);
        same_overlap(&found, &row, "exact_overlap_pct");
        same(found.idle_nanos, &row, "exact_idle_us");
        same(found.compute_nanos, &row, "exact_compute_us");
        same(found.span_nanos, &row, "exact_span_us");
        same(found.communication_nanos, &row, "comm_union_us");
        same(found.hidden_nanos, &row, "overlap_us");
        same(found.memory_nanos, &row, "mem_union_us");
        checked += 1;
    }
    assert!(checked > 50, "{checked} rows");
}

#[test]
fn figures_of_marked_steps_are_the_exact_ones() {
    let Some(folder) = super::traces() else { return };
    let mut sets = BTreeMap::new();
    for row in table(&folder.join("reference_steps.csv")) {
        let name = row["set"].clone();
        let set = sets.entry(name.clone()).or_insert_with(|| set(&folder.join(&name)));
        let trace = &set[&row["rank"].parse().unwrap()];
        let number: u64 = row["step"].trim_start_matches("ProfilerStep#").parse().unwrap();
        let step = trace.steps.iter().find(|step| step.number == number).unwrap();
        let found = work_figures(trace.work.iter(), Some((step.begin, step.end)));
        same(found.span_nanos, &row, "window_us");
        same(found.communication_nanos, &row, "comm_union_us");
        same(found.compute_nanos, &row, "comp_union_us");
        same(found.hidden_nanos, &row, "overlap_us");
        same(found.idle_nanos, &row, "idle_in_window_us");
        same_overlap(&found, &row, "overlap_pct");
    }
}

/// The records of each imported step against the exact figures of its window, over all work that ran in it.
#[test]
fn imported_steps_have_the_exact_figures_of_their_windows() {
    let Some(folder) = super::traces() else { return };
    let sets = ["hta_nccl_data_rank0of2", "param_dlrm8", "torchrec_a2a_opt2_runB", "torchrec_sleep_pl"];
    let mut checked = 0;
    for (rank, trace) in sets.into_iter().flat_map(|name| set(&folder.join(name))) {
        let found = records(&trace, &device_steps(&trace), rank, 8);
        let (mut spans, mut collectives) = (Vec::new(), Vec::new());
        for event in found.events {
            match event {
                Event::Span(span) => spans.push((span.kind, (span.begin.0, span.end.0))),
                Event::Bucket(bucket) => collectives.push((bucket.start.0, bucket.end.0)),
                Event::Step(step) => {
                    // The records of a step come before its end.
                    let window = (step.begin.0, step.end.0);
                    let union = |kinds: &[SpanKind]| {
                        let spans = spans.iter().filter(|(kind, _)| kinds.contains(kind));
                        Intervals::union(spans.map(|&(_, ran)| ran))
                    };
                    let compute = union(&[SpanKind::Forward, SpanKind::Backward, SpanKind::Optimizer]);
                    let communication = Intervals::union(collectives.iter().copied()).clip(window);
                    let base = trace.base_nanos;
                    let exact = work_figures(trace.work.iter(), Some((window.0 - base, window.1 - base)));
                    assert_eq!(compute.total(), exact.compute_nanos);
                    assert_eq!(communication.total(), exact.communication_nanos);
                    assert_eq!(compute.intersect(&communication).total(), exact.hidden_nanos);
                    assert_eq!(union(&[SpanKind::Idle]).total(), exact.idle_nanos);
                    (spans, collectives) = (Vec::new(), Vec::new());
                    checked += 1;
                }
                Event::Started(_) => {}
            }
        }
    }
    assert!(checked > 30, "{checked} steps");
}
