//! Downloads from the Python package index what most tests of whole jobs need, while others run. What is out of reach is named on
//! standard error, and the tests that need it are skipped.

use testkit::frameworks::{TRACKERS, TRAINERS};
use testkit::{holistic, torch};

fn main() -> anyhow::Result<()> {
    torch::is_installed()?;
    TRAINERS.is_installed()?;
    TRACKERS.is_installed()?;
    holistic::is_installed()?;
    Ok(())
}
