//! What a job that knows nothing of Paceline is given so that it is observed, and what can be said of it beforehand.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use gpu::nccl::{self, NcclFacts, NoNccl};
use tempfile::TempDir;

/// The library that is loaded into such a job.
const LIBRARY: &str = "libpaceline_agent.so";
/// Names it where it is not beside this program.
const LIBRARY_VARIABLE: &str = "PACELINE_AGENT_LIBRARY";
const PLUGIN_VARIABLE: &str = "NCCL_PROFILER_PLUGIN";
const RANGES_VARIABLE: &str = "NVTX_INJECTION64_PATH";
const DRIVER_VARIABLE: &str = "CUDA_INJECTION64_PATH";
const PRELOAD_VARIABLE: &str = "LD_PRELOAD";
const PYTHON_VARIABLE: &str = "PYTHONPATH";
/// What every Python of the job runs at its start.
const SITE: &str = include_str!("../../../doors/python/sitecustomize.py");

/// The doors of a job. They close when this is dropped.
#[derive(Debug, Default)]
pub struct Doors {
    /// Variables for its processes.
    pub environment: Vec<(OsString, OsString)>,
    /// What will be observed and what cannot be, a line each.
    pub told: Vec<String>,
    python: Option<TempDir>,
}

/// What the job's environment has for other tools already.
#[derive(Default)]
struct Taken {
    plugin: Option<OsString>,
    ranges: Option<OsString>,
    driver: Option<OsString>,
    preload: Option<OsString>,
}

impl Taken {
    fn of_environment(library: &Path) -> Self {
        let other = |variable| env::var_os(variable).filter(|value| !value.is_empty() && value != library);
        Self {
            plugin: other(PLUGIN_VARIABLE),
            ranges: other(RANGES_VARIABLE),
            driver: other(DRIVER_VARIABLE),
            preload: other(PRELOAD_VARIABLE),
        }
    }
}

impl Doors {
    /// What the environment of this process, which the job inherits, allows.
    ///
    /// # Errors
    /// When there is no library to load.
    pub fn find() -> anyhow::Result<Self> {
        let library = library()?;
        let taken = Taken::of_environment(&library);
        let library = library.into_os_string();
        let mut doors = Self::of(&library, taken, nccl::find().as_ref());
        doors.open_pytorch(library)?;
        Ok(doors)
    }

    /// PyTorch is asked from Python, by a module in a folder that lives as long as these doors.
    fn open_pytorch(&mut self, library: OsString) -> anyhow::Result<()> {
        let folder = tempfile::Builder::new().prefix("paceline-python-").tempdir()?;
        let file = folder.path().join("sitecustomize.py");
        fs::write(&file, SITE).with_context(|| format!("cannot write {}", file.display()))?;
        let found_first = before(folder.path().as_os_str(), env::var_os(PYTHON_VARIABLE), ":");
        self.environment.push((PYTHON_VARIABLE.into(), found_first));
        self.environment.push((LIBRARY_VARIABLE.into(), library));
        self.told.push(
            "Observing collectives of PyTorch 2.14 and later that gloo carries, and waits for its data loaders"
                .into(),
        );
        self.python = Some(folder);
        Ok(())
    }

    fn of(library: &OsString, taken: Taken, nccl: Result<&NcclFacts, &NoNccl>) -> Self {
        if let Some(taken) = taken.plugin {
            let other = taken.to_string_lossy();
            let told = format!(
                "Not observed: {PLUGIN_VARIABLE} is {other}, and NCCL has one profiler: unset it to observe the job"
            );
            return Self { told: vec![told], ..Self::default() };
        }
        let mut doors =
            Self { environment: vec![(PLUGIN_VARIABLE.into(), library.clone())], ..Self::default() };
        doors.told.push(match nccl {
            Ok(nccl) => of_release(nccl),
            Err(reason) => format!(
                "Observing the collectives of NCCL, if the job brings one from 2.23 on; here is none ({reason})"
            ),
        });
        if nccl.is_ok_and(|nccl| nccl.version.needs_events()) {
            doors.environment.push((PRELOAD_VARIABLE.into(), before(library, taken.preload, " ")));
        }
        match taken.ranges {
            Some(other) => doors.told.push(format!(
                "Not observed: the job's NVTX ranges ({RANGES_VARIABLE} is {}, and NVTX has one receiver)",
                other.to_string_lossy()
            )),
            None => {
                doors.environment.push((RANGES_VARIABLE.into(), library.clone()));
                doors.told.push(
                    "Observing waits for input and copies to the device, if the job marks them as NVTX ranges".into(),
                );
            }
        }
        match taken.driver {
            Some(other) => doors.told.push(format!(
                "Not observed: devices of ranks that do not use NCCL ({DRIVER_VARIABLE} is {}, and CUDA loads one tool)",
                other.to_string_lossy()
            )),
            None => {
                doors.environment.push((DRIVER_VARIABLE.into(), library.clone()));
                doors.told.push("Observing the devices of ranks that do not use NCCL, once they use CUDA".into());
            }
        }
        doors
    }
}

