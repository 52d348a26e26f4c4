//! The `paceline` program: the commands of its library, and the dashboard's files.

use clap::Parser as _;
use paceline::cli;
use paceline::http::assets::Asset;

include!(concat!(env!("OUT_DIR"), "/assets.rs"));

fn main() -> std::process::ExitCode {
    cli::main(cli::Arguments::parse(), ASSETS)
}
