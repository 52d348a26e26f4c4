//! PyTorch, from the Python package index, in a virtual environment of its own under `target`; without CUDA's libraries,
//! which would be six times as much.

use std::path::{Path, PathBuf};

use crate::fetch;

/// The first release but one that tells of collectives which NCCL does not carry.
const PYTORCH: &str = "torch==2.15.0";
/// What it imports.
const NEEDED: [&str; 10] = [
    "filelock==4.2.11",
    "fsspec==2026.9.0",
    "Jinja2==3.1.6",
    "MarkupSafe==3.0.4",
    "mpmath==1.3.0",
    "networkx==3.6.1",
    "numpy==2.4.6",
    "setuptools==84.2.1",
    "sympy==1.14.0",
    "typing_extensions==4.16.0",
];
const STUBS: &str = include_str!("../tests/pytorch/stubs.py");

fn environment() -> PathBuf {
    fetch::folder("pytorch")
}

/// A program of the environment.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    environment().join("bin").join(name)
}

/// Makes the environment where it is not there yet. False, with the reason on standard error, where there is no Python,
/// no venv or no way to the package index.
///
/// # Errors
/// When a file of the environment cannot be written.
pub fn is_installed() -> anyhow::Result<bool> {
    let folder = environment();
    // Programs of a virtual environment name its folder: one that was moved is made again.
    let version = format!("{PYTORCH}\n{}\n{STUBS}\n{}", NEEDED.join("\n"), folder.display());
    fetch::once("PyTorch", &folder, &version, || {
        fetch::succeed(Path::new("python3"), &["-m", "venv", &folder.to_string_lossy()])?;
        let install =
            ["install", "--quiet", "--disable-pip-version-check", "--retries", "1", "--timeout", "20"];
        let no_more = ["--no-deps", "--no-cache-dir", PYTORCH];
        fetch::succeed(&program("pip"), &[&install[..], &no_more].concat())?;
        fetch::succeed(&program("pip"), &[&install[..], &NEEDED].concat())?;
        let packages = "import sysconfig; print(sysconfig.get_path('purelib'))";
        let found =
            fetch::bounded("20", &program("python"), &["-c", packages]).map_err(|error| error.to_string())?;
        let packages = String::from_utf8_lossy(&found.stdout).trim().to_owned();
        fetch::succeed(&program("python"), &["-c", STUBS, &packages])
    })
}
