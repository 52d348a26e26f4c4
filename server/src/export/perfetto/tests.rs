//! The trace read back: what opens closes, tracks are declared, collectives flow.

use std::collections::{BTreeMap, BTreeSet};

use wire::views::RunState;

use super::*;

fn summary() -> RunSummary {
    RunSummary {
        run: wire::ids::RunId::new("r").unwrap(),
        name: "char_lm".into(),
        state: RunState::Completed,
        started_unix_millis: 0,
        last_seen_unix_millis: 0,
        ranks_expected: 2,
        ranks_reporting: 2,
        steps: 1,
        last_step: Some(3),
        step_time_nanos: None,
        throughput: None,
        sample_unit: "tokens".into(),
        overlap_ratio: None,
        efficiency_implied: None,
        verdict: None,
        hang: None,
    }
}

fn waterfall() -> Waterfall {
    let forward = SliceKind::Forward as u8;
    let transfer = SliceKind::TransferExposed as u8;
    Waterfall {
        step: 3,
        origin_unix_nanos: 1_790_000_000_000_000_000,
        span_nanos: 100.0,
        rank: vec![0, 1],
        clock_bound: vec![5.0, f64::NAN],
        rank_begin: vec![0.0, 1.0],
        rank_end: vec![100.0, 99.0],
        slice_row: vec![0, 0, 1],
        slice_kind: vec![forward, transfer, transfer],
        slice_bucket: vec![u32::MAX, 0, 1],
        slice_begin: vec![10.0, 30.0, 31.0],
        slice_end: vec![20.0, 60.0, 60.0],
        bucket_row: vec![0, 1],
        bucket: vec![0, 0],
        bucket_seq: vec![7, 7],
        bucket_bytes: vec![64, 64],
        bucket_ready: vec![25.0, 26.0],
        bucket_launch: vec![26.0, 27.0],
        bucket_start: vec![30.0, 31.0],
        bucket_end: vec![60.0, 60.0],
        bucket_wait: vec![1.0, 0.0],
        bucket_wait_clock_free: vec![1.0, 0.0],
    }
}

#[test]
fn what_opens_closes_in_order_on_declared_tracks_and_one_collective_is_one_flow() {
    assert!(waterfall().is_consistent());
    let trace = Trace::decode(trace(&summary(), &[waterfall()]).as_slice()).unwrap();
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
        assert!(*depth >= 0, "a slice closes that was not open");
        event.flow_ids.iter().for_each(|&flow| *flows.entry(flow).or_default() += 1);
    }
    assert!(depth.values().all(|&open| open == 0), "{depth:?}");
    assert_eq!(flows, BTreeMap::from([(8, 2)]), "the collective of both ranks is one flow");
}

#[test]
fn a_range_of_steps_is_two_numbers_in_order() {
    assert_eq!(parse_steps("3..9"), Ok((3, 9)));
    for bad in ["", "3", "9..3", "a..b", "1...2"] {
        assert!(parse_steps(bad).is_err(), "{bad}");
    }
}
