//! The losses of a run: batches that were stored and acknowledged, and whose files someone removed or changed. The log writes them beside
//! its next file, in `losses.json`, so that they are known after a restart too.

use std::io::ErrorKind;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::directory::write_atomically;
use super::folder::{LOSSES, RunFolder, log_name, segment_name};
use super::{StoreError, signed};

/// The name under which a damaged `losses.json` is kept.
const DAMAGED: &str = "losses.damaged";

/// Acknowledged batches that are no longer on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Loss {
    /// The smallest number of batches that are lost.
    pub batches: u64,
    /// What happened, as a clause without a period.
    pub reason: String,
    /// The file that the batches were in. Absent if it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<LostFile>,
}

/// A log, or the segment made of it, of which batches are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LostFile {
    /// The number of the log.
    pub number: u32,
    /// The number of batches that it held.
    pub held: u64,
}

impl Loss {
    /// Returns the loss of all batches of a log that was not written to, or of its segment.
    #[must_use]
    pub fn closed_log(number: u32, held: u64) -> Self {
        let reason = format!("{}, or {} made of it, was removed", log_name(number), segment_name(number));
        Self { batches: held, reason, file: Some(LostFile { number, held }) }
    }

    /// Returns the loss of batches of a log that was written to. `found` of them are still there.
    #[must_use]
    pub fn open_log(number: u32, held: u64, found: u64) -> Self {
        let reason = format!("{} was removed or changed while it was written to", log_name(number));
        let batches = held.saturating_sub(found);
        Self { batches, reason, file: Some(LostFile { number, held }) }
    }

    /// Returns the loss of what a damaged `losses.json` said.
    #[must_use]
    pub fn damaged_list() -> Self {
        let reason =
            format!("{LOSSES} was damaged, and what it counted is not known: it is kept as {DAMAGED}");
        Self { batches: 1, reason, file: None }
    }
}

/// The content of `losses.json`.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Losses {
    losses: Vec<Loss>,
}

/// Reads the losses of a run.
///
/// # Errors
/// Returns an error if the file exists and cannot be read or does not match its checksum.
pub fn read(folder: &RunFolder) -> Result<Vec<Loss>, StoreError> {
    let path = path(folder);
    let bytes = match folder.disk.read(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        bytes => bytes.map_err(StoreError::io(&path, "read"))?,
    };
    let broken =
        || StoreError::content(&path, "it does not match its checksum: it was damaged on disk or edited");
    let json = signed::verified(&String::from_utf8_lossy(&bytes)).ok_or_else(broken)?;
    let read: Losses = serde_json::from_str(&json).map_err(|error| StoreError::content(&path, error))?;
    Ok(read.losses)
}

/// Writes the losses of a run, durably. What is in their place and cannot be read is renamed.
///
/// # Errors
/// Returns an error if the file cannot be written.
pub fn write(folder: &RunFolder, losses: &[Loss]) -> Result<(), StoreError> {
    let path = path(folder);
    if read(folder).is_err() {
        let aside = folder.path.join(DAMAGED);
        folder.disk.rename(&path, &aside).map_err(StoreError::io(&path, "rename"))?;
    }
    let content = Losses { losses: losses.to_vec() };
    let bytes = signed::sign(&content).map_err(|error| StoreError::content(&path, error))?;
    write_atomically(folder.disk.as_ref(), &path, &bytes)
}

fn path(folder: &RunFolder) -> PathBuf {
    folder.path.join(LOSSES)
}