/// What is there already stays, behind it.
fn before(first: &OsStr, others: Option<OsString>, separator: &str) -> OsString {
    let mut list = first.to_owned();
    if let Some(others) = others.filter(|others| !others.is_empty()) {
        list.push(separator);
        list.push(others);
    }
    list
}

/// What can be seen of one release of NCCL.
fn of_release(nccl: &NcclFacts) -> String {
    let release = format!("NCCL {}", nccl.version);
    let by_events = |why: &str| {
        format!(
            "Observing the collectives of {release}, by events around its calls ({PRELOAD_VARIABLE}): {why}"
        )
    };
    if let Some(trouble) = nccl.known_trouble.filter(|trouble| trouble.keeps_plugin_off) {
        return by_events(&format!("with its profiler interface {}", trouble.what));
    }
    match nccl.profiler_api {
        None => by_events("it has no profiler interface (2.23 and later have)"),
        Some(1 | 2) => by_events("its profiler interface does not say when they run (2.26 and later do)"),
        Some(3) => {
            format!("Observing the collectives of {release}, by the host's clock, late by the time of a poll")
        }
        Some(_) => format!("Observing the collectives of {release}, by the GPU's own clock"),
    }
}

fn library() -> anyhow::Result<PathBuf> {
    if let Some(named) = env::var_os(LIBRARY_VARIABLE).filter(|named| !named.is_empty()) {
        let named = PathBuf::from(named);
        return named.canonicalize().with_context(|| format!("{LIBRARY_VARIABLE}={}", named.display()));
    }
    let own = env::current_exe().context("cannot find this program's own file")?;
    let beside = own
        .parent()
        .into_iter()
        .flat_map(|folder| [folder.join(LIBRARY), folder.join("../lib").join(LIBRARY)]);
    beside.into_iter().find_map(|path| path.canonicalize().ok()).with_context(|| {
        format!(
            "{LIBRARY} is not beside {}: build it (cargo build --release -p paceline-doors), or name it in \
             {LIBRARY_VARIABLE}",
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
        let version = Version::of_code(code);
        NcclFacts {
            path: "libnccl.so.2".into(),
            origin: Origin::Loader,
            version,
            profiler_api: version.profiler_api(),
            gpu_times: version.has_gpu_times(),
            known_trouble: version.known_trouble(),
        }
    }

    fn told(code: i32) -> String {
        Doors::of(&"a.so".into(), Taken::default(), Ok(&release(code))).told.join("\n")
    }

    #[test]
    fn what_a_release_of_nccl_allows_is_said() {
        assert!(told(22105).contains("2.21.5, by events around its calls (LD_PRELOAD): it has no profiler"));
        assert!(told(22403).contains("by events around its calls"));
        assert!(told(22602).contains("host's clock"));
        assert!(
            told(22707)
                .contains("by events around its calls (LD_PRELOAD): with its profiler interface proxy")
        );
        assert!(told(22809).contains("GPU's own clock"));
    }

    #[test]
    fn other_tools_keep_what_they_have() {
        let reason = nccl::NoNccl::Refused { code: 3 };
        let of = |taken| Doors::of(&"a.so".into(), taken, Err(&reason));
        let other = || Some("/opt/other.so".into());
        let profiled = of(Taken { plugin: other(), ..Taken::default() });
        assert_eq!(profiled.environment, []);
        assert!(profiled.told[0].contains("/opt/other.so"));
        let marked = of(Taken { ranges: other(), ..Taken::default() });
        let left = |variables: &[&str]| -> Vec<(OsString, OsString)> {
            variables.iter().map(|variable| (variable.into(), "a.so".into())).collect()
        };
        assert_eq!(marked.environment, left(&["NCCL_PROFILER_PLUGIN", "CUDA_INJECTION64_PATH"]));
        assert!(marked.told[1].contains("NVTX_INJECTION64_PATH is /opt/other.so"), "{:?}", marked.told);
        let debugged = of(Taken { driver: other(), ..Taken::default() });
        assert_eq!(debugged.environment, left(&["NCCL_PROFILER_PLUGIN", "NVTX_INJECTION64_PATH"]));
        assert!(debugged.told[2].contains("CUDA_INJECTION64_PATH is /opt/other.so"), "{:?}", debugged.told);
        let free = of(Taken::default());
        let variables = ["NCCL_PROFILER_PLUGIN", "NVTX_INJECTION64_PATH", "CUDA_INJECTION64_PATH"];
        assert_eq!(free.environment, left(&variables));
    }

    #[test]
    fn what_is_preloaded_stays_behind_the_library() {
        let taken = Taken { preload: Some("libjemalloc.so".into()), ..Taken::default() };
        let doors = Doors::of(&"a.so".into(), taken, Ok(&release(22005)));
        assert!(doors.environment.contains(&("LD_PRELOAD".into(), "a.so libjemalloc.so".into())));
    }
}
