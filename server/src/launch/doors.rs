//! What a job that knows nothing of Paceline is given so that it is observed, and what can be said of it beforehand.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Context as _;
use gpu::nccl::{self, NcclFacts, NoNccl};

/// The library that is loaded into such a job.
const LIBRARY: &str = "libpaceline_agent.so";
/// Names it where it is not beside this program.
const LIBRARY_VARIABLE: &str = "PACELINE_AGENT_LIBRARY";
const PLUGIN_VARIABLE: &str = "NCCL_PROFILER_PLUGIN";

/// The doors of a job.
#[derive(Debug, PartialEq, Eq)]
pub struct Doors {
    /// Variables for its processes.
    pub environment: Vec<(OsString, OsString)>,
    /// What will be observed and what cannot be, a line each.
    pub told: Vec<String>,
}

impl Doors {
    /// What the environment of this process, which the job inherits, allows.
    ///
    /// # Errors
    /// When there is no library to load.
    pub fn find() -> anyhow::Result<Self> {
        let library = library()?;
        let taken = env::var_os(PLUGIN_VARIABLE).filter(|value| !value.is_empty() && *value != library);
        Ok(Self::of(library.into(), taken, nccl::find().as_ref()))
    }

    fn of(library: OsString, taken: Option<OsString>, nccl: Result<&NcclFacts, &NoNccl>) -> Self {
        if let Some(taken) = taken {
            let other = taken.to_string_lossy();
            let told = format!(
                "Not observed: {PLUGIN_VARIABLE} is {other}, and NCCL has one profiler: unset it to observe the job"
            );
            return Self { environment: Vec::new(), told: vec![told] };
        }
        let told = match nccl {
            Ok(nccl) => of_release(nccl),
            Err(reason) => format!(
                "Observing the collectives of NCCL, if the job brings one from 2.23 on; here is none ({reason})"
            ),
        };
        Self { environment: vec![(PLUGIN_VARIABLE.into(), library)], told: vec![told] }
    }
}

/// What one release of NCCL lets a profiler see.
fn of_release(nccl: &NcclFacts) -> String {
    let release = format!("NCCL {}", nccl.version);
    if let Some(trouble) = nccl.known_trouble.filter(|trouble| trouble.keeps_plugin_off) {
        return format!("Not observed: {release}: {}", trouble.what);
    }
    match nccl.profiler_api {
        None => format!("Not observed: {release} has no profiler interface; 2.23 and later have"),
        Some(1 | 2) => format!(
            "Observing the steps of {release}: it says when collectives are enqueued and not when they run (2.26 and \
             later do), so that waits, overlap and bandwidth are those of enqueueing and mean nothing"
        ),
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

    fn told(code: i32) -> String {
        let version = Version::of_code(code);
        let nccl = NcclFacts {
            path: "libnccl.so.2".into(),
            origin: Origin::Loader,
            version,
            profiler_api: version.profiler_api(),
            gpu_times: version.has_gpu_times(),
            known_trouble: version.known_trouble(),
        };
        Doors::of("a.so".into(), None, Ok(&nccl)).told.join("\n")
    }

    #[test]
    fn what_a_release_of_nccl_allows_is_said() {
        assert!(told(22105).starts_with("Not observed: NCCL 2.21.5 has no profiler interface"));
        assert!(told(22403).contains("enqueued"));
        assert!(told(22602).contains("host's clock"));
        assert!(told(22707).starts_with("Not observed: NCCL 2.27.7: proxy operations fail"));
        assert!(told(22809).contains("GPU's own clock"));
    }

    #[test]
    fn another_profiler_is_left_where_it_is() {
        let reason = nccl::NoNccl::Refused { code: 3 };
        let doors = Doors::of("a.so".into(), Some("/opt/other.so".into()), Err(&reason));
        assert_eq!(doors.environment, []);
        assert!(doors.told[0].contains("/opt/other.so"));
        let free = Doors::of("a.so".into(), None, Err(&reason));
        assert_eq!(free.environment, [("NCCL_PROFILER_PLUGIN".into(), "a.so".into())]);
    }
}
