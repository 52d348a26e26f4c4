//! Predicted efficiencies against those of simulated jobs.

use std::sync::LazyLock;

use anyhow::ensure;
use testkit::predictions::{Checked, Job};
use testkit::spread::median;

/// The number of jobs of each kind. `cargo xtask bench predict` takes more.
const JOBS: u64 = 20;

fn checked(has_stalls: bool) -> Vec<Checked> {
    let check = |seed: u64| {
        Job::draw(seed, has_stalls).check().unwrap_or_else(|missing| panic!("job {seed}: {missing}"))
    };
    (1..=JOBS).flat_map(check).collect()
}

/// The predictions for jobs without stalls, which take half a minute.
static EVEN: LazyLock<Vec<Checked>> = LazyLock::new(|| checked(false));

fn share_inside(checked: &[Checked]) -> f64 {
    checked.iter().filter(|checked| checked.is_inside()).count() as f64 / checked.len() as f64
}

#[test]
fn the_band_of_a_prediction_holds_the_truth() -> anyhow::Result<()> {
    ensure!(share_inside(&EVEN) >= 0.95, "in {:.3} of the predictions", share_inside(&EVEN));
    // Few ranks in the fitted steps say less about rare stalls on many.
    let stalling = checked(true);
    ensure!(
        share_inside(&stalling) >= 0.85,
        "with stalls: in {:.3} of the predictions",
        share_inside(&stalling)
    );
    Ok(())
}

#[test]
fn the_band_says_something_near_the_fitted_number_of_ranks() -> anyhow::Result<()> {
    let near = EVEN.iter().filter(|checked| checked.predicted.ranks <= 16);
    let widths: Vec<f64> =
        near.map(|near| near.predicted.efficiency_high - near.predicted.efficiency_low).collect();
    let median = median(&widths);
    ensure!(median < 0.05, "half of the bands are wider than {median:.3}");
    Ok(())
}
