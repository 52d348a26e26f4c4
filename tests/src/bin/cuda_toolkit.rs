//! Prints the folder of a CUDA toolkit. Downloads the toolkit (2 GB) from the Python package index if it is missing. If
//! that fails, prints the reason on standard error and exits with code 77.
#![allow(clippy::print_stdout, reason = "the output of the program")]

use std::process::ExitCode;

use testkit::fetch::SKIPPED;
use testkit::nvidia;

fn main() -> anyhow::Result<ExitCode> {
    let Some(toolkit) = nvidia::toolkit()? else { return Ok(ExitCode::from(SKIPPED)) };
    println!("{}", toolkit.display());
    Ok(ExitCode::SUCCESS)
}
