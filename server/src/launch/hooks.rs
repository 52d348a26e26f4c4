//! The hooks of an unmodified job: the environment variables that load the agent into the job, and a description of
//! what will be observed.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use gpu::nccl::{self, NcclFacts, NoNccl};

use super::python::Package;

/// The library that is loaded into the job.
const LIBRARY: &str = "libpaceline_attach.so";
/// The variable with the path of the library, if it is not in the directory of this program.
const LIBRARY_VARIABLE: &str = "PACELINE_AGENT_LIBRARY";
const PLUGIN_VARIABLE: &str = "NCCL_PROFILER_PLUGIN";
const RANGES_VARIABLE: &str = "NVTX_INJECTION64_PATH";
const DRIVER_VARIABLE: &str = "CUDA_INJECTION64_PATH";
const PRELOAD_VARIABLE: &str = "LD_PRELOAD";
const PYTHON_VARIABLE: &str = "PYTHONPATH";

/// The hooks of a job. Dropping the value removes the files that the hooks need.
#[derive(Debug, Default)]
pub struct Hooks {
    /// The environment variables for the job's processes.
    pub environment: Vec<(OsString, OsString)>,
    /// The description of what will be observed and what cannot be, in lines.
    pub lines: Vec<String>,
    python: Option<Package>,
}

/// The values of the hooks' variables that the environment already has for other tools.
#[derive(Default)]
struct Taken {
    plugin: Option<OsString>,
    ranges: Option<OsString>,
    driver: Option<OsString>,
    preload: Option<OsString>,
}

impl Taken {
    fn from_environment(library: &Path) -> Self {
        let other = |variable| env::var_os(variable).filter(|value| !value.is_empty() && value != library);
        Self {
            plugin: other(PLUGIN_VARIABLE),
            ranges: other(RANGES_VARIABLE),
            driver: other(DRIVER_VARIABLE),
            preload: other(PRELOAD_VARIABLE),
        }
    }
}

impl Hooks {
    /// Returns the hooks that the environment of this process allows. The job inherits that environment.
    ///
    /// # Errors
    /// Returns an error if the library is not found, or if the Python module cannot be written.
    pub fn find() -> anyhow::Result<Self> {
        let library = library()?;
        let taken = Taken::from_environment(&library);
        let library = library.into_os_string();
        let mut hooks = Self::new(&library, taken, nccl::find().as_ref());
        hooks.add_pytorch(library)?;
        Ok(hooks)
    }

    /// Adds the PyTorch hooks, which a Python package installs. A copy of it exists as long as this value.
    fn add_pytorch(&mut self, library: OsString) -> anyhow::Result<()> {
        let package = Package::find()?;
        let found_first = prepend(&package.site(), env::var_os(PYTHON_VARIABLE), ":");
        self.environment.push((PYTHON_VARIABLE.into(), found_first));
        self.environment.push((LIBRARY_VARIABLE.into(), library));
        self.lines.push(
            "Observing PyTorch: collectives over gloo (2.4 and later), waits for data loaders, passes and updates of DDP \
             modules on the host, and the stacks of ranks that a verdict names"
                .into(),
        );
        self.python = Some(package);
        Ok(())
    }

    fn new(library: &OsString, taken: Taken, nccl: Result<&NcclFacts, &NoNccl>) -> Self {
        if let Some(taken) = taken.plugin {
            let other = taken.to_string_lossy();
            let line = format!(
                "Not observed: {PLUGIN_VARIABLE} is {other}, and NCCL loads only one profiler: unset it to observe the \
                 job"
            );
            return Self { lines: vec![line], ..Self::default() };
        }
        let mut hooks =
            Self { environment: vec![(PLUGIN_VARIABLE.into(), library.clone())], ..Self::default() };
        hooks.lines.push(match nccl {
            Ok(nccl) => how_observed(nccl),
            Err(reason) => format!(
                "Observing the collectives of NCCL, if the job has NCCL 2.23 or later; none was found here ({reason})"
            ),
        });
        if nccl.is_ok_and(|nccl| nccl.version.needs_events()) {
            hooks.environment.push((PRELOAD_VARIABLE.into(), prepend(library, taken.preload, " ")));
        }
        match taken.ranges {
            Some(other) => hooks.lines.push(format!(
                "Not observed: the job's NVTX ranges ({RANGES_VARIABLE} is {}, and NVTX has only one receiver)",
                other.to_string_lossy()
            )),
            None => {
                hooks.environment.push((RANGES_VARIABLE.into(), library.clone()));
                hooks.lines.push(
                    "Observing input and copies to the device, if the job marks them with NVTX ranges".into(),
                );
            }
        }
        match taken.driver {
            Some(other) => hooks.lines.push(format!(
                "Not observed: the devices of ranks without NCCL ({DRIVER_VARIABLE} is {}, and CUDA loads only one \
                 injection library)",
                other.to_string_lossy()
            )),
            None => {
                hooks.environment.push((DRIVER_VARIABLE.into(), library.clone()));
                hooks.lines.push("Observing the devices of ranks without NCCL, once they use CUDA".into());
            }
        }
        hooks
    }
}

