//! Tests of Chrome traces: metadata, kernels on streams, and the launches of kernels.

use std::collections::BTreeSet;
use std::io::Read as _;

use serde_json::Value;

use super::*;
use crate::export::Format;
use crate::export::tests::{summary, waterfall, written};

fn parse(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).expect("the trace is JSON")
}

fn events<'a>(trace: &'a Value, category: &str) -> Vec<&'a Value> {
    let events = trace["traceEvents"].as_array().expect("the trace has events");
    events.iter().filter(|event| event["cat"] == category).collect()
}

#[test]
fn a_file_of_one_rank_names_the_rank_and_each_kernel_has_a_launch() {
    let trace = parse(&written(Format::Chrome, Some(0)));
    assert_eq!(
        trace["distributedInfo"],
        serde_json::json!({"backend": "paceline", "rank": 0, "world_size": 2})
    );
    assert_eq!(trace["deviceProperties"][0]["id"], 0);
    let kernels = events(&trace, "kernel");
    let names: Vec<&str> = kernels.iter().filter_map(|kernel| kernel["name"].as_str()).collect();
    assert_eq!(names[0], "backward");
    assert!(names[1].starts_with("ncclDevKernel_AllReduce"), "{names:?}");
    let streams: Vec<u64> = kernels.iter().filter_map(|kernel| kernel["args"]["stream"].as_u64()).collect();
    assert_eq!(streams, [7, 20]);
    let numbers = |category: &str| -> BTreeSet<u64> {
        events(&trace, category).iter().filter_map(|event| event["args"]["correlation"].as_u64()).collect()
    };
    assert_eq!(numbers("kernel"), numbers("cuda_runtime"));
    assert_eq!(numbers("kernel"), BTreeSet::from([1, 2]));
    assert_eq!(events(&trace, "user_annotation")[0]["name"], "ProfilerStep#3");
}

#[test]
fn a_collective_has_its_function_and_its_group() {
    let shared = Waterfall {
        bucket_function: vec![Function::AllToAll as u8, Function::ReduceScatter as u8],
        bucket_comm: vec![0, 9],
        ..waterfall()
    };
    let mut writer = super::super::Writer::begin(Format::Chrome, Vec::new(), &summary(), None)
        .expect("memory can be written");
    writer.step(&shared).expect("memory can be written");
    let trace = parse(&writer.finish().expect("memory can be written"));
    let kernels = events(&trace, "kernel");
    let said = |at: usize| {
        let (kernel, args) = (&kernels[at], &kernels[at]["args"]);
        ["Collective name", "Process Group Name", "Group size", "Process Group Ranks"]
            .map(|key| args[key].to_string())
            .into_iter()
            .chain([kernel["name"]
                .as_str()
                .unwrap_or_default()
                .split('(')
                .next()
                .unwrap_or_default()
                .to_owned()])
            .collect::<Vec<_>>()
    };
    // Of all ranks, one has records.
    assert_eq!(said(1), ["\"all_to_allv\"", "\"0\"", "2", "null", "ncclDevKernel_SendRecv"]);
    let scatter = "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL";
    assert_eq!(said(2), ["\"_reduce_scatter_base\"", "\"9\"", "1", "\"[1]\"", scatter]);
}

#[test]
fn times_are_whole_microseconds_and_unknown_figures_are_left_out() {
    let trace = parse(&written(Format::Chrome, None));
    assert!(trace["distributedInfo"].get("rank").is_none());
    let kernels = events(&trace, "kernel");
    let [_, first, second] = kernels[..] else { panic!("{kernels:#?}") };
    assert_eq!((first["ts"].as_i64(), first["dur"].as_i64()), (Some(1_790_000_000_000_030), Some(30)));
    assert_eq!(first["args"]["wait_ns"], 1_000);
    assert_eq!((second["pid"].as_u64(), second["args"].get("wait_ns")), (Some(1), None));
}

#[test]
fn a_directory_has_one_complete_file_per_rank() {
    let folder = tempfile::tempdir().expect("a folder can be created");
    for _again in 0..2 {
        let mut directory =
            Directory::begin(folder.path(), &summary()).expect("the directory can be created");
        (0..300).for_each(|_| directory.step(&waterfall()).expect("a step can be written"));
        assert_eq!(directory.finish().expect("the files can be written"), 2);
    }
    for rank in 0..2 {
        let compressed =
            std::fs::read(folder.path().join(format!("rank-{rank}.json.gz"))).expect("the file exists");
        let mut text = Vec::new();
        flate2::read::MultiGzDecoder::new(&compressed[..]).read_to_end(&mut text).expect("the file is gzip");
        assert!(text.len() > 64 << 10, "the file has several gzip members");
        let trace = parse(&text);
        assert_eq!(trace["distributedInfo"]["rank"], rank);
        assert_eq!(events(&trace, "user_annotation").len(), 300);
    }
}
