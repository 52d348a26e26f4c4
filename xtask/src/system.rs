//! Everything outside the workspace: running programs, and installing them if possible.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

/// Returns the root of the workspace.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the workspace")
}

/// Returns a command for the cargo that runs this program, in the root of the workspace.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// How programs are built. Cargo.toml has what is optimized in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// For tests and the demo.
    Dev,
    /// For what is shipped or measured.
    Release,
}

impl Profile {
    pub fn name(self) -> &'static str {
        match self {
            Self::Dev => "dev",
            Self::Release => "release",
        }
    }

    /// Returns a command that builds these programs of the workspace; all libraries and programs if the list is empty.
    pub fn build(self, programs: &[&str]) -> Command {
        let mut command = cargo();
        command.args(["build", "--profile", self.name()]);
        command.args(programs.iter().flat_map(|program| ["--bin", program]));
        command
    }

    /// Returns the folder of the built programs.
    pub fn folder(self) -> PathBuf {
        target().join(if self == Self::Dev { "debug" } else { "release" })
    }
}

/// Returns cargo's target folder: this program is two folders below it.
pub fn target() -> PathBuf {
    let here = std::env::current_exe().ok();
    let target = here.as_deref().and_then(Path::parent).and_then(Path::parent);
    target.map_or_else(|| root().join("target"), Path::to_owned)
}

/// Returns cargo's metadata about the members of the workspace.
pub fn cargo_metadata() -> anyhow::Result<Value> {
    let output = cargo().args(["metadata", "--format-version", "1", "--no-deps"]).output()?;
    ensure!(output.status.success(), "cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Runs one step of a longer command, and prints its name and how long it took.
pub fn step(what: &str, command: &mut Command) -> anyhow::Result<()> {
    eprintln!("\n== {what}");
    let began = Instant::now();
    let status = command
        .status()
        .with_context(|| format!("{what}: cannot run {}", command.get_program().to_string_lossy()))?;
    ensure!(status.success(), "{what}: failed ({status}); the command was {}", written_out(command));
    eprintln!("   {what}: {:.0} s", began.elapsed().as_secs_f64());
    Ok(())
}

fn written_out(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// A program from a Debian package.
pub struct Tool {
    /// The name of the program in PATH.
    pub program: &'static str,
    /// The name of the Debian package.
    pub package: &'static str,
    /// The reason why the program is needed.
    pub purpose: &'static str,
    /// Arguments with which the program succeeds only if the package is installed; empty if the program's presence
    /// suffices.
    pub probe: &'static [&'static str],
}

impl Tool {
    fn is_there(&self) -> bool {
        let works = || {
            Command::new(self.program).args(self.probe).output().is_ok_and(|output| output.status.success())
        };
        is_in_path(self.program) && (self.probe.is_empty() || works())
    }
}

/// A browser and its driver.
pub const BROWSER: [Tool; 2] = [
    Tool { program: "chromium", package: "chromium", purpose: "browser tests", probe: &[] },
    Tool { program: "chromedriver", package: "chromium-driver", purpose: "browser tests", probe: &[] },
];

/// Ensures that all `tools` are installed. Installs missing packages if run as root on a system with apt-get.
///
/// # Errors
/// Returns an error that lists the missing tools if they cannot be installed.
pub fn ensure_tools(tools: &[Tool]) -> anyhow::Result<()> {
    let missing: Vec<&Tool> = tools.iter().filter(|tool| !tool.is_there()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let list: Vec<String> = missing
        .iter()
        .map(|tool| format!("  {:16} {} (package {})", tool.program, tool.purpose, tool.package))
        .collect();
    let packages: Vec<&str> = missing.iter().map(|tool| tool.package).collect();
    let by_hand = format!("apt-get install {}", packages.join(" "));
    if !is_in_path("apt-get") || !is_root() {
        bail!("these programs are missing:\n{}\nInstall them; on Debian: sudo {by_hand}", list.join("\n"));
    }
    eprintln!("installing missing programs:\n{}", list.join("\n"));
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
        command
    };
    step("apt-get update", &mut apt(&["update", "-qq"]))?;
    let install = ["install", "-y", "-qq", "--no-install-recommends"];
    step(&by_hand, apt(&install).args(&packages))
}

fn is_in_path(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|folder| folder.join(program).is_file())
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

/// Ensures that rustfmt and clippy are installed, with rustup if necessary.
pub fn ensure_components() -> anyhow::Result<()> {
    for (subcommand, component) in [("fmt", "rustfmt"), ("clippy", "clippy")] {
        let there =
            cargo().args([subcommand, "--version"]).output().is_ok_and(|output| output.status.success());
        if !there {
            step(
                &format!("rustup component add {component}"),
                Command::new("rustup").current_dir(root()).args(["component", "add", component]),
            )?;
        }
    }
    Ok(())
}
