//! NCCL: the release that a job would use, and the abilities of its profiler interface.

#[cfg(feature = "cuda")]
pub mod communicator;

use std::ffi::{c_int, c_void};

use serde::Serialize;

use crate::library::{Absent, Library, LibraryNames, Origin};

const WANTED: LibraryNames = LibraryNames {
    name: "NCCL",
    files: &["libnccl.so.2"],
    variable: Some("PACELINE_NCCL"),
    packages: &["nvidia/nccl/lib"],
};

/// The name of a communicator (`ncclUniqueId`), which rank 0 creates and sends to the other ranks.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct UniqueId(pub [u8; UNIQUE_ID_BYTES]);

/// `NCCL_UNIQUE_ID_BYTES` of nccl.h.
pub const UNIQUE_ID_BYTES: usize = 128;

/// The reason why NCCL cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum NoNccl {
    /// The library cannot be used.
    #[error(transparent)]
    Library {
        /// The reason.
        #[serde(flatten)]
        #[from]
        absent: Absent,
    },
    /// NCCL does not report its version.
    #[error("ncclGetVersion returned {code} (ncclResult_t of nccl.h)")]
    Refused {
        /// NCCL's code.
        code: c_int,
    },
}

/// A release of NCCL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Version {
    /// The major version: 2 in 2.28.9.
    pub major: c_int,
    /// The minor version: 28 in 2.28.9.
    pub minor: c_int,
    /// The patch version: 9 in 2.28.9.
    pub patch: c_int,
}

impl std::fmt::Display for Version {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl Version {
    /// Decodes NCCL's version code, which had another radix before 2.9 (`NCCL_VERSION` of nccl.h).
    #[must_use]
    pub fn from_code(code: c_int) -> Self {
        let radix = if code < 10_000 { 1_000 } else { 10_000 };
        Self { major: code / radix, minor: code % radix / 100, patch: code % 100 }
    }

    /// Returns the newest version of the profiler interface that this release calls. Returns `None` for releases before
    /// 2.23, which have no profiler interface.
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

    /// Returns true if the profiler interface provides times of the GPU's clock. Older interfaces provide times of the
    /// host's clock.
    #[must_use]
    pub fn has_gpu_times(self) -> bool {
        self.profiler_api().is_some_and(|api| api >= 4)
    }

    /// Returns true if the profiler interface reports when a collective's kernel ran, on either clock.
    fn tells_of_kernels(self) -> bool {
        self.profiler_api().is_some_and(|api| api >= 3)
    }

    /// Returns true if CUDA events around the calls report more than the profiler interface, because the interface does
    /// not report kernels or must not be used.
    #[must_use]
    pub fn needs_events(self) -> bool {
        !self.tells_of_kernels() || self.known_trouble().is_some_and(|trouble| trouble.keeps_plugin_off)
    }

    /// Returns the known defect of this release's profiler interface, from NCCL's issue tracker.
    #[must_use]
    pub fn known_trouble(self) -> Option<Trouble> {
        let harmless = |what| Some(Trouble { what, keeps_plugin_off: false });
        match (self.major, self.minor, self.patch) {
            (2, 24..=26, _) => {
                harmless("events of proxy steps do not match (nccl#1658); they are not requested")
            }
            (2, 27, 7) => Some(Trouble {
                what: "proxy operations fail while a profiler is loaded (nccl#2039)",
                keeps_plugin_off: true,
            }),
            (2, 30, 3) => {
                harmless("alltoall with all events crashes (nccl#2112); only collectives are requested")
            }
            (2, 31, 2) => harmless("proxy events cost 4 to 13 % (nccl#2355); they are not requested"),
            _ => None,
        }
    }
}

/// A known defect of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Trouble {
    /// The defect, and how Paceline avoids it.
    pub what: &'static str,
    /// Whether the profiler interface of this release must not be used.
    pub keeps_plugin_off: bool,
}

/// The facts about NCCL that are reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NcclFacts {
    /// The path of the library.
    pub path: std::path::PathBuf,
    /// The place in which the library was found.
    pub origin: Origin,
    /// The release.
    pub version: Version,
    /// The newest version of the profiler interface that the release calls.
    pub profiler_api: Option<u32>,
    /// Whether the profiler interface provides times of the GPU's clock.
    pub gpu_times: bool,
    /// The known defect of the release.
    pub known_trouble: Option<Trouble>,
}

/// Finds NCCL and reads its version, which needs no GPU.
///
/// # Errors
/// Returns an error if there is no usable NCCL. The error lists the places that were searched.
pub fn find() -> Result<NcclFacts, NoNccl> {
    facts(&Library::open(&WANTED)?)
}

/// Returns the facts about the NCCL that this process has already loaded. Returns `None` if there is none under its own
/// name, for instance if NCCL is linked into another library.
#[must_use]
pub fn mapped() -> Option<NcclFacts> {
    facts(&Library::mapped(&WANTED)?).ok()
}

/// Returns a function of the NCCL that this process has loaded. `name` is its name in nccl.h. `kept` is its second
/// name, by which interposers reach the original (`pncclAllReduce` for `ncclAllReduce`), and is preferred.
#[must_use]
pub fn original(name: &'static str, kept: &'static str) -> Option<*const c_void> {
    let library = Library::mapped(&WANTED)?;
    // SAFETY: the function is only held as an address and not called here.
    unsafe { library.function(kept).or_else(|_| library.function(name)).ok() }
}

fn facts(library: &Library) -> Result<NcclFacts, NoNccl> {
    // SAFETY: the type is that of nccl.h.
    let get = unsafe { library.function::<unsafe extern "C" fn(*mut c_int) -> c_int>("ncclGetVersion")? };
    let mut code = 0;
    // SAFETY: the call writes one integer to a valid place.
    let result = unsafe { get(&raw mut code) };
    if result != 0 {
        return Err(NoNccl::Refused { code: result });
    }
    let version = Version::from_code(code);
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
    fn version_codes_of_both_radices_are_decoded() {
        let written = |code| Version::from_code(code).to_string();
        assert_eq!(
            [written(22809), written(22005), written(2804), written(23203)],
            ["2.28.9", "2.20.5", "2.8.4", "2.32.3"]
        );
    }

    /// The expected versions are those of the newest symbol that each release loads (plugin/profiler in NCCL's
    /// sources).
    #[test]
    fn the_profiler_interface_follows_from_the_release() {
        let interface =
            |code| (Version::from_code(code).profiler_api(), Version::from_code(code).has_gpu_times());
        assert_eq!(interface(22105), (None, false));
        assert_eq!(interface(22304), (Some(1), false));
        assert_eq!(interface(22602), (Some(3), false));
        assert_eq!(interface(22703), (Some(4), true));
        assert_eq!(interface(22809), (Some(5), true));
        assert_eq!(interface(23203), (Some(6), true));
        assert!(Version::from_code(22707).known_trouble().is_some_and(|trouble| trouble.keeps_plugin_off));
        assert_eq!(Version::from_code(22809).known_trouble(), None);
    }
}
