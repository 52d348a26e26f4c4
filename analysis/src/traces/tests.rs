//! Tests of comparisons of traces.

use wire::traces::OUTSIDE;

use super::*;

fn sum(kind: TraceRowKind, name: &str, nanos: u64) -> TraceSum {
    TraceSum { kind, name: name.into(), nanos, calls: 4, gap_nanos: nanos / 10 }
}

fn summary(rows: &[(TraceRowKind, &str, u64)]) -> TraceSummary {
    let rows = rows.iter().map(|&(kind, name, nanos)| sum(kind, name, nanos)).collect();
    TraceSummary { steps: 2, step_nanos: 400_000, rows }
}

const OPERATOR: TraceRowKind = TraceRowKind::Operator;
const KERNEL: TraceRowKind = TraceRowKind::Kernel;

fn named(rows: &[TraceRow]) -> Vec<(&str, f64)> {
    rows.iter().map(|row| (row.name.as_str(), row.difference())).collect()
}

#[test]
fn what_takes_the_compared_rank_longer_comes_first() {
    let own = summary(&[(OPERATOR, "aten::conv", 170_000), (TraceRowKind::Outside, OUTSIDE, 100_000)]);
    let other = summary(&[(OPERATOR, "aten::conv", 120_000), (TraceRowKind::Outside, OUTSIDE, 150_000)]);
    let compared = compare((Rank(2), &own), (Rank(3), &other), Step(7));
    assert_eq!(named(&compared.rows), [("aten::conv", 25_000.0), (OUTSIDE, -25_000.0)]);
    assert_eq!((compared.rank, compared.against, compared.left_out), (Rank(2), Rank(3), 0));
    assert_eq!((compared.own.step_nanos, compared.own.operator_nanos), (200_000.0, 85_000.0));
    let row = &compared.rows[0];
    assert_eq!((row.own_calls, row.other_calls, row.own_gap_nanos), (2.0, 2.0, 8_500.0));
    assert!(compare((Rank(0), &own), (Rank(1), &own), Step(7)).rows.is_empty());
}

#[test]
fn what_only_one_has_is_new_or_gone() {
    let own = summary(&[(KERNEL, "new", 10_000), (KERNEL, "both", 7_000)]);
    let other = summary(&[(KERNEL, "gone", 30_000), (KERNEL, "both", 7_000), (OPERATOR, "new", 10)]);
    let (rows, left_out) = differences(&own, &other);
    assert_eq!((named(&rows), left_out), (vec![("new", 5_000.0), ("gone", -15_000.0)], 0));
    assert_eq!((rows[0].is_new(), rows[0].is_gone(), rows[1].is_gone()), (true, false, true));
}

#[test]
fn what_a_summary_may_have_left_out_is_not_called_new() {
    let own = summary(&[(KERNEL, "a", 10_000), (OPERATOR, "b", 10_000)]);
    let other = summary(&[(KERNEL, OTHER_NAMES, 30_000)]);
    // The sum of the others is not compared either: the first one has no such row, and lists all kernels.
    assert_eq!(named(&differences(&own, &other).0), [("b", 5_000.0), (OTHER_NAMES, -15_000.0)]);
}

#[test]
fn small_differences_are_left_out_and_of_many_rows_the_largest_are_shown() {
    let names: Vec<String> = (0..60).map(|at| format!("k{at:02}")).collect();
    let rows: Vec<(TraceRowKind, &str, u64)> =
        names.iter().zip(0..).map(|(name, at)| (KERNEL, name.as_str(), at * 1_000)).collect();
    let (rows, left_out) = differences(&summary(&rows), &summary(&[]));
    // k00 and k01 differ by less than a microsecond per step.
    assert_eq!((rows.len(), left_out, rows[0].name.as_str()), (MAX_ROWS, 58 - MAX_ROWS as u64, "k59"));
}

#[test]
fn ranks_are_added_by_name() {
    let ranks =
        [summary(&[(KERNEL, "a", 10), (KERNEL, "b", 40)]), summary(&[(KERNEL, "a", 20), (OPERATOR, "a", 1)])];
    let all = merged(ranks.iter()).unwrap();
    assert_eq!((all.steps, all.step_nanos), (4, 800_000));
    let rows: Vec<_> =
        all.rows.iter().map(|row| (row.kind, row.name.as_str(), row.nanos, row.calls)).collect();
    assert_eq!(rows, [(KERNEL, "b", 40, 4), (KERNEL, "a", 30, 8), (OPERATOR, "a", 1, 4)]);
    assert_eq!(merged([].iter()), None);
}
