//! Project commands: `cargo xtask <command>`.

#![allow(clippy::print_stderr, reason = "a command line tells its user what it does")]

mod web;

use anyhow::bail;

const USAGE: &str = "usage: cargo xtask <command>

  web    build the browser client into target/dist";

fn main() -> anyhow::Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("web") => web::run(),
        Some(other) => bail!("no such command: {other}\n{USAGE}"),
        None => bail!("{USAGE}"),
    }
}
