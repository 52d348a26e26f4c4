//! Project commands: `cargo xtask <command>`.

#![allow(clippy::print_stderr, reason = "progress goes to the terminal")]

mod bench;
mod components;
mod demo;
mod gpu;
mod screenshots;
mod system;
mod test;
mod tidy;
mod web;
mod wheel;
mod whole_jobs;

use clap::Parser;

use system::Profile;

/// Builds, tests and measures Paceline.
#[derive(Parser)]
#[command(bin_name = "cargo xtask", disable_help_subcommand = true)]
enum Xtask {
    /// Train a real model on four ranks with the dashboard open
    Demo(demo::Options),
    /// Run the quick checks while you work: format, tidy, lints and unit tests
    Check,
    /// Run all checks: format, lints, tidy, all tests (installs the tools they need)
    Test(test::Options),
    /// Build the dashboard into target/dist
    Web,
    /// Build the Python package into target/wheels
    Wheel {
        /// Build it as the tests use it, not optimized, into target/debug/wheels
        #[arg(long)]
        dev: bool,
    },
    /// Test the dashboard's components in headless Chromium
    Components {
        /// Tests whose names contain this text; all if not given
        filter: Option<String>,
    },
    /// Measure; raw results go to benches/results
    Bench {
        /// Measurements to make, one after another
        #[arg(required = true)]
        names: Vec<bench::Bench>,
    },
    /// Run the checks that need a GPU, and pack them for another machine
    Gpu,
    /// Retake the screenshots in docs/, of a real run
    Screenshots,
    /// Take a picture of every view in every state, light and dark, 400 to 3,840 pixels wide, into target/screens
    Screens,
    /// Check the rules of this repository: imports, circles of modules, module docs, golden files, texts
    Tidy,
}

fn main() -> anyhow::Result<()> {
    match Xtask::parse() {
        Xtask::Demo(options) => demo::run(&options),
        Xtask::Check => test::quick(),
        Xtask::Test(options) => test::run(&options),
        Xtask::Web => web::run(web::Size::Small),
        Xtask::Wheel { dev } => {
            wheel::run(if dev { Profile::Dev } else { Profile::Release })?;
            Ok(())
        }
        Xtask::Components { filter } => components::run(filter.as_deref()),
        Xtask::Bench { names } => names.into_iter().try_for_each(bench::run),
        Xtask::Gpu => gpu::run(),
        Xtask::Screenshots => screenshots::docs(),
        Xtask::Screens => screenshots::screens(),
        Xtask::Tidy => tidy::run(),
    }
}
