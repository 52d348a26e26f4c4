//! Predictions for a step with two buckets, compared with values computed by hand.

use wire::ids::Bucket;

use super::*;
use crate::replay::ReplayedCollective;

const MS: f64 = 1e6;

fn replay() -> Replay {
    let collective = |bucket: u32, bytes: u64, ready: f32, transfer: f32| ReplayedCollective {
        bucket: Bucket(bucket),
        bytes,
        saving_nanos: 0.0,
        ready_nanos: ready * 1e6,
        transfer_nanos: transfer * 1e6,
        gap_nanos: 0.0,
    };
    Replay {
        unpredictable: None,
        measured_nanos: 115.0 * MS,
        simulated_nanos: 115.0 * MS,
        skew_nanos: 0.0,
        ideal_nanos: 113.0 * MS,
        ranks: vec![0.0; 4],
        phases: [0.0; 5],
        // Alpha 1 ms and beta 1 ms per MiB on four ranks. The second bucket ends 3 ms after backward.
        collectives: vec![collective(0, 4 << 20, 60.0, 5.0), collective(1, 2 << 20, 100.0, 3.0)],
        before_nanos: 100e6,
        after_nanos: 10e6,
        group: None,
    }
}

fn model() -> Model {
    Model {
        profile: Profile::new(&[&replay()]).unwrap(),
        comm: AlphaBeta {
            alpha_seconds: 1e-3,
            beta_seconds_per_byte: 1e-3 / f64::from(1 << 20),
            residual_seconds: 0.0,
            points: Vec::new(),
        },
        ranks: 4,
        measured: 115.0 * MS,
        steady: 0.0,
        turns: 2.0 * MS,
    }
}

fn close(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-6 * expected, "found {found}, expected {expected}");
}

#[test]
fn the_model_reproduces_the_measured_step() {
    let model = model();
    close(model.predict(4).step_nanos, 115.0 * MS);
    assert!(model.error().abs() < 1e-9);
    close(model.predict(4).efficiency, 110.0 / 115.0);
}

#[test]
fn more_ranks_add_ring_latency_ring_volume_and_unevenness() {
    let model = model();
    // On 64 ranks, alpha is 63/3 ms = 21 ms and beta (63/64) / (3/4) = 1.3125 ms per MiB. The last bucket is ready at
    // 100 and takes 23.625 ms. The first one is ready at 60 and takes 26.25 ms, which delays nothing.
    let grown = expected_maximum(64) / expected_maximum(4);
    close(model.predict(64).step_nanos, (133.625 + 2.0 * grown) * MS);
    close(model.predict(1).step_nanos, 110.0 * MS);
    let predicted = model.predict(1_024);
    assert!(predicted.efficiency_low < predicted.efficiency, "{predicted:?}");
    assert!(predicted.efficiency < predicted.efficiency_high, "{predicted:?}");
    for ranks in WORLDS {
        let ScalingPrediction { efficiency, efficiency_low, efficiency_high, .. } = model.predict(ranks);
        assert!(efficiency_low <= efficiency && efficiency <= efficiency_high, "{ranks}");
        assert!(efficiency_high <= 1.0, "{ranks}");
    }
    close(model.predict(1).efficiency, 1.0);
}

#[test]
fn smaller_caps_trade_latency_for_an_earlier_last_bucket() {
    let model = model();
    let caps = model.caps();
    let of = |mib: u64| caps.iter().find(|cap| cap.cap_bytes == mib << 20).unwrap();
    // One bucket of 6 MiB: ready at 100, takes 7 ms.
    close(of(8).exposed_nanos, 7.0 * MS);
    // Six buckets of 1 MiB: the last one is ready at 100 and takes 2 ms.
    close(of(1).exposed_nanos, 2.0 * MS);
    // 48 buckets of 128 KiB: each takes 1.125 ms, but they become ready every 0.83 to 2.5 ms.
    assert!(caps[0].exposed_nanos < 2.0 * MS, "{caps:?}");
    assert!(caps.last().unwrap().cap_bytes == 8 << 20, "larger caps change nothing: {caps:?}");
    let advice = model.advice(&caps);
    assert!(advice.is_some_and(|advice| advice.contains("shorten the step")), "{caps:?}");
}

#[test]
fn expected_maximum_matches_exact_values() {
    // Exact values: 0.5642 for two draws, 1.0294 for four (Harter 1961).
    for (draws, exact) in [(2, 0.5642), (4, 1.0294), (100, 2.5076)] {
        assert!((expected_maximum(draws) - exact).abs() < 0.03, "{draws}");
    }
}

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
    let facts = report::RunFacts { ranks, ..report::tests::facts("own") };
    let report = report::report::<StepAnalysis>(&facts, &[]);
    let known = wire::views::Figure::Known;
    Report { batch: known(batch), throughput: known(100.0), ..report }
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
