//! Prints the folder of a CUDA toolkit, which it takes from the Python package index where it is not there yet (2 GB);
//! exit code 77, with the reason on standard error, where it cannot.
#![allow(clippy::print_stdout, reason = "what the program is for")]

use std::process::ExitCode;

use paceline_tests::fetch::SKIPPED;
use paceline_tests::nvidia;

fn main() -> anyhow::Result<ExitCode> {
    let Some(toolkit) = nvidia::toolkit()? else { return Ok(ExitCode::from(SKIPPED)) };
    println!("{}", toolkit.display());
    Ok(ExitCode::SUCCESS)
}
