//! `cargo xtask test`: all checks that must pass before a change is merged.

use std::time::Instant;

use anyhow::{Context as _, ensure};

use crate::system::{
    BROWSER, Tool, build, cargo, cargo_metadata, ensure_components, ensure_tools, programs, root, step,
};
use crate::{components, gpu, tidy, web, wheel, whole_jobs};

/// The programs that monitor a server and send alerts.
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

/// The interpreter of the libraries that read exports.
const PYTHON: [Tool; 1] = [Tool {
    program: "python3",
    package: "python3-venv",
    purpose: "reads exports with HolisticTraceAnalysis",
    // On Debian, python3 has venv only if this package is installed.
    probe: &["-c", "import ensurepip"],
}];

const DENY: [&str; 3] = ["--", "-D", "warnings"];

/// Tests kill servers all the time, and the ports of these are used again: no later test is to send what their jobs could not.
const NOTHING_KEPT: (&str, &str) = ("PACELINE_SPOOL_DIR", "");

/// What is tested beyond the usual.
#[derive(clap::Args)]
pub struct Options {
    /// Test every supported release of PyTorch (30 GB under target) and every Python that is installed
    #[arg(long)]
    all_torch: bool,
    /// Also test DeepSpeed, Ray Train and torchft, which take 650 MB and some minutes more
    #[arg(long)]
    all_frameworks: bool,
    /// Try more seeds, fuzz inputs and kills, and test what the other options test
    #[arg(long)]
    long: bool,
}

impl Options {
    /// Returns the variables that pass the options to the tests.
    fn variables(&self) -> Vec<(&'static str, &'static str)> {
        let all_torch = (self.all_torch || self.long).then_some(("PACELINE_ALL_TORCH", "1"));
        let all_frameworks = (self.all_frameworks || self.long).then_some(("PACELINE_ALL_FRAMEWORKS", "1"));
        let long: &[_] = if self.long { &LONG } else { &[] };
        all_torch.into_iter().chain(all_frameworks).chain(long.iter().copied()).collect()
    }
}

/// How much `--long` tries of what is drawn by chance.
const LONG: [(&str, &str); 3] =
    [("PACELINE_SEEDS", "50000"), ("PACELINE_FUZZ", "10"), ("PACELINE_KILLS", "1000")];

/// Runs the checks that take a minute or two once the workspace is built. They need no tools but Rust.
pub fn quick() -> anyhow::Result<()> {
    let began = Instant::now();
    ensure_components()?;
    step("format", cargo().args(["fmt", "--all", "--check"]))?;
    eprintln!("\n== tidy");
    tidy::run()?;
    step("lints", cargo().args(["clippy", "--release", "--all-targets"]).args(DENY))?;
    let unit_tests = ["test", "--release", "--lib"];
    step("unit tests", cargo().args(unit_tests).env(NOTHING_KEPT.0, NOTHING_KEPT.1))?;
    eprintln!(
        "\nThe quick checks passed in {:.0} s. `cargo xtask test` runs all.",
        began.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Runs all checks, quick ones first.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let began = Instant::now();
    ensure_components()?;
    ensure_tools(&BROWSER)?;
    ensure_tools(&MONITORING)?;
    ensure_tools(&PYTHON)?;
    step("format", cargo().args(["fmt", "--all", "--check"]))?;
    eprintln!("\n== tidy");
    tidy::run()?;
    dependencies()?;
    let more = options.variables();
    // The last part of the page's build uses one core. What is native is built and tested meanwhile.
    let page = std::thread::Builder::new().name("page".into()).spawn(check_page)?;
    step("lints", cargo().args(["clippy", "--release", "--all-targets"]).args(DENY))?;
    gpu::check_job(&DENY)?;
    step("build", &mut build(&[]))?;
    let [of_crates, whole_jobs] = test_programs()?;
    test_crates(&of_crates, &more)?;
    page.join().map_err(|_| anyhow::anyhow!("the checks of the page panicked"))??;
    step("adding the page to the program", &mut build(&[]))?;
    if let Err(error) = wheel::run() {
        // The package index may be out of reach, and then so are the tests of the wheel.
        ensure!(!wheel::is_prepared(), "{error:#}");
        eprintln!("SKIP the Python package: {error:#}");
    }
    // The tools were installed above, so a test that does not find its tool has failed.
    let required = [("REQUIRE_BROWSER", "1"), ("REQUIRE_PROMETHEUS", "1"), NOTHING_KEPT];
    let variables: Vec<_> = required.into_iter().chain(more).collect();
    let repeated = whole_jobs::run(&whole_jobs, &variables)?;
    gpu::accept(&programs(), &root().join("target/gpu-results"))?;
    eprintln!("\nAll checks passed in {:.0} s.", began.elapsed().as_secs_f64());
    for name in repeated {
        eprintln!("DISTURBED {name}: failed, then passed alone; find out why");
    }
    Ok(())
}

/// Builds the page, and checks its size, its code and its components.
fn check_page() -> anyhow::Result<()> {
    eprintln!("\n== web");
    web::run(web::Size::Small)?;
    web::check_size()?;
    step("lints, browser", web::for_browser(cargo().args(["clippy", "--all-targets"])).args(DENY))?;
    components::run(None)
}

/// Runs the unit tests of all crates, these test programs and the examples in documentation, with these variables.
fn test_crates(programs: &[String], variables: &[(&str, &str)]) -> anyhow::Result<()> {
    let mut tests = cargo();
    // `tidy` makes sure that programs have no tests of their own, so `--lib` suffices and programs are built once.
    tests.args(["test", "--release", "--lib"]).args(programs.iter().flat_map(|name| ["--test", name]));
    tests.env(NOTHING_KEPT.0, NOTHING_KEPT.1).envs(variables.iter().copied());
    step("tests of each crate", &mut tests)?;
    step("examples in documentation", cargo().args(["test", "--release", "--doc"]))
}

/// Checks the licenses and sources of all dependencies, if cargo-deny is installed.
fn dependencies() -> anyhow::Result<()> {
    let probe = cargo().args(["deny", "--version"]).output().context("cannot run cargo")?;
    if !probe.status.success() {
        eprintln!(
            "\n== dependencies\nSKIP deny.toml: cargo-deny is not installed (cargo install cargo-deny)"
        );
        return Ok(());
    }
    step("dependencies", cargo().args(["deny", "check", "bans", "licenses", "sources"]))
}

/// Returns the names of the test programs of all crates but `paceline-tests`, and those of `paceline-tests`. Tests are run
/// by program and not by package. Cargo would build a single package and its dependencies again, because other packages
/// of the workspace request more features of the same libraries.
fn test_programs() -> anyhow::Result<[Vec<String>; 2]> {
    let metadata = cargo_metadata()?;
    let mut programs = [Vec::new(), Vec::new()];
    for package in metadata["packages"].as_array().context("cargo metadata lists no packages")? {
        let of_the_whole = package["name"] == "paceline-tests";
        for target in package["targets"].as_array().into_iter().flatten() {
            if let (true, Some(name)) = (target["kind"][0] == "test", target["name"].as_str()) {
                programs[usize::from(of_the_whole)].push(name.to_owned());
            }
        }
    }
    Ok(programs)
}
