//! What-ifs for a step with two buckets, compared with values computed by hand.

use super::super::model::tests::model;
use super::*;

const MS: f64 = 1e6;

fn step(scenario: Scenario) -> f64 {
    model().fit().changed_step(&scenario, Latency::Ring, Unevenness::Grows).unwrap() / MS
}

#[test]
fn a_scenario_changes_the_step_as_by_hand() {
    // Buckets of 4 and 2 MiB are ready at 60 and 100 ms. Their transfers take 1 ms and another 1 ms per MiB. The last one ends
    // the all-reduce at 103 ms; 10 ms follow, and the unevenness costs 2 ms.
    let usual = Scenario::default();
    let changed = [
        (usual, 115.0),
        (Scenario { bandwidth: 0.5, ..usual }, 117.0),
        (Scenario { link: 0.5, ..usual }, 117.0),
        (Scenario { link: 0.5, bandwidth: 2.0, ..usual }, 115.0),
        (Scenario { latency: 3.0, ..usual }, 117.0),
        (Scenario { compression: 2.0, ..usual }, 114.0),
        // One bucket of 6 MiB, which is ready at 100 ms.
        (Scenario { cap_mib: Some(6.0), ..usual }, 119.0),
        (Scenario { cap_mib: Some(6.0), compression: 6.0, ..usual }, 114.0),
        (Scenario { ranks: Some(1), bandwidth: 0.1, ..usual }, 110.0),
    ];
    for (scenario, expected) in changed {
        assert!((step(scenario) - expected).abs() < 1e-6, "{scenario:?}: {}", step(scenario));
    }
}

#[test]
fn transfers_in_proportion_to_their_sizes_have_no_latency() {
    // 8 ms for 6 MiB: three buckets of 2 MiB, the last of which is ready at 100 ms.
    let fit = model().fit().proportional();
    let scenario = Scenario { cap_mib: Some(2.0), ..Scenario::default() };
    let step = fit.changed_step(&scenario, Latency::Ring, Unevenness::Grows).unwrap() / MS;
    assert!((step - (100.0 + 8.0 / 3.0 + 12.0)).abs() < 1e-6, "{step}");
}

#[test]
fn another_number_of_ranks_is_predicted_as_in_the_table_of_predictions() {
    for ranks in [1, 2, 4, 64, 1_024] {
        let table_millis = model().predict(ranks).step_nanos / MS;
        let found = step(Scenario { ranks: Some(ranks), ..Scenario::default() });
        assert!((found - table_millis).abs() < 1e-9, "{ranks}: {found} {table_millis}");
    }
}

#[test]
fn a_value_out_of_its_range_is_refused_by_name() {
    let refused = |scenario| check(&scenario).unwrap_err().to_string();
    let usual = Scenario::default();
    assert_eq!(check(&usual), Ok(()));
    assert_eq!(refused(Scenario { link: 1.5, ..usual }), "link is 1.5: it must be from 0.001 to 1");
    assert_eq!(
        refused(Scenario { compression: 0.5, ..usual }),
        "compression is 0.5: it must be from 1 to 1000"
    );
    assert!(refused(Scenario { ranks: Some(0), ..usual }).starts_with("ranks is 0"));
    assert!(refused(Scenario { bandwidth: f64::NAN, ..usual }).starts_with("bandwidth is NaN"));
}
