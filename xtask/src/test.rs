//! `cargo xtask test`: everything that must hold before a change lands.

use std::time::Instant;

use anyhow::{Context as _, bail};

use crate::system::{Tool, cargo, cargo_metadata, ensure_components, ensure_tools, programs, root, step};
use crate::{gpu, tidy, web};

/// A browser that a program drives.
pub const BROWSER: [Tool; 2] = [
    Tool { program: "chromium", package: "chromium", purpose: "browser tests", probe: &[] },
    Tool { program: "chromedriver", package: "chromium-driver", purpose: "browser tests", probe: &[] },
];

/// What watches a server and sends alerts.
pub const MONITORING: [Tool; 2] = [
    Tool {
        program: "promtool",
        package: "prometheus",
        purpose: "checks /metrics and the rules; alert tests",
        probe: &[],
    },
    Tool {
        program: "prometheus-alertmanager",
        package: "prometheus-alertmanager",
        purpose: "alert tests",
        probe: &[],
    },
];

/// What reads exports.
const PYTHON: [Tool; 1] = [Tool {
    program: "python3",
    package: "python3-venv",
    purpose: "reads exports with HolisticTraceAnalysis",
    // Debian's python3 has venv only with this package.
    probe: &["-c", "import ensurepip"],
}];

const DENY: [&str; 3] = ["--", "-D", "warnings"];

/// Runs all checks, the quick ones first.
pub fn run(arguments: &[String]) -> anyhow::Result<()> {
    if let Some(other) = arguments.first() {
        bail!(
            "test takes no arguments, not even {other}: for one test use cargo test --release -p PACKAGE NAME"
        );
    }
    let began = Instant::now();
    ensure_components()?;
    ensure_tools(&BROWSER)?;
    ensure_tools(&MONITORING)?;
    ensure_tools(&PYTHON)?;
    step("format", cargo().args(["fmt", "--all", "--check"]))?;
    eprintln!("\n== tidy");
    tidy::run()?;
    eprintln!("\n== web");
    web::run()?;
    web::check_size()?;
    let native = ["--workspace", "--exclude", "paceline-web"];
    step("lints", cargo().args(["clippy", "--release", "--all-targets"]).args(native).args(DENY))?;
    let browser = ["--package", "paceline-web", "--profile", "web", "--target", "wasm32-unknown-unknown"];
    step("lints, browser", cargo().args(["clippy", "--target-dir", "target/web"]).args(browser).args(DENY))?;
    gpu::check_job(&DENY)?;
    step("build", cargo().args(["build", "--release"]).args(native))?;
    let test = ["test", "--release"];
    let [of_crates, of_the_whole] = test_programs()?;
    // Programs have no tests of their own (`tidy` sees to it): each would be compiled and linked twice.
    step("tests of each crate", cargo().args(test).args(native).arg("--lib").args(of_crates))?;
    step("examples in documentation", cargo().args(test).args(native).arg("--doc"))?;
    // What was installed above is there: a test that does not find it has failed.
    let required = [("REQUIRE_BROWSER", "1"), ("REQUIRE_PROMETHEUS", "1")];
    // Whole training jobs share the cores: one test at a time, or they measure each other.
    let alone = ["--", "--test-threads=1"];
    step(
        "tests of the whole",
        cargo().args(test).args(native).args(of_the_whole).args(alone).envs(required),
    )?;
    gpu::accept(&programs(), &root().join("target/gpu-results"))?;
    eprintln!("\nAll checks passed in {:.0} s.", began.elapsed().as_secs_f64());
    Ok(())
}

/// The test programs of all crates but `paceline-tests`, and those of that one, as arguments for `cargo test`. They are
/// asked for by name and not by package: a package alone is built anew, with what it depends on, since other packages of
/// the workspace ask for more features of the same libraries.
fn test_programs() -> anyhow::Result<[Vec<String>; 2]> {
    let metadata = cargo_metadata()?;
    let mut programs = [Vec::new(), Vec::new()];
    for package in metadata["packages"].as_array().context("cargo metadata lists no packages")? {
        let of_the_whole = package["name"] == "paceline-tests";
        for target in package["targets"].as_array().into_iter().flatten() {
            if let (true, Some(name)) = (target["kind"][0] == "test", target["name"].as_str()) {
                programs[usize::from(of_the_whole)].extend(["--test".to_owned(), name.to_owned()]);
            }
        }
    }
    Ok(programs)
}
