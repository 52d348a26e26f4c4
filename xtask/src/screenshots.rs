//! `cargo xtask screenshots` retakes the screenshots of the documentation, of a real run in a real browser. `cargo xtask
//! screens` takes a picture of every view in every state, to look at.

use std::path::Path;
use std::process::Command;

use crate::system::{BROWSER, Profile, ensure_tools, root, step};

use crate::web;

/// Builds the dashboard and the programs, runs them and writes `docs/*.png`.
pub fn docs() -> anyhow::Result<()> {
    take("screenshots", &root().join("docs"))
}

/// Builds the dashboard and the programs, runs them and writes `target/screens/*.png`.
pub fn screens() -> anyhow::Result<()> {
    take("screens", &root().join("target/screens"))
}

fn take(program: &str, folder: &Path) -> anyhow::Result<()> {
    ensure_tools(&BROWSER)?;
    web::run(web::Size::Small)?;
    step(
        "building the server and the training job",
        &mut Profile::Dev.build(&["paceline", "char_lm", program]),
    )?;
    step(program, Command::new(Profile::Dev.folder().join(program)).arg(folder))
}
