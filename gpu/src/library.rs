//! Finds and opens a shared library.
//!
//! The search order is: the library that the process has already loaded, the one that the program or environment names,
//! the one on the loader's path, and the one in Python's packages. Pip installs libraries there, and no loader searches
//! there.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library as Handle, RTLD_LOCAL, RTLD_NOW, Symbol};
use serde::Serialize;

/// `RTLD_NOLOAD` of glibc: returns a handle only if the library is already loaded.
const RTLD_NOLOAD: i32 = 4;

/// The place in which a library was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The process, which had already loaded the library. It is the library that the job itself uses.
    Mapped,
    /// The path that an environment variable or the program names.
    Named,
    /// The path of the dynamic loader.
    Loader,
    /// Python's packages.
    PythonPackages,
}

/// A library to search for.
#[derive(Clone, Copy, Debug)]
pub struct LibraryNames {
    /// The name of the library in messages.
    pub name: &'static str,
    /// The file names, best first.
    pub files: &'static [&'static str],
    /// The environment variable that names the file, if there is one.
    pub variable: Option<&'static str>,
    /// The folders below `site-packages` that may contain the library.
    pub packages: &'static [&'static str],
}

/// The reason why a library cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "problem", rename_all = "snake_case")]
pub enum Absent {
    /// The library was not found.
    #[error("{name} is not on this machine: no {files} in this process, on the loader's path or in Python's packages{hint}", files = .files.join(", "))]
    NotFound {
        /// The name of the library.
        name: &'static str,
        /// The file names that were searched for.
        files: Vec<&'static str>,
        /// Advice to set the variable that names the library. Empty if there is no such variable.
        hint: String,
    },
    /// The library was found but cannot be opened.
    #[error("{name} cannot be opened: {why}")]
    NotLoadable {
        /// The name of the library.
        name: &'static str,
        /// The loader's error, which names the file.
        why: String,
    },
    /// A function is missing from the library: the file is another library or too old.
    #[error("{name} at {path} has no function {function}: it is another library or too old")]
    Incomplete {
        /// The name of the library.
        name: &'static str,
        /// The path of the file.
        path: PathBuf,
        /// The missing function.
        function: &'static str,
    },
}

/// An open library. It stays open until the process ends: CUDA and NCCL have threads of their own, and unloading a
/// library while its threads run can crash the process at exit.
#[derive(Debug)]
pub struct Library {
    name: &'static str,
    handle: ManuallyDrop<Handle>,
    /// The path of the file, or only its name if the path is unknown.
    pub path: PathBuf,
    /// The place in which the library was found.
    pub origin: Origin,
}

impl Library {
    /// Finds and opens a library.
    ///
    /// # Errors
    /// Returns an error if there is no such library, or if the file that the environment names cannot be opened. The
    /// search does not silently skip a file that the user named.
    pub fn open(wanted: &LibraryNames) -> Result<Self, Absent> {
        Self::open_or(wanted, None)
    }

    /// Finds and opens a library as [`Self::open`] does. A path in `named` replaces the environment variable.
    ///
    /// # Errors
    /// Returns the errors of [`Self::open`].
    pub fn open_or(wanted: &LibraryNames, named: Option<&Path>) -> Result<Self, Absent> {
        if let Some(library) = Self::mapped(wanted) {
            return Ok(library);
        }
        let opened = |handle, file: &OsStr, origin| Self::new(wanted, handle, file, origin);
        let named = named.map(OsString::from).or_else(|| wanted.variable.and_then(env::var_os));
        if let Some(named) = named.filter(|named| !named.is_empty()) {
            let handle = open(&named, RTLD_NOW | RTLD_LOCAL)
                .map_err(|why| Absent::NotLoadable { name: wanted.name, why })?;
            return Ok(opened(handle, &named, Origin::Named));
        }
        let mut broken = None;
        for file in wanted.files {
            match open(OsStr::new(file), RTLD_NOW | RTLD_LOCAL) {
                Ok(handle) => return Ok(opened(handle, OsStr::new(file), Origin::Loader)),
                // A missing file is usual. Any other failure means a broken file, which is reported.
                Err(why) if !why.contains("No such file") => broken = Some(why),
                Err(_) => {}
            }
        }
        for path in files_in_python_packages(wanted) {
            match open(path.as_os_str(), RTLD_NOW | RTLD_LOCAL) {
                Ok(handle) => return Ok(opened(handle, path.as_os_str(), Origin::PythonPackages)),
                Err(why) => broken = Some(why),
            }
        }
        Err(match broken {
            Some(why) => Absent::NotLoadable { name: wanted.name, why },
            None => Absent::NotFound {
                name: wanted.name,
                files: wanted.files.to_vec(),
                hint: wanted
                    .variable
                    .map_or_else(String::new, |variable| format!("; set {variable} to its path")),
            },
        })
    }

