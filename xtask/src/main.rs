//! Project commands: `cargo xtask <command>`.

#![allow(clippy::print_stderr, reason = "progress goes to the terminal")]

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
         --no-open   do not open a browser      --exit      stop when training ends
         --healthy   without the straggler      --steps N   number of training steps
  test   run all checks: format, lints, tidy, all tests (installs the tools they need)
  web    build the dashboard into target/dist
  bench  measure; `bench` lists the measurements; raw results go to benches/results
  gpu    run the checks that need a GPU, and pack them for another machine
  screenshots   retake the screenshots in docs/, of a real run
  tidy   check the rules of this repository: imports between crates, module docs, golden files, words";

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
        Some(other) => bail!("unknown command: {other}\n{USAGE}"),
        None => bail!("{USAGE}"),
    }
}

fn help() -> anyhow::Result<()> {
    eprintln!("{USAGE}");
    Ok(())
}
