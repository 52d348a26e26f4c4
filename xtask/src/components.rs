//! `cargo xtask components`: the tests of the dashboard's components, in a real browser.
//!
//! `cargo test` builds the tests for WebAssembly and passes the program to this one, which runs it in headless Chromium
//! with the runner of wasm-bindgen. That runner is a library here, so its version is the one of the lockfile.

use std::env;

use anyhow::Context as _;
use wasm_bindgen_cli::wasm_bindgen_test_runner::run_cli_with_args;

use crate::system::{BROWSER, cargo, ensure_tools, root, step};
use crate::web;

/// The hidden command with which cargo calls this program.
pub const RUNNER: &str = "wasm-test-runner";

/// Builds and runs the tests; those whose names contain `filter`, if given.
pub fn run(filter: Option<&str>) -> anyhow::Result<()> {
    ensure_tools(&BROWSER)?;
    web::ensure_target()?;
    let runner = env::current_exe().context("this program has no path")?;
    let runner = format!("{} {RUNNER}", runner.display());
    step(
        "tests of components",
        web::for_browser(cargo().args(["test", "--lib"]))
            .args(filter)
            .env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUNNER", runner)
            .env("CHROMEDRIVER", "chromedriver")
            .env("WASM_BINDGEN_TEST_WEBDRIVER_JSON", root().join("web/webdriver.json"))
            // Seconds, until the driver listens, and for all tests together.
            .env("WASM_BINDGEN_TEST_DRIVER_TIMEOUT", "30")
            .env("WASM_BINDGEN_TEST_TIMEOUT", "180"),
    )
}

/// Runs the tests of a WebAssembly program. `arguments` are those that cargo passes to a test.
pub fn runner(arguments: &[String]) -> anyhow::Result<()> {
    run_cli_with_args([RUNNER.to_owned()].iter().chain(arguments))
}