    /// Returns the library if this process has already loaded it.
    #[must_use]
    pub fn mapped(wanted: &LibraryNames) -> Option<Self> {
        wanted.files.iter().map(OsStr::new).find_map(|file| {
            let handle = open(file, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD).ok()?;
            Some(Self::new(wanted, handle, file, Origin::Mapped))
        })
    }

    fn new(wanted: &LibraryNames, handle: Handle, file: &OsStr, origin: Origin) -> Self {
        Self {
            name: wanted.name,
            handle: ManuallyDrop::new(handle),
            path: mapped_path(file).unwrap_or_else(|| file.into()),
            origin,
        }
    }

    /// Returns a function of the library.
    ///
    /// # Safety
    /// `F` must be the function's type as its header declares it, with the C calling convention.
    ///
    /// # Errors
    /// Returns an error if the library has no such function.
    pub unsafe fn function<F: Copy>(&self, name: &'static str) -> Result<F, Absent> {
        // SAFETY: the caller guarantees the type. The library is never closed, so the pointer stays valid.
        let found: Result<Symbol<F>, _> = unsafe { self.handle.get(name.as_bytes()) };
        found.map(|symbol| *symbol).map_err(|_| Absent::Incomplete {
            name: self.name,
            path: self.path.clone(),
            function: name,
        })
    }
}

fn open(file: &OsStr, flags: i32) -> Result<Handle, String> {
    // SAFETY: the initializers of NVIDIA's libraries only set up tables. If the user names another library in an
    // environment variable, that library runs in a process of the same user.
    unsafe { Handle::open(Some(file), flags) }.map_err(|error| error.to_string())
}

/// Returns the path of a loaded library, from the memory map of the process.
fn mapped_path(file: &OsStr) -> Option<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let stem = Path::new(file).file_name()?.to_str()?;
    let paths = maps.lines().filter_map(|line| line.find('/').map(|at| Path::new(&line[at..])));
    let is_named = |path: &&Path| {
        // The file may be a link: libcuda.so.1 links to libcuda.so.550.163.01.
        let base = stem.split(".so").next().unwrap_or(stem);
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        name == stem || name.strip_prefix(base).is_some_and(|rest| rest.starts_with(".so"))
    };
    paths.into_iter().find(is_named).map(Path::to_path_buf)
}

/// Returns the library's files in the folders to which pip and Debian install Python's packages, for all environments
/// that this process can find.
fn files_in_python_packages(wanted: &LibraryNames) -> Vec<PathBuf> {
    let home = env::var_os("HOME").map(|home| Path::new(&home).join(".local"));
    let named = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(env::var_os).map(PathBuf::from);
    let system = ["/usr/local", "/usr"].map(PathBuf::from);
    let prefixes: Vec<PathBuf> = named.chain(prefix_of_python()).chain(home).chain(system).collect();
    let mut folders: Vec<PathBuf> = env::var_os("PYTHONPATH")
        .iter()
        .flat_map(|paths| env::split_paths(paths).collect::<Vec<_>>())
        .collect();
    folders.extend(prefixes.iter().flat_map(|prefix| packages_below(&prefix.join("lib"))));
    let files = |folder: &PathBuf| -> Vec<PathBuf> {
        let places = wanted
            .packages
            .iter()
            .flat_map(|package| wanted.files.iter().map(move |file| folder.join(package).join(file)));
        places.filter(|path| path.is_file()).collect()
    };
    folders.iter().flat_map(files).collect()
}

/// Returns the prefix of the first `python3` on the path, since an environment may be in use without `VIRTUAL_ENV`.
fn prefix_of_python() -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let first = env::split_paths(&path).find(|folder| folder.join("python3").is_file())?;
    first.parent().map(Path::to_path_buf)
}

/// Returns the minor version in a folder's name: 11 in `python3.11`, 0 if there is none.
fn minor_version(python: &OsString) -> u32 {
    let version = python.to_str().and_then(|name| name.strip_prefix("python3."));
    let digits = version.map(|version| version.trim_end_matches(|letter: char| !letter.is_ascii_digit()));
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// Returns the package folders below `lib`, such as `lib/python3.11/site-packages`, newest Python first.
fn packages_below(lib: &Path) -> Vec<PathBuf> {
    let is_python = |name: &OsString| name.to_str().is_some_and(|name| name.starts_with("python3"));
    let mut pythons: Vec<OsString> = fs::read_dir(lib)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name())
        .filter(is_python)
        .collect();
    pythons.sort_unstable_by_key(minor_version);
    let folders =
        |python: &OsString| ["site-packages", "dist-packages"].map(|kind| lib.join(python).join(kind));
    pythons.iter().rev().flat_map(folders).filter(|folder| folder.is_dir()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_python_comes_first() {
        let mut names = ["python3.9", "python3", "python3.13t", "python3.11"].map(OsString::from);
        names.sort_unstable_by_key(minor_version);
        assert_eq!(names, ["python3", "python3.9", "python3.11", "python3.13t"]);
    }
}
