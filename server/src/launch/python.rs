//! The Python package `paceline` for the Python processes of a job: the installed one that this program belongs to, or a
//! copy of the one that was built with it.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use tempfile::TempDir;

/// The native part of the package, as cargo names it. It lies next to this program.
const NATIVE: &str = "libpaceline_python.so";
/// The native part of the package, as Python names it.
const EXTENSION: &str = "_native.abi3.so";
/// The folder in the package whose `sitecustomize` Python runs at startup.
const SITE: &str = "_site";

macro_rules! modules {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../../python/paceline/", $name)))),*]
    };
}

/// The modules of the package.
const MODULES: [(&str, &str); 29] = modules![
    "__init__.py",
    "_agent.py",
    "_buckets.py",
    "_deepspeed.py",
    "_devices.py",
    "_errors.py",
    "_failure.py",
    "_fsdp.py",
    "_groups.py",
    "_identity.py",
    "_imports.py",
    "_labels.py",
    "_layouts.py",
    "_lines.py",
    "_log.py",
    "_memory.py",
    "_modes.py",
    "_observe.py",
    "_pauses.py",
    "_phases.py",
    "_run.py",
    "_thread.py",
    "_torchft.py",
    "_trace.py",
    "_trackers.py",
    "_waiter.py",
    "_waits.py",
    "_workload.py",
    "_site/sitecustomize.py",
];

/// The package, in a folder of its own if it is a copy. Dropping the value removes the copy.
#[derive(Debug)]
pub struct Package {
    folder: PathBuf,
    _copy: Option<TempDir>,
}

impl Package {
    /// Finds the package.
    ///
    /// # Errors
    /// Returns an error if its native part is not found, or if the copy cannot be written.
    pub fn find() -> anyhow::Result<Self> {
        let own =
            env::current_exe().and_then(fs::canonicalize).context("cannot find this program's own file")?;
        let folder = own.parent().context("this program's own file has no folder")?;
        match folder.parent().filter(|package| package.join(EXTENSION).is_file()) {
            Some(installed) => Ok(Self { folder: installed.to_owned(), _copy: None }),
            None => Self::copy(&folder.join(NATIVE)),
        }
    }

    /// Writes a copy of the package, with `native` as its native part.
    ///
    /// # Errors
    /// Returns an error if `native` does not exist, or if the copy cannot be written.
    pub fn copy(native: &Path) -> anyhow::Result<Self> {
        let native = native
            .canonicalize()
            .with_context(|| format!("cannot find {}: build it (cargo build --release)", native.display()))?;
        // Stacks leave this folder out of the names of files (`attach/src/python_stacks/process.rs`).
        let copy = tempfile::Builder::new().prefix("paceline-python-").tempdir()?;
        let folder = copy.path().join("paceline");
        let write = || {
            fs::create_dir_all(folder.join(SITE))?;
            for (name, text) in MODULES {
                fs::write(folder.join(name), text)?;
            }
            symlink(native, folder.join(EXTENSION))
        };
        write().with_context(|| format!("cannot write {}", folder.display()))?;
        Ok(Self { folder, _copy: Some(copy) })
    }

    /// Returns the folder that goes first in `PYTHONPATH`.
    #[must_use]
    pub fn site(&self) -> OsString {
        self.folder.join(SITE).into_os_string()
    }
}
