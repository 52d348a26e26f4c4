//! Finding and opening one shared library: the one the process has already, else the one that is named, else the
//! loader's, else the one inside Python's packages, which is where pip puts them and no loader looks.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library as Handle, RTLD_LOCAL, RTLD_NOW, Symbol};
use serde::Serialize;

/// `RTLD_NOLOAD` of glibc: a handle only where the library is there already.
const RTLD_NOLOAD: i32 = 4;

/// How a library was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The process had it already: what the job itself uses.
    Mapped,
    /// An environment variable, or the program, names it.
    Named,
    /// The dynamic loader knows it.
    Loader,
    /// It lies in Python's packages.
    PythonPackages,
}

/// Which library is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// What it is called in a sentence.
    pub name: &'static str,
    /// File names, the best first.
    pub files: &'static [&'static str],
    /// The environment variable that names it, if there is one.
    pub variable: Option<&'static str>,
    /// Folders below `site-packages` that have it.
    pub packages: &'static [&'static str],
}

/// Why a library cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "problem", rename_all = "snake_case")]
pub enum Absent {
    /// It is nowhere.
    #[error("{name} is not on this machine: no {files} in this process, on the loader's path or in Python's packages{hint}", files = .files.join(", "))]
    NotFound {
        /// Its name.
        name: &'static str,
        /// The files that were looked for.
        files: Vec<&'static str>,
        /// Which variable would name it; empty where none does.
        hint: String,
    },
    /// It is there and cannot be opened.
    #[error("{name} cannot be opened: {why}")]
    NotLoadable {
        /// Its name.
        name: &'static str,
        /// What the loader says, which names the file.
        why: String,
    },
    /// It is another library, or a much older one.
    #[error("{name} at {path} has no function {function}: it is another library, or too old")]
    Incomplete {
        /// Its name.
        name: &'static str,
        /// Which file.
        path: PathBuf,
        /// The function that is missing.
        function: &'static str,
    },
}

/// An open library. It stays open for the life of the process: CUDA's and NCCL's have threads of their own, and
/// unloading them under those is what crashes at exit are made of.
#[derive(Debug)]
pub struct Library {
    name: &'static str,
    handle: ManuallyDrop<Handle>,
    /// The file it is; its name alone where the process does not say.
    pub path: PathBuf,
    /// How it was found.
    pub origin: Origin,
}

impl Library {
    /// Finds and opens a library.
    ///
    /// # Errors
    /// When there is none, or the one that the environment names cannot be opened: a name that someone wrote is
    /// not silently passed over.
    pub fn open(wanted: &Wanted) -> Result<Self, Absent> {
        Self::open_or(wanted, None)
    }

    /// As [`Self::open`], with the file that a program names instead of the environment.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_or(wanted: &Wanted, named: Option<&Path>) -> Result<Self, Absent> {
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
                // Not being there is usual; being there and broken is worth a word.
                Err(why) if !why.contains("No such file") => broken = Some(why),
                Err(_) => {}
            }
        }
        for path in in_python_packages(wanted) {
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
                    .map_or_else(String::new, |variable| format!("; {variable} can name it")),
            },
        })
    }

    /// The library if this process has it already.
    #[must_use]
    pub fn mapped(wanted: &Wanted) -> Option<Self> {
        wanted.files.iter().map(OsStr::new).find_map(|file| {
            let handle = open(file, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD).ok()?;
            Some(Self::new(wanted, handle, file, Origin::Mapped))
        })
    }

    fn new(wanted: &Wanted, handle: Handle, file: &OsStr, origin: Origin) -> Self {
        Self {
            name: wanted.name,
            handle: ManuallyDrop::new(handle),
            path: mapped_path(file).unwrap_or_else(|| file.into()),
            origin,
        }
    }

    /// A function of the library.
    ///
    /// # Safety
    /// `F` must be the function's type as its header declares it, with the C calling convention.
    ///
    /// # Errors
    /// When the library has no such function.
    pub unsafe fn function<F: Copy>(&self, name: &'static str) -> Result<F, Absent> {
        // SAFETY: the caller vouches for the type; the library is never closed, so the pointer stays good.
        let found: Result<Symbol<F>, _> = unsafe { self.handle.get(name.as_bytes()) };
        found.map(|symbol| *symbol).map_err(|_| Absent::Incomplete {
            name: self.name,
            path: self.path.clone(),
            function: name,
        })
    }
}

fn open(file: &OsStr, flags: i32) -> Result<Handle, String> {
    // SAFETY: the initialisers of NVIDIA's libraries do nothing but set up tables; a library that someone names in
    // an environment variable runs in a process that this someone has started.
    unsafe { Handle::open(Some(file), flags) }.map_err(|error| error.to_string())
}

/// The file behind a library's name, as the kernel has it.
fn mapped_path(file: &OsStr) -> Option<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let stem = Path::new(file).file_name()?.to_str()?;
    let paths = maps.lines().filter_map(|line| line.find('/').map(|at| Path::new(&line[at..])));
    let of_name = |path: &&Path| {
        // libcuda.so.1 is a link to libcuda.so.550.163.01.
        let base = stem.split(".so").next().unwrap_or(stem);
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        name == stem || name.strip_prefix(base).is_some_and(|rest| rest.starts_with(".so"))
    };
    paths.into_iter().find(of_name).map(Path::to_path_buf)
}

/// Where pip and Debian put Python's packages, for the environments that this process can know of.
fn in_python_packages(wanted: &Wanted) -> Vec<PathBuf> {
    let home = env::var_os("HOME").map(|home| Path::new(&home).join(".local"));
    let named = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(env::var_os).map(PathBuf::from);
    let system = ["/usr/local", "/usr"].map(PathBuf::from);
    let prefixes: Vec<PathBuf> = named.chain(prefix_of_python()).chain(home).chain(system).collect();
    let mut folders: Vec<PathBuf> = env::var_os("PYTHONPATH")
        .iter()
        .flat_map(|paths| env::split_paths(paths).collect::<Vec<_>>())
        .collect();
    folders.extend(prefixes.iter().flat_map(|prefix| packages_below(&prefix.join("lib"))));
    let of_folder = |folder: &PathBuf| -> Vec<PathBuf> {
        let places = wanted
            .packages
            .iter()
            .flat_map(|package| wanted.files.iter().map(move |file| folder.join(package).join(file)));
        places.filter(|path| path.is_file()).collect()
    };
    folders.iter().flat_map(of_folder).collect()
}

/// Of the Python that a command would start: an environment may be used by its path alone.
fn prefix_of_python() -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let first = env::split_paths(&path).find(|folder| folder.join("python3").is_file())?;
    first.parent().map(Path::to_path_buf)
}

/// `lib/python3.11/site-packages` and the like, the newest Python first.
fn packages_below(lib: &Path) -> Vec<PathBuf> {
    let is_python = |name: &OsString| name.to_str().is_some_and(|name| name.starts_with("python3"));
    let mut pythons: Vec<OsString> = fs::read_dir(lib)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name())
        .filter(is_python)
        .collect();
    pythons.sort_unstable();
    let folders =
        |python: &OsString| ["site-packages", "dist-packages"].map(|kind| lib.join(python).join(kind));
    pythons.iter().rev().flat_map(folders).filter(|folder| folder.is_dir()).collect()
}
