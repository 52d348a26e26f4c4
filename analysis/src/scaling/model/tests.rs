//! Predictions for a step with two buckets, compared with values computed by hand.

use wire::ids::Bucket;
use wire::views::AlphaBeta;

use super::super::growth::Deviations;
use super::super::profile::Profile;
use super::*;
use crate::replay::{Replay, ReplayedCollective};

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
        even_nanos: 2e6,
        even_slowest_nanos: 2e6,
        alike_nanos: 2e6,
        ranks: vec![0.0; 4],
        phases: [0.0; 5],
        // Alpha 1 ms and beta 1 ms per MiB on four ranks. The second bucket ends 3 ms after backward.
        collectives: vec![collective(0, 4 << 20, 60.0, 5.0), collective(1, 2 << 20, 100.0, 3.0)],
        before_nanos: 100e6,
        after_nanos: 10e6,
        group: None,
    }
}

/// Deviations of two ranks, normally distributed.
fn deviations() -> Deviations {
    let quantile = |at: u32| stats::normal_quantile((f64::from(at) + 0.5) / 200.0) * MS;
    Deviations::new(&[(0..200).map(quantile).collect(), (0..200).rev().map(quantile).collect()])
}

pub(in super::super) fn model() -> Model {
    let fit = Fit {
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
        deviations: deviations(),
    };
    Model { resampled: vec![fit.clone()], fit }
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
    let grown = deviations().grown(1.0, 4, 64);
    close(model.predict(64).step_nanos, (133.625 + 2.0 * grown) * MS);
    close(model.predict(1).step_nanos, 110.0 * MS);
    let predicted = model.predict(1_024);
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
    let cap = |mib: u64| caps.iter().find(|cap| cap.cap_bytes == mib << 20).unwrap();
    // One bucket of 6 MiB: ready at 100, takes 7 ms.
    close(cap(8).exposed_nanos, 7.0 * MS);
    // Six buckets of 1 MiB: the last one is ready at 100 and takes 2 ms.
    close(cap(1).exposed_nanos, 2.0 * MS);
    // 48 buckets of 128 KiB: each takes 1.125 ms, but they become ready every 0.83 to 2.5 ms.
    assert!(caps[0].exposed_nanos < 2.0 * MS, "{caps:?}");
    assert!(caps.last().unwrap().cap_bytes == 8 << 20, "larger caps change nothing: {caps:?}");
    let advice = model.advice(&caps);
    assert!(advice.is_some_and(|advice| advice.contains("shorten the step")), "{caps:?}");
}
