//! PyTorch from the Python package index, in a separate virtual environment under `target`. It comes without CUDA's
//! libraries, which would multiply the download by six.

use std::path::{Path, PathBuf};

use crate::fetch;

/// The pinned release: the second one that reports collectives of backends other than NCCL.
const PYTORCH: &str = "torch==2.15.0";
/// The packages that PyTorch imports.
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
const STUBS: &str = include_str!("../../tests/hooks/pytorch/stubs.py");

fn environment() -> PathBuf {
    fetch::folder("pytorch")
}

/// Returns the path of a program of the environment.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    environment().join("bin").join(name)
}

/// Creates the environment if it does not exist. Returns false and prints the reason on standard error if Python, venv
/// or the package index is not available.
///
/// # Errors
/// Returns an error if a file of the environment cannot be written.
pub fn is_installed() -> anyhow::Result<bool> {
    let folder = environment();
    // Programs of a virtual environment contain the path of its folder, so a moved environment is created again.
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
