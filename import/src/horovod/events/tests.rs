//! Tests of the events of timelines.

use super::*;
use crate::horovod::entries::FUSION;

fn recorded(events: &str) -> Recorded {
    read(format!("[\n{events}").as_bytes()).unwrap()
}

/// A negotiation of two ranks from `at` on. The second rank comes `late` microseconds after the first.
fn negotiation(tensor: u64, at: i64, late: i64) -> String {
    let later = at + late;
    format!(
        r#"{{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": {at}, "pid": {tensor}}},
        {{"ph": "X", "name": "0", "ts": {at}, "pid": {tensor}, "dur": 0}},
        {{"ph": "X", "name": "1", "ts": {later}, "pid": {tensor}, "dur": 0}},
        {{"ph": "E", "ts": {later}, "pid": {tensor}}},"#
    )
}

/// An event of an operation.
fn event(phase: char, name: &str, at: i64, tensor: u64) -> String {
    format!(r#"{{"ph": "{phase}", "name": "{name}", "ts": {at}, "pid": {tensor}}},"#)
}

/// The end of an operation on `shape` elements.
fn end(at: i64, tensor: u64, shape: &str) -> String {
    format!(
        r#"{{"ph": "E", "ts": {at}, "pid": {tensor}, "args": {{"dtype": "float32", "shape": "{shape}"}}}},"#
    )
}

#[test]
fn a_negotiation_and_an_operation_are_a_collective() {
    let text = [
        r#"{"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros":1000000}},"#.into(),
        negotiation(1, 100, 700),
        event('B', "ALLREDUCE", 900, 1),
        event('B', "NCCL_ALLREDUCE", 910, 1),
        event('E', "", 990, 1),
        end(1_000, 1, "[2, 3]"),
    ];
    let found = recorded(&text.concat());
    let nanos = |micros: i64| (1_000_000 + micros) * 1_000;
    let operation = Operation {
        tensor: 1,
        function: Function::AllReduce,
        ready: vec![(0, nanos(100)), (1, nanos(800))],
        negotiated: Some((nanos(100), nanos(800))),
        begin: nanos(900),
        end: nanos(1_000),
        bytes: Some(24),
    };
    assert_eq!(found.operations, [operation]);
    assert_eq!((found.world_size(), found.cycle_nanos, found.open.len()), (Some(2), 700_000, 0));
}

#[test]
fn fused_tensors_are_one_collective() {
    let operations = |is_fused: bool| {
        let activity = if is_fused { FUSION } else { "MPI_ALLREDUCE" };
        let text = [
            negotiation(1, 100, 700),
            negotiation(2, 2_000, 3_000),
            event('B', "ALLREDUCE", 6_000, 1),
            event('B', "ALLREDUCE", 6_001, 2),
            event('B', activity, 6_002, 1),
            event('B', activity, 6_003, 2),
            event('E', "", 7_000, 1),
            event('E', "", 7_001, 2),
            end(8_000, 1, "[2]"),
            end(8_001, 2, "[3]"),
            // Another order, also of fused tensors.
            event('B', "ALLREDUCE", 9_000, 3),
            event('B', activity, 9_001, 3),
            event('E', "", 9_002, 3),
            end(9_003, 3, "[4]"),
        ];
        recorded(&text.concat()).operations
    };
    let fused = operations(true);
    assert_eq!(fused.len(), 2);
    assert_eq!(fused[0].ready, [(0, 2_000_000), (1, 5_000_000)], "when the last of its tensors is ready");
    assert_eq!((fused[0].bytes, fused[0].begin, fused[0].end), (Some(20), 6_000_000, 8_001_000));
    assert_eq!(
        operations(false).iter().map(|operation| operation.bytes).collect::<Vec<_>>(),
        [Some(8), Some(12), Some(16)]
    );
}

#[test]
fn what_a_killed_job_leaves_is_said() {
    let text = [
        r#"{"name": "process_name", "ph": "M", "pid": 4, "args": {"name": "grad"}},"#.into(),
        negotiation(1, 100, 700),
        event('B', "ALLREDUCE", 900, 1),
        end(990, 1, "[1]"),
        event('B', "NEGOTIATE_ALLREDUCE", 1_000, 4),
        event('X', "1", 1_000, 4),
        event('B', "NEGOTIATE_ALLREDUCE", 2_000, 3),
        r#"{"ph": "X", "name": "0", "ts": 20"#.into(),
    ];
    let found = recorded(&text.concat());
    assert_eq!(found.operations.len(), 1);
    let open: Vec<(&str, &[u32])> =
        found.open.iter().map(|operation| (&*operation.name, &*operation.ready)).collect();
    assert_eq!(open, [("grad", &[1][..]), ("tensor 3", &[][..])]);
}

#[test]
fn events_that_do_not_fit_are_left_out() {
    let text = [
        // The end of an operation, and of a negotiation, that began before the timeline.
        end(1, 9, "[1]"),
        event('X', "1", 2, 1),
        event('E', "", 3, 1),
        event('B', "ALLREDUCE", 4, 1),
        end(5, 1, "[1]"),
        // Ranks do not agree on a tensor.
        negotiation(2, 1_000, 1),
        event('B', "ERROR", 1_100, 2),
        end(1_101, 2, "[1]"),
        // An operation that does not end, and then is begun again.
        negotiation(3, 2_000, 1),
        negotiation(3, 3_000, 1),
        r#"{"ph": "B", "pid": "x"},{"ph": "B", "ts": true},"#.into(),
        // No rank of a job.
        event('X', "4000000000", 3_100, 5),
    ];
    let found = recorded(&text.concat());
    assert_eq!(found.operations.len(), 1);
    assert_eq!(found.operations[0].ready, [(1, 2_000)]);
    let remarks = found.remarks.sentences();
    assert_eq!(remarks.len(), 4, "{remarks:?}");
}

#[test]
fn a_barrier_ends_when_all_ranks_are_there() {
    let text = negotiation(1, 100, 700).replace("ALLREDUCE", "BARRIER");
    let found = recorded(&text);
    assert_eq!((found.operations[0].function, found.operations[0].end), (Function::Other, 800_000));
}

#[test]
fn ranks_of_process_sets_are_told_apart() {
    let event_of_three = event('X', "2", 50, 1);
    let text = [
        event_of_three,
        negotiation(1, 100, 700),
        event('B', "ALLREDUCE", 900, 1),
        end(990, 1, "[1]"),
        negotiation(2, 1_000, 700),
        event('B', "ALLREDUCE", 1_900, 2),
        end(1_990, 2, "[1]"),
    ];
    let mut found = recorded(&text.concat());
    assert_eq!((found.leave_out_process_sets(), found.world_size()), (1, Some(3)));
    assert_eq!(found.operations.iter().map(|operation| operation.tensor).collect::<Vec<_>>(), [1]);
}
