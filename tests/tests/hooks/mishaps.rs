//! Tests that whatever goes wrong in the package, a job ends with the result and the exit code that it has without it.

use anyhow::ensure;
use testkit::mishaps;

/// The number of runs. `cargo xtask bench mishaps` makes 1,000.
const RUNS: usize = 20;

#[test]
fn mishaps_of_the_observation_do_not_change_the_job() -> anyhow::Result<()> {
    let Some(found) = mishaps::run(0, RUNS, |_| ())? else { return Ok(()) };
    ensure!(found.different.is_empty(), "{:#?}", found.different);
    ensure!(found.total["runs"] == RUNS, "{:#}", found.total);
    Ok(())
}
