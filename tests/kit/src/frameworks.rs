//! Training frameworks and trackers from the Python package index, each set in a virtual environment of its own under
//! `target`. They use the PyTorch of [`crate::torch`].

use std::fs;
use std::path::{Path, PathBuf};

use crate::{fetch, torch};

/// Packages of one environment, with the exact release of each.
#[derive(Clone, Copy)]
pub struct Framework {
    /// The name of the environment.
    pub name: &'static str,
    requirements: &'static str,
}

macro_rules! framework {
    ($name:literal) => {
        Framework {
            name: $name,
            requirements: include_str!(concat!("../../tests/frameworks/requirements/", $name, ".txt")),
        }
    };
}

/// Hugging Face's Trainer, Accelerate and Lightning.
pub const TRAINERS: Framework = framework!("trainers");
/// Weights & Biases, MLflow and TensorBoard.
pub const TRACKERS: Framework = framework!("trackers");
/// DeepSpeed.
pub const DEEPSPEED: Framework = framework!("deepspeed");
pub const TORCHFT: Framework = framework!("torchft");
/// TraceML, which a bench compares with.
pub const TRACEML: Framework = framework!("traceml");
/// Ray Train.
pub const RAY: Framework = framework!("ray");

impl Framework {
    fn folder(self) -> PathBuf {
        fetch::folder("frameworks").join(self.name)
    }

    /// Returns the path of a program of the environment.
    #[must_use]
    pub fn program(self, name: &str) -> PathBuf {
        self.folder().join("bin").join(name)
    }

    /// Creates the environment if it does not exist. Returns false and prints the reason on standard error if Python,
    /// PyTorch or the package index is not available.
    ///
    /// # Errors
    /// Returns an error if a file of the environment cannot be written.
    pub fn is_installed(self) -> anyhow::Result<bool> {
        if !torch::is_installed()? {
            return Ok(false);
        }
        let folder = self.folder();
        let version = format!("{}\n{}", self.requirements, folder.display());
        fetch::once(self.name, &folder, &version, || self.install(&folder))
    }

    fn install(self, folder: &Path) -> Result<(), String> {
        fetch::succeed(Path::new("python3"), &["-m", "venv", &folder.to_string_lossy()])?;
        let own = packages_of(&self.program("python"))?;
        let write = |name: PathBuf, text: &str| fs::write(name, text).map_err(|error| error.to_string());
        write(own.join("torch.pth"), &packages_of(&torch::program("python"))?.to_string_lossy())?;
        let list = folder.join("requirements.txt");
        write(list.clone(), self.requirements)?;
        let quietly =
            ["install", "--quiet", "--disable-pip-version-check", "--retries", "1", "--timeout", "20"];
        // The list is complete, and the dependencies of PyTorch's wheel would bring CUDA's libraries.
        let exactly = ["--no-deps", "--no-cache-dir", "-r", &list.to_string_lossy()];
        fetch::succeed(&self.program("pip"), &[&quietly[..], &exactly].concat())
    }
}

/// Returns the folder of a Python's packages.
fn packages_of(python: &Path) -> Result<PathBuf, String> {
    let print = ["-c", "import sysconfig; print(sysconfig.get_path('purelib'))"];
    let found = fetch::bounded("20", python, &print).map_err(|error| error.to_string())?;
    Ok(PathBuf::from(String::from_utf8_lossy(&found.stdout).trim()))
}
