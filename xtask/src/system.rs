//! What lies outside the workspace: running programs, and installing them where that is possible.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

/// The root of the workspace.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace")
}

/// The cargo that runs this.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// What cargo knows of the members of the workspace.
pub fn cargo_metadata() -> anyhow::Result<Value> {
    let output = cargo().args(["metadata", "--format-version", "1", "--no-deps"]).output()?;
    ensure!(output.status.success(), "cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The folder of the built programs.
pub fn programs() -> PathBuf {
    std::env::current_exe()
        .ok()
        .and_then(|exe| exe.parent().map(PathBuf::from))
        .unwrap_or_else(|| root().join("target/release"))
}

/// Runs a step of a longer command: says what it does, and how long it took.
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

/// A program that a Debian package brings.
pub struct Tool {
    /// Its name in PATH.
    pub program: &'static str,
    /// The package.
    pub package: &'static str,
    /// What it is needed for.
    pub purpose: &'static str,
    /// Arguments with which it succeeds only when the package is there; none where the program says it all.
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

/// Makes sure that all `tools` are there: installs their packages when run as root on a system with apt-get,
/// else says exactly what is missing.
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
        bail!(
            "these programs are missing:\n{}\nInstall them, on Debian with: sudo {by_hand}",
            list.join("\n")
        );
    }
    eprintln!("installing what is missing:\n{}", list.join("\n"));
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

/// Makes sure that rustfmt and clippy are there; where rustup does not install them by itself, asks it to.
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
