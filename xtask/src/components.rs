//! `cargo xtask components`: the tests of the dashboard's components, in a real browser.
//!
//! `cargo test` builds the tests for WebAssembly and passes the program to a runner (`xtask/runner`), which runs it in headless Chromium.

use crate::system::{BROWSER, Profile, cargo, ensure_tools, root, step};
use crate::web;

/// The program with which cargo runs the tests.
const RUNNER: &str = "wasm-test-runner";
const TESTS: [&str; 2] = ["test", "--lib"];

/// Builds the tests.
pub fn build() -> anyhow::Result<()> {
    step("building the tests of components", web::for_browser(cargo().args(TESTS)).arg("--no-run"))
}

/// Builds and runs the tests; those whose names contain `filter`, if given.
pub fn run(filter: Option<&str>) -> anyhow::Result<()> {
    ensure_tools(&BROWSER)?;
    web::ensure_target()?;
    step("building the runner of tests in a browser", &mut Profile::Dev.build(&[RUNNER]))?;
    step(
        "tests of components",
        web::for_browser(cargo().args(TESTS))
            .args(filter)
            .env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUNNER", Profile::Dev.folder().join(RUNNER))
            .env("CHROMEDRIVER", "chromedriver")
            .env("WASM_BINDGEN_TEST_WEBDRIVER_JSON", root().join("web/webdriver.json"))
            // Seconds, until the driver listens, and for all tests together.
            .env("WASM_BINDGEN_TEST_DRIVER_TIMEOUT", "30")
            .env("WASM_BINDGEN_TEST_TIMEOUT", "180"),
    )
}
