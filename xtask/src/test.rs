//! `cargo xtask test`: all checks that must pass before a change is merged.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, ensure};

use crate::system::{
    BROWSER, Profile, Tool, cargo, cargo_metadata, ensure_components, ensure_tools, root, step,
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

/// The command that runs unit tests. `tidy` makes sure that programs have no tests of their own, so those of libraries suffice.
const UNIT_TESTS: [&str; 2] = ["test", "--lib"];

/// The program that downloads what tests of whole jobs need. Meanwhile, the other tests run.
const DOWNLOADS: &str = "downloads";

/// The package whose programs are measurements, which no test runs.
const BENCHES: &str = "paceline-benches";

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

/// How much of what is drawn by chance the quick checks try: the simulation of storage would take a minute.
const FEW_SEEDS: (&str, &str) = ("PACELINE_SEEDS", "200");

/// Runs the checks that take two or three minutes once the workspace is built. They need no tools but Rust.
pub fn quick() -> anyhow::Result<()> {
    let began = Instant::now();
    ensure_components()?;
    step("format", cargo().args(["fmt", "--all", "--check"]))?;
    eprintln!("\n== tidy");
    tidy::run()?;
    lints()?;
    let mut tests = cargo();
    tests.args(UNIT_TESTS).envs([NOTHING_KEPT, FEW_SEEDS]);
    step("unit tests", &mut tests)?;
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
    lints()?;
    let targets = Targets::read()?;
    step("build", &mut targets.build())?;
    let mut downloads = Command::new(Profile::Dev.folder().join(DOWNLOADS)).spawn().context(DOWNLOADS)?;
    targets.test_crates(&more)?;
    page.join().map_err(|_| anyhow::anyhow!("the checks of the page panicked"))??;
    components::run(None)?;
    step("adding the page to the program", &mut targets.build())?;
    if let Err(error) = wheel::run(Profile::Dev) {
        // The package index may be out of reach, and then so are the tests of the wheel.
        ensure!(!wheel::is_prepared(), "{error:#}");
        eprintln!("SKIP the Python package: {error:#}");
    }
    downloads.wait()?;
    // The tools were installed above, so a test that does not find its tool has failed.
    let required = [("REQUIRE_BROWSER", "1"), ("REQUIRE_PROMETHEUS", "1"), NOTHING_KEPT];
    let variables: Vec<_> = required.into_iter().chain(more).collect();
    let repeated = whole_jobs::run(&targets.whole_jobs, &variables)?;
    if options.long {
        beyond()?;
    }
    gpu::accept(&Profile::Dev.folder(), &root().join("target/gpu-results"))?;
    eprintln!("\nAll checks passed in {:.0} s.", began.elapsed().as_secs_f64());
    for name in repeated {
        eprintln!("DISTURBED {name}: failed, then passed alone; find out why");
    }
    Ok(())
}

/// Checks what compiles everything once more.
fn beyond() -> anyhow::Result<()> {
    let checks = ["--config", "profile.dev.overflow-checks=true"];
    step("unit tests with overflow checks", cargo().args(UNIT_TESTS).args(checks))?;
    // It limits the sizes of the page and of the wheel.
    wheel::run(Profile::Release).map(drop)
}

fn lints() -> anyhow::Result<()> {
    let mut command = cargo();
    step("lints", gpu::with_stub(command.args(["clippy", "--all-targets"]))?.args(DENY))
}

/// Builds the page and the tests of its components, and checks its code.
fn check_page() -> anyhow::Result<()> {
    step("lints, browser", web::for_browser(cargo().args(["clippy", "--all-targets"])).args(DENY))?;
    components::build()?;
    eprintln!("\n== web");
    web::run(web::Size::Any)
}

/// The programs of the workspace, by what they are for. They are named to cargo one by one: it would build a single package and its
/// dependencies again, because other packages of the workspace request more features of the same libraries.
#[derive(Default)]
struct Targets {
    /// What tests and users run.
    programs: Vec<String>,
    /// The test programs of all crates but `paceline-tests`.
    of_crates: Vec<String>,
    /// The test programs of `paceline-tests`.
    whole_jobs: Vec<String>,
}

impl Targets {
    fn read() -> anyhow::Result<Self> {
        let metadata = cargo_metadata()?;
        let mut targets = Self::default();
        for package in metadata["packages"].as_array().context("cargo metadata lists no packages")? {
            for target in package["targets"].as_array().into_iter().flatten() {
                let list = match (target["kind"][0].as_str(), package["name"].as_str()) {
                    (Some("bin"), Some(name)) if name != BENCHES => &mut targets.programs,
                    (Some("test"), Some("paceline-tests")) => &mut targets.whole_jobs,
                    (Some("test"), _) => &mut targets.of_crates,
                    _ => continue,
                };
                list.extend(target["name"].as_str().map(str::to_owned));
            }
        }
        Ok(targets)
    }

    /// Returns the command that builds all libraries, and the programs that tests run.
    fn build(&self) -> Command {
        let programs: Vec<&str> = self.programs.iter().map(String::as_str).collect();
        let mut command = Profile::Dev.build(&programs);
        command.arg("--lib");
        command
    }

    /// Runs the unit tests of all crates, their test programs and the examples in documentation, with these variables.
    fn test_crates(&self, variables: &[(&str, &str)]) -> anyhow::Result<()> {
        let run = |what, command: &mut Command| {
            step(what, command.env(NOTHING_KEPT.0, NOTHING_KEPT.1).envs(variables.iter().copied()))
        };
        run("unit tests", cargo().args(UNIT_TESTS))?;
        let programs = self.of_crates.iter().flat_map(|name| ["--test", name]);
        run("test programs of crates", cargo().arg("test").args(programs))?;
        step("examples in documentation", cargo().args(["test", "--doc"]))
    }
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
