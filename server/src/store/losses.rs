//! The losses of a run: batches that were stored and acknowledged, and whose files someone removed or cut while a server recorded the
//! run. The log writes them beside its next file, in `losses.json`, so that they are known after a restart too.

use std::io::ErrorKind;

use serde::{Deserialize, Serialize};

use super::directory::write_atomically;
use super::folder::RunFolder;
use super::manifest::LogDamage;
use super::{StoreError, signed};

/// The content of `losses.json`.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Losses {
    losses: Vec<LogDamage>,
}

/// Reads the losses of a run.
///
/// # Errors
/// Returns an error if the file exists and cannot be read or does not match its checksum.
pub fn read(folder: &RunFolder) -> Result<Vec<LogDamage>, StoreError> {
    let path = folder.path.join("losses.json");
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

/// Adds a loss of a run, durably.
///
/// # Errors
/// Returns an error if the file cannot be read or written.
pub fn add(folder: &RunFolder, loss: LogDamage) -> Result<(), StoreError> {
    let path = folder.path.join("losses.json");
    let mut losses = read(folder)?;
    losses.push(loss);
    let bytes = signed::sign(&Losses { losses }).map_err(|error| StoreError::content(&path, error))?;
    write_atomically(folder.disk.as_ref(), &path, &bytes)
}
