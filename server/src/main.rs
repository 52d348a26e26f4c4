//! The `paceline` program. It only dispatches.

use clap::Parser;

fn main() -> std::process::ExitCode {
    paceline::cli::main(paceline::cli::Arguments::parse())
}
