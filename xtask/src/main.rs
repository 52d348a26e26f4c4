//! Project commands: `cargo xtask <command>`.

#![allow(clippy::print_stderr, reason = "a command line tells its user what it does")]

mod bench;
mod demo;
mod gpu;
mod screenshots;
mod system;
mod test;
mod tidy;
mod web;

use anyhow::bail;

const USAGE: &str = "usage: cargo xtask <command>

  demo   train a real model on four ranks with the dashboard open
         --no-open   do not open a browser      --exit      end when the training ends
         --healthy   plant no straggler         --steps N   train longer or shorter
  test   everything that must hold: format, lints, tidy, all tests (installs what they need)
  web    build the browser client into target/dist
  bench  measure: `bench` lists what; raw results go to benches/results
  gpu    the checks that need a GPU; without one, packs them for a machine that has one
  screenshots   take the pictures in docs/ anew, of a real run
  tidy   the rules of this repository: who may import whom, module docs, golden files";

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let command = arguments.next();
    let rest: Vec<String> = arguments.collect();
    match command.as_deref() {
        Some("demo") => demo::run(&rest),
        Some("test") => test::run(&rest),
        Some("web") => web::run(),
        Some("bench") => bench::run(&rest),
        Some("gpu") => gpu::run(&rest),
        Some("screenshots") => screenshots::run(&rest),
        Some("tidy") => tidy::run(),
        Some("help" | "--help" | "-h") => help(),
        Some(other) => bail!("no such command: {other}\n{USAGE}"),
        None => bail!("{USAGE}"),
    }
}

fn help() -> anyhow::Result<()> {
    eprintln!("{USAGE}");
    Ok(())
}
