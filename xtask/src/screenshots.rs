//! `cargo xtask screenshots`: retakes the screenshots of the documentation, of a real run in a real browser.

use crate::system::{cargo, ensure_tools, root, step};
use crate::test::BROWSER;
use crate::web;

/// Builds the dashboard and the programs, runs them and writes `docs/*.png`.
pub fn run() -> anyhow::Result<()> {
    ensure_tools(&BROWSER)?;
    web::run()?;
    let programs = ["--package", "paceline", "--package", "paceline-examples"];
    step("building the server and the training job", cargo().args(["build", "--release"]).args(programs))?;
    let pictures = ["run", "--release", "--package", "paceline-tests", "--example", "screenshots"];
    step("screenshots", cargo().args(pictures).arg("--").arg(root().join("docs")))
}
