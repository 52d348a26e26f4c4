//! PyTorch from the Python package index, in separate virtual environments under `target`: one for each release and
//! Python. It comes without CUDA's libraries, which would multiply the download by six.

use std::path::{Path, PathBuf};

use crate::fetch;

/// The release that most tests use.
const NEWEST: &str = "2.15.0";
/// The last patch release of each minor release on which the package must work.
pub const RELEASES: [&str; 12] = [
    "2.4.1", "2.5.1", "2.6.0", "2.7.1", "2.8.0", "2.9.1", "2.10.0", "2.11.0", "2.12.1", "2.13.0", "2.14.1",
    NEWEST,
];
/// An old release, whose process groups have no hooks.
const OLD: &str = "2.6.0";
/// If this variable is set, all releases are tested (`cargo xtask test --all-torch`).
const ALL: &str = "PACELINE_ALL_TORCH";
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
/// What torchrun imports besides on an older Python.
const NEEDED_BEFORE_3_10: &str = "importlib_metadata; python_version < '3.10'";
const STUBS: &str = include_str!("../../tests/hooks/pytorch/stubs.py");
const INSTALL: [&str; 7] =
    ["install", "--quiet", "--disable-pip-version-check", "--retries", "1", "--timeout", "20"];

/// Returns true if all releases are tested.
#[must_use]
pub fn is_for_all() -> bool {
    std::env::var_os(ALL).is_some()
}

/// A release of PyTorch for one Python, in a virtual environment.
#[derive(Clone, Debug)]
pub struct Torch {
    release: &'static str,
    python: PathBuf,
    folder: PathBuf,
    /// Releases of [`NEEDED`] for an older Python are those that pip finds.
    is_pinned: bool,
}

impl Torch {
    /// Returns the newest release.
    #[must_use]
    pub fn newest() -> Self {
        Self::of(NEWEST)
    }

    /// Returns the old release for a test that is also made with the newest one. Unless all releases are tested, prints that this one
    /// is skipped, and returns `None`.
    #[must_use]
    pub fn old_for(what: &str) -> Option<Self> {
        if !is_for_all() {
            fetch::skip(&format!("{what} with PyTorch {OLD}"), "only with `cargo xtask test --all-torch`");
        }
        is_for_all().then(|| Self::of(OLD))
    }

    /// Returns a release, for the Python of this machine.
    #[must_use]
    pub fn of(release: &'static str) -> Self {
        let folder = fetch::folder(&format!("pytorch-{release}"));
        Self { release, python: "python3".into(), folder, is_pinned: true }
    }

    /// Returns a release for another Python, of which `version` is the minor version.
    #[must_use]
    pub fn with(release: &'static str, python: &Path, version: &str) -> Self {
        let folder = fetch::folder(&format!("pytorch-{release}-python{version}"));
        Self { release, python: python.to_owned(), folder, is_pinned: false }
    }

    /// Returns the path of a program of the environment.
    #[must_use]
    pub fn program(&self, name: &str) -> PathBuf {
        self.folder.join("bin").join(name)
    }

    /// Creates the environment if it does not exist. Returns false and prints the reason on standard error if Python,
    /// venv or the package index is not available.
    ///
    /// # Errors
    /// Returns an error if a file of the environment cannot be written.
    pub fn is_installed(&self) -> anyhow::Result<bool> {
        let needed = self.needed();
        // Programs of a virtual environment contain the path of its folder, so a moved environment is created again.
        let version =
            format!("torch=={}\n{}\n{STUBS}\n{}", self.release, needed.join("\n"), self.folder.display());
        fetch::once(&format!("PyTorch {}", self.release), &self.folder, &version, || self.install(&needed))
    }

    fn needed(&self) -> Vec<&'static str> {
        let name = |pinned: &'static str| pinned.split('=').next().unwrap_or(pinned);
        if self.is_pinned {
            return NEEDED.to_vec();
        }
        NEEDED.into_iter().map(name).chain([NEEDED_BEFORE_3_10]).collect()
    }

    fn install(&self, needed: &[&str]) -> Result<(), String> {
        fetch::succeed(&self.python, &["-m", "venv", &self.folder.to_string_lossy()])?;
        let torch = format!("torch=={}", self.release);
        let (pip, python) = (self.program("pip"), self.program("python"));
        fetch::succeed(&pip, &[&INSTALL[..], &["--no-deps", "--no-cache-dir", &torch]].concat())?;
        fetch::succeed(&pip, &[&INSTALL[..], needed].concat())?;
        let packages = "import sysconfig; print(sysconfig.get_path('purelib'))";
        let found = fetch::bounded("20", &python, &["-c", packages]).map_err(|error| error.to_string())?;
        let packages = String::from_utf8_lossy(&found.stdout).trim().to_owned();
        fetch::succeed(&python, &["-c", STUBS, &packages])
    }
}

/// Returns the path of a program of the environment of the newest release.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    Torch::newest().program(name)
}

/// Creates the environment of the newest release if it does not exist, like [`Torch::is_installed`].
///
/// # Errors
/// Returns the errors of [`Torch::is_installed`].
pub fn is_installed() -> anyhow::Result<bool> {
    Torch::newest().is_installed()
}
