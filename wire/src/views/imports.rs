//! What became of the files of an import.

use serde::{Deserialize, Serialize};

use crate::ids::{Rank, RunId};

/// Parts of the names of traces, tables and logs. A killed job leaves `.tmp` behind.
pub const RECORDING_NAMES: [&str; 6] = [".json", ".tmp", ".parquet", ".log", ".pickle", ".pkl"];

/// Returns whether a file of this name is read if it is in a folder that is imported. PyTorch's flight recorder gives its dumps no
/// ending: `nccl_trace_rank_3`.
#[must_use]
pub fn may_be_recording(name: &str) -> bool {
    let is_dump = !name.contains('.') && name.ends_with(|end: char| end.is_ascii_digit());
    is_dump || RECORDING_NAMES.iter().any(|part| name.contains(part))
}

/// A run that was imported from files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ImportedRun {
    /// The id of the run.
    pub run: RunId,
    /// Its name.
    pub name: String,
    /// The number of ranks of the job, with those that have no file.
    pub world_size: u32,
    /// The ranks that have a file, in ascending order.
    pub ranks: Vec<ImportedFile>,
    /// The files that are not imported.
    pub skipped: Vec<SkippedFile>,
    /// What is damaged, missing or left out in the others, as sentences. Each stands once, with the ranks that it concerns.
    pub remarks: Vec<String>,
}

/// A file that became a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ImportedFile {
    /// The rank.
    pub rank: Rank,
    /// The name of the file, without its folder.
    pub file: String,
    /// The numbers of the imported steps.
    pub steps: Vec<u64>,
    /// The number of kernels and copies in the file.
    pub kernels: u64,
    /// The number of collectives in the imported steps.
    pub collectives: u64,
}

/// A file that is not imported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SkippedFile {
    /// The name of the file, without its folder.
    pub file: String,
    /// Why it is skipped.
    pub reason: String,
}