/// Returns a list with `first` in front of the entries in `others`.
fn prepend(first: &OsStr, others: Option<OsString>, separator: &str) -> OsString {
    let mut list = first.to_owned();
    if let Some(others) = others.filter(|others| !others.is_empty()) {
        list.push(separator);
        list.push(others);
    }
    list
}

/// Returns a sentence on how the collectives of a release of NCCL are observed.
fn how_observed(nccl: &NcclFacts) -> String {
    let release = format!("NCCL {}", nccl.version);
    let by_events = |why: &str| {
        format!(
            "Observing the collectives of {release} by CUDA events around its calls ({PRELOAD_VARIABLE}): {why}"
        )
    };
    if let Some(trouble) = nccl.known_trouble.filter(|trouble| trouble.keeps_plugin_off) {
        return by_events(&format!("its profiler interface is not used, because {}", trouble.what));
    }
    match nccl.profiler_api {
        None => by_events("it has no profiler interface (2.23 and later have one)"),
        Some(1 | 2) => by_events("its profiler interface does not report when they run (2.26 and later do)"),
        Some(3) => {
            format!("Observing the collectives of {release} by the host's clock, delayed by up to one poll")
        }
        Some(_) => format!("Observing the collectives of {release} by the GPU's own clock"),
    }
}

fn library() -> anyhow::Result<PathBuf> {
    if let Some(named) = env::var_os(LIBRARY_VARIABLE).filter(|named| !named.is_empty()) {
        let named = PathBuf::from(named);
        return named.canonicalize().with_context(|| format!("{LIBRARY_VARIABLE}={}", named.display()));
    }
    let own = env::current_exe().context("cannot find this program's own file")?;
    let candidates = own
        .parent()
        .into_iter()
        .flat_map(|folder| [folder.join(LIBRARY), folder.join("../lib").join(LIBRARY)]);
    candidates.into_iter().find_map(|path| path.canonicalize().ok()).with_context(|| {
        format!(
            "cannot find {LIBRARY} next to {}: build it (cargo build --release), or set \
             {LIBRARY_VARIABLE} to its path",
            own.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu::library::Origin;
    use gpu::nccl::Version;

    fn release(code: i32) -> NcclFacts {
        let version = Version::from_code(code);
        NcclFacts {
            path: "libnccl.so.2".into(),
            origin: Origin::Loader,
            version,
            profiler_api: version.profiler_api(),
            gpu_times: version.has_gpu_times(),
            known_trouble: version.known_trouble(),
        }
    }

    fn described(code: i32) -> String {
        Hooks::new(&"a.so".into(), Taken::default(), Ok(&release(code))).lines.join("\n")
    }

    #[test]
    fn the_description_says_how_each_release_of_nccl_is_observed() {
        assert!(described(22105).contains("2.21.5 by CUDA events around its calls (LD_PRELOAD): it has no"));
        assert!(described(22403).contains("by CUDA events around its calls"));
        assert!(described(22602).contains("host's clock"));
        assert!(described(22707).contains("(LD_PRELOAD): its profiler interface is not used, because proxy"));
        assert!(described(22809).contains("GPU's own clock"));
    }

    #[test]
    fn variables_that_other_tools_use_are_left_alone() {
        let reason = nccl::NoNccl::Refused { code: 3 };
        let hooks = |taken| Hooks::new(&"a.so".into(), taken, Err(&reason));
        let other = || Some("/opt/other.so".into());
        let profiled = hooks(Taken { plugin: other(), ..Taken::default() });
        assert_eq!(profiled.environment, []);
        assert!(profiled.lines[0].contains("/opt/other.so"));
        let marked = hooks(Taken { ranges: other(), ..Taken::default() });
        let left = |variables: &[&str]| -> Vec<(OsString, OsString)> {
            variables.iter().map(|variable| (variable.into(), "a.so".into())).collect()
        };
        assert_eq!(marked.environment, left(&["NCCL_PROFILER_PLUGIN", "CUDA_INJECTION64_PATH"]));
        assert!(marked.lines[1].contains("NVTX_INJECTION64_PATH is /opt/other.so"), "{:?}", marked.lines);
        let debugged = hooks(Taken { driver: other(), ..Taken::default() });
        assert_eq!(debugged.environment, left(&["NCCL_PROFILER_PLUGIN", "NVTX_INJECTION64_PATH"]));
        assert!(debugged.lines[2].contains("CUDA_INJECTION64_PATH is /opt/other.so"), "{:?}", debugged.lines);
        let free = hooks(Taken::default());
        let variables = ["NCCL_PROFILER_PLUGIN", "NVTX_INJECTION64_PATH", "CUDA_INJECTION64_PATH"];
        assert_eq!(free.environment, left(&variables));
    }

    #[test]
    fn other_preloaded_libraries_stay_after_the_agents() {
        let taken = Taken { preload: Some("libjemalloc.so".into()), ..Taken::default() };
        let hooks = Hooks::new(&"a.so".into(), taken, Ok(&release(22005)));
        assert!(hooks.environment.contains(&("LD_PRELOAD".into(), "a.so libjemalloc.so".into())));
    }
}
