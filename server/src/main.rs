//! The `paceline` program. All commands are in the library (`paceline::cli`).

use clap::Parser;

fn main() -> std::process::ExitCode {
    paceline::cli::main(paceline::cli::Arguments::parse())
}
