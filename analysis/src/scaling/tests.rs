//! Measured scaling: baselines and rules.

use wire::ids::RunId;

use super::*;
use crate::fixtures;

const MS: f64 = 1e6;

fn point(run: &str, batch: Option<f64>) -> ScalingPoint {
    ScalingPoint {
        run: RunId::new(run).unwrap(),
        ranks: 2,
        throughput: 100.0,
        batch,
        step_nanos: MS,
        measured: None,
        implied: None,
        started_unix_millis: 0,
        has_verdict: false,
    }
}

fn own(ranks: u32, batch: f64) -> Report {
    let known = wire::views::Figure::Known;
    Report { ranks, batch: known(batch), throughput: known(100.0), ..fixtures::report("own") }
}

#[test]
fn a_run_is_not_measured_against_itself_alone() {
    let own = own(2, 128.0);
    let measured = |other: ScalingPoint| {
        let mut points = [point("own", Some(128.0)), other];
        let base = usual(&own, &points).unwrap();
        measure(&mut points, &base)
    };
    assert!(!measured(point("other", Some(256.0))));
    assert!(measured(point("other", Some(128.0))));
}

#[test]
fn weak_and_strong_scaling_are_told_apart() {
    let at = |run: &str, ranks: u32, batch: f64, throughput: f64| ScalingPoint {
        ranks,
        throughput,
        ..point(run, Some(batch))
    };
    let points = [
        at("one", 1, 128.0, 100.0),
        at("own", 4, 32.0, 300.0),
        at("two-strong", 2, 64.0, 180.0),
        at("two-weak", 2, 128.0, 190.0),
    ];
    let own = own(4, 32.0);
    let measured = |base: &str| {
        let mut points = points.clone();
        let base = chosen(&RunId::new(base).unwrap(), &points, &own).unwrap();
        assert!(measure(&mut points, &base));
        (base.rule, points.map(|point| point.measured))
    };
    let (rule, found) = measured("one");
    // The run with the batch per rank of the baseline has another rule than this run.
    assert_eq!((rule, found), (ScalingRule::Strong, [Some(1.0), Some(0.75), Some(0.9), None]));
    assert_eq!(measured("own").0, ScalingRule::Strong, "most runs have its total batch");
}

#[test]
fn a_baseline_is_a_run_of_this_name_with_this_batch() {
    let own = own(4, 128.0);
    let points = [point("same", Some(130.0)), point("other", Some(512.0)), point("uncounted", None)];
    let base =
        |run: &str| chosen(&RunId::new(run).unwrap(), &points, &own).map_err(|error| error.to_string());
    assert_eq!(base("same").map(|base| (base.ranks, base.rule)), Ok((2, ScalingRule::Weak)));
    for run in ["other", "uncounted"] {
        assert!(base(run).is_err_and(|error| error.contains("batch per rank")), "{run}");
    }
    assert!(base("gone").is_err_and(|error| error.contains("gone is not a run named")));
}
