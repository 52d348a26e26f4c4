//! NCCL: which one a job would use, and what its profiler interface can tell.

#[cfg(feature = "cuda")]
pub mod communicator;

use std::ffi::{c_int, c_void};

use serde::Serialize;

use crate::library::{Absent, Library, Origin, Wanted};

const WANTED: Wanted = Wanted {
    name: "NCCL",
    files: &["libnccl.so.2"],
    variable: Some("PACELINE_NCCL"),
    packages: &["nvidia/nccl/lib"],
};

/// Names a communicator (`ncclUniqueId`); rank 0 makes it and the others get it from rank 0.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct UniqueId(pub [u8; UNIQUE_ID_BYTES]);

/// `NCCL_UNIQUE_ID_BYTES` of nccl.h.
pub const UNIQUE_ID_BYTES: usize = 128;

/// Why there is no NCCL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum NoNccl {
    /// There is no library.
    #[error(transparent)]
    Library {
        /// What is wrong with it.
        #[serde(flatten)]
        #[from]
        absent: Absent,
    },
    /// It does not say its version.
    #[error("ncclGetVersion answers {code} (ncclResult_t of nccl.h)")]
    Refused {
        /// NCCL's code.
        code: c_int,
    },
}

/// A release of NCCL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Version {
    /// 2 of 2.28.9.
    pub major: c_int,
    /// 28 of 2.28.9.
    pub minor: c_int,
    /// 9 of 2.28.9.
    pub patch: c_int,
}

impl std::fmt::Display for Version {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl Version {
    /// From NCCL's one number, which had another radix before 2.9 (`NCCL_VERSION` of nccl.h).
    #[must_use]
    pub fn of_code(code: c_int) -> Self {
        let radix = if code < 10_000 { 1_000 } else { 10_000 };
        Self { major: code / radix, minor: code % radix / 100, patch: code % 100 }
    }

    /// The newest version of the profiler interface that it calls; `None` before 2.23, which had none.
    #[must_use]
    pub fn profiler_api(self) -> Option<u32> {
        match (self.major, self.minor) {
            (2, 23) => Some(1),
            (2, 24 | 25) => Some(2),
            (2, 26) => Some(3),
            (2, 27) => Some(4),
            (2, 28) => Some(5),
            (2, 29..) | (3.., _) => Some(6),
            _ => None,
        }
    }

    /// True where the profiler interface hands out times of the GPU's own clock; before, they are the host's.
    #[must_use]
    pub fn has_gpu_times(self) -> bool {
        self.profiler_api().is_some_and(|api| api >= 4)
    }

    /// True where the profiler interface tells when a collective's kernel ran, by whatever clock.
    fn tells_of_kernels(self) -> bool {
        self.profiler_api().is_some_and(|api| api >= 3)
    }

    /// True where events around its calls say more than its profiler interface does, or may.
    #[must_use]
    pub fn needs_events(self) -> bool {
        !self.tells_of_kernels() || self.known_trouble().is_some_and(|trouble| trouble.keeps_plugin_off)
    }

    /// What is known to go wrong with this release's profiler interface, from NCCL's own issues.
    #[must_use]
    pub fn known_trouble(self) -> Option<Trouble> {
        let harmless = |what| Some(Trouble { what, keeps_plugin_off: false });
        match (self.major, self.minor, self.patch) {
            (2, 24..=26, _) => {
                harmless("events of proxy steps do not match (nccl#1658); they are not asked for")
            }
            (2, 27, 7) => Some(Trouble {
                what: "proxy operations fail while a profiler is loaded (nccl#2039)",
                keeps_plugin_off: true,
            }),
            (2, 30, 3) => {
                harmless("alltoall with all events crashes (nccl#2112); only collectives are asked for")
            }
            (2, 31, 2) => harmless("proxy events cost 4 to 13 % (nccl#2355); they are not asked for"),
            _ => None,
        }
    }
}

/// Something that goes wrong with a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Trouble {
    /// What, and what is done about it.
    pub what: &'static str,
    /// The profiler interface of this release must not be used.
    pub keeps_plugin_off: bool,
}

/// What there is to tell of NCCL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NcclFacts {
    /// The file.
    pub path: std::path::PathBuf,
    /// How it was found.
    pub origin: Origin,
    /// Its release.
    pub version: Version,
    /// The newest profiler interface that it calls.
    pub profiler_api: Option<u32>,
    /// Whether that has times of the GPU's own clock.
    pub gpu_times: bool,
    /// What is known to go wrong with it.
    pub known_trouble: Option<Trouble>,
}

/// Finds NCCL and asks for its version, which needs no GPU.
///
/// # Errors
/// When there is none; the reason says where it was looked for.
pub fn find() -> Result<NcclFacts, NoNccl> {
    of(&Library::open(&WANTED)?)
}

/// The NCCL that this process has already, as a profiler of NCCL's asks; `None` where it has none that can be named,
/// as when it is linked into another library.
#[must_use]
pub fn mapped() -> Option<NcclFacts> {
    of(&Library::mapped(&WANTED)?).ok()
}

/// A function of the NCCL that this process has, by its name in nccl.h; under the name that NCCL keeps for those who put
/// their own in its place (`pncclAllReduce` for `ncclAllReduce`), if it has it.
#[must_use]
pub fn original(name: &'static str, kept: &'static str) -> Option<*const c_void> {
    let library = Library::mapped(&WANTED)?;
    // SAFETY: any address can be held as one.
    unsafe { library.function(kept).or_else(|_| library.function(name)).ok() }
}

fn of(library: &Library) -> Result<NcclFacts, NoNccl> {
    // SAFETY: the type is that of nccl.h: one integer is written.
    let get = unsafe { library.function::<unsafe extern "C" fn(*mut c_int) -> c_int>("ncclGetVersion")? };
    let mut code = 0;
    // SAFETY: as above.
    let result = unsafe { get(&raw mut code) };
    if result != 0 {
        return Err(NoNccl::Refused { code: result });
    }
    let version = Version::of_code(code);
    Ok(NcclFacts {
        path: library.path.clone(),
        origin: library.origin,
        version,
        profiler_api: version.profiler_api(),
        gpu_times: version.has_gpu_times(),
        known_trouble: version.known_trouble(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_read_from_both_radices() {
        let written = |code| Version::of_code(code).to_string();
        assert_eq!(
            [written(22809), written(22005), written(2804), written(23203)],
            ["2.28.9", "2.20.5", "2.8.4", "2.32.3"]
        );
    }

    /// The newest symbol that each release looks for (plugin/profiler of NCCL's sources).
    #[test]
    fn the_profiler_interface_follows_the_release() {
        let of = |code| (Version::of_code(code).profiler_api(), Version::of_code(code).has_gpu_times());
        assert_eq!(of(22105), (None, false));
        assert_eq!(of(22304), (Some(1), false));
        assert_eq!(of(22602), (Some(3), false));
        assert_eq!(of(22703), (Some(4), true));
        assert_eq!(of(22809), (Some(5), true));
        assert_eq!(of(23203), (Some(6), true));
        assert!(Version::of_code(22707).known_trouble().is_some_and(|trouble| trouble.keeps_plugin_off));
        assert_eq!(Version::of_code(22809).known_trouble(), None);
    }
}
