//! `cargo xtask screenshots`: the pictures of the documentation, taken anew of a real run in a real browser.

use anyhow::bail;

use crate::system::{cargo, ensure_tools, root, step};
use crate::test::BROWSER;
use crate::web;

/// Builds what is shown, runs it and writes `docs/*.png`.
pub fn run(arguments: &[String]) -> anyhow::Result<()> {
    if let Some(other) = arguments.first() {
        bail!("screenshots takes no arguments, not even {other}");
    }
    ensure_tools(&BROWSER)?;
    web::run()?;
    let programs = ["--package", "paceline", "--package", "paceline-examples"];
    step("building what is shown", cargo().args(["build", "--release"]).args(programs))?;
    let pictures = ["run", "--release", "--package", "paceline-tests", "--example", "screenshots"];
    step("screenshots", cargo().args(pictures).arg("--").arg(root().join("docs")))
}
