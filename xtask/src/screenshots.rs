//! `cargo xtask screenshots`: retakes the screenshots of the documentation, of a real run in a real browser.

use std::process::Command;

use crate::system::{build, ensure_tools, programs, root, step};
use crate::test::BROWSER;
use crate::web;

/// Builds the dashboard and the programs, runs them and writes `docs/*.png`.
pub fn run() -> anyhow::Result<()> {
    ensure_tools(&BROWSER)?;
    web::run()?;
    step("building the server and the training job", &mut build(&["paceline", "char_lm", "screenshots"]))?;
    step("screenshots", Command::new(programs().join("screenshots")).arg(root().join("docs")))
}
