//! Tests that read a Perfetto trace back: slices, tracks, names and flows.

use std::collections::{BTreeMap, BTreeSet};

use super::proto::Trace;
use super::*;
use crate::export::Format;
use crate::export::tests::{summary, waterfall, written};

#[test]
fn slices_are_nested_on_declared_tracks_and_a_collective_is_one_flow() {
    let trace = Trace::decode(written(Format::Perfetto, None).as_slice()).unwrap();
    let declared: BTreeSet<u64> =
        trace.packet.iter().filter_map(|p| p.track_descriptor.as_ref()?.uuid).collect();
    let mut depth: BTreeMap<u64, i32> = BTreeMap::new();
    let mut flows: BTreeMap<u64, u32> = BTreeMap::new();
    for packet in &trace.packet {
        let Some(event) = &packet.track_event else { continue };
        let track = event.track_uuid.unwrap();
        assert!(declared.contains(&track));
        let change = match event.r#type.unwrap() {
            SLICE_BEGIN => 1,
            SLICE_END => -1,
            _ => 0,
        };
        let depth = depth.entry(track).or_default();
        *depth += change;
        assert!(*depth >= 0, "a slice that is not open ends");
        event.flow_ids.iter().for_each(|&flow| *flows.entry(flow).or_default() += 1);
    }
    assert!(depth.values().all(|&open| open == 0), "{depth:?}");
    assert_eq!(flows, BTreeMap::from([(8, 2)]), "the collective of both ranks must be one flow");
}

#[test]
fn names_are_written_before_their_use_and_unknown_figures_are_left_out() {
    let trace = Trace::decode(written(Format::Perfetto, None).as_slice()).unwrap();
    let (mut events, mut arguments) = (BTreeMap::new(), BTreeMap::new());
    let mut slices = Vec::new();
    for packet in &trace.packet {
        if let Some(data) = &packet.interned_data {
            let pairs = |names: &[InternedName]| {
                names.iter().map(|name| (name.iid.unwrap(), name.name.clone().unwrap())).collect::<Vec<_>>()
            };
            events.extend(pairs(&data.event_names));
            arguments.extend(pairs(&data.debug_annotation_names));
        }
        let Some(event) = packet.track_event.as_ref().filter(|event| event.r#type != Some(SLICE_END)) else {
            continue;
        };
        let name = event.name.clone().unwrap_or_else(|| events[&event.name_iid.unwrap()].clone());
        let named = |argument: &DebugAnnotation| {
            let value = argument.int_value.or(argument.uint_value.map(|value| value as i64));
            (arguments[&argument.name_iid.unwrap()].clone(), value)
        };
        let annotations: BTreeMap<String, Option<i64>> = event.debug_annotations.iter().map(named).collect();
        slices.push((name, packet.timestamp.unwrap() - 1_790_000_000_000_000_000, annotations));
    }
    let names: Vec<&str> = slices.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(
        names[..6],
        ["step 3", "backward", "bucket 0", "hidden wait", "exposed transfer", "bucket 0 ready"]
    );
    assert_eq!(slices[2].1, 30_000);
    assert_eq!(slices[2].2["wait_ns"], Some(1_000));
    assert_eq!(slices[2].2["transfer_ns"], Some(29_000));
    let rank_1 = &slices[7].2;
    assert!(!rank_1.contains_key("wait_ns") && rank_1["wait_clock_free_ns"] == Some(0), "{rank_1:?}");
}

#[test]
fn flow_ids_are_not_packed() {
    let bytes = written(Format::Perfetto, None);
    // Field 47 with a value of eight bytes has the key 0xf9 0x02. The key of a packed field is 0xfa 0x02, which
    // Perfetto ignores.
    let flows =
        |key: [u8; 2]| bytes.windows(10).filter(|w| w[..2] == key && w[2..] == 8_u64.to_le_bytes()).count();
    assert_eq!(flows([0xf9, 0x02]), 2);
}

#[test]
fn a_trace_of_one_rank_declares_only_that_rank() {
    let trace = Trace::decode(written(Format::Perfetto, Some(1)).as_slice()).unwrap();
    let processes: Vec<i32> =
        trace.packet.iter().filter_map(|p| p.track_descriptor.as_ref()?.process.as_ref()?.pid).collect();
    assert_eq!(processes, [2]);
}

#[test]
fn names_in_a_trace_have_no_control_characters() {
    let run = RunSummary { name: "\x1b]0;owned\x07\0".into(), ..summary() };
    let trace =
        Trace::decode(Writer::begin(Vec::new(), &run, None).unwrap().finish().unwrap().as_slice()).unwrap();
    let tracks = trace.packet.iter().filter_map(|packet| packet.track_descriptor.as_ref());
    let names: Vec<&str> =
        tracks.filter_map(|track| track.process.as_ref()?.process_name.as_deref()).collect();
    assert_eq!(names, ["rank 0 (\\u{1b}]0;owned\\u{7}\\u{0})", "rank 1 (\\u{1b}]0;owned\\u{7}\\u{0})"]);
}

#[test]
fn how_a_device_was_used_is_a_counter_of_its_rank_during_the_steps() {
    const BEGIN: i64 = 1_790_000_000_000_000_000;
    let mut writer = Writer::begin(Vec::new(), &summary(), None).unwrap();
    writer.step(&waterfall()).unwrap();
    let second = 1_000_000_000;
    // The step takes 0.1 ms. The second sample ends in it, the third one begins in it.
    let rank_0 = vec![
        (BEGIN - 10, 1.0, 0.5),
        (BEGIN + 50_000, 1.0, 0.25),
        (BEGIN + 50_000 + second, 1.0, 0.75),
        (BEGIN + 50_000 + 2 * second, 1.0, 0.5),
    ];
    let rank_1 = vec![(BEGIN + 50_000, 1.0, f32::NAN)];
    writer.measure(Usage::DeviceBusy, [rank_0, rank_1].into_iter()).unwrap();
    writer.measure(Usage::DeviceErrors, [vec![(BEGIN + 50_000, 1.0, 0.0)]].into_iter()).unwrap();
    let trace = Trace::decode(writer.finish().unwrap().as_slice()).unwrap();

    let described = trace.packet.iter().filter_map(|packet| packet.track_descriptor.as_ref());
    let counters: Vec<&TrackDescriptor> = described.filter(|track| track.counter.is_some()).collect();
    assert_eq!(counters.len(), 1, "only rank 0 has a known measure that is not 0: {counters:?}");
    assert_eq!(counters[0].name.as_deref(), Some("device busy"));
    assert_eq!(counters[0].parent_uuid, Some(Tracks::new(0).process));
    assert_eq!(counters[0].counter.as_ref().unwrap().unit_name.as_deref(), Some("%"));
    let values: Vec<(u64, f64)> = trace
        .packet
        .iter()
        .filter_map(|packet| {
            let event = packet.track_event.as_ref().filter(|event| event.track_uuid == counters[0].uuid)?;
            Some((packet.timestamp? - BEGIN as u64, event.double_counter_value?))
        })
        .collect();
    assert_eq!(values, [(0, 25.0), (50_000, 75.0)]);
}
