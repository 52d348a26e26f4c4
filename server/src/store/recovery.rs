//! Recovery at the start of a server: cuts the torn tails that a crash left.

use wire::ids::RunId;

use super::StoreError;
use super::directory::Layout;
use super::folder::RunFolder;
use super::log_format as format;

/// Cuts the torn tail of the newest log of every run. After this, a log that ends within a batch counts as damaged.
///
/// Only the process that holds the directory may call this. A tail that cannot be cut is logged and left.
///
/// # Errors
/// Returns an error if the runs cannot be listed.
pub fn cut_torn_tails(layout: &Layout) -> Result<(), StoreError> {
    layout.runs()?.iter().for_each(|run| cut_and_say(layout, run));
    Ok(())
}

/// Cuts the torn tail of the newest log of one run. A tail that cannot be cut is logged and left.
pub fn cut_and_say(layout: &Layout, run: &RunId) {
    match cut_torn_tail(&layout.folder(run)) {
        Ok(0) => {}
        Ok(torn) => {
            tracing::info!(%run, torn, "cut the torn tail of the newest log, which was never acknowledged");
        }
        Err(error) => tracing::warn!(%run, %error, "cannot check the end of the newest log"),
    }
}

/// Cuts the torn tail of a run's newest log. Returns the number of bytes cut. If nothing is left, removes the log, so that the next one
/// has its number: a number without a file then means that someone removed it.
///
/// # Errors
/// Returns an error if the log cannot be read, truncated or removed.
pub fn cut_torn_tail(folder: &RunFolder) -> Result<u64, StoreError> {
    let newest = folder.newest()?;
    if !folder.logs()?.contains(&newest) {
        return Ok(0);
    }
    let path = folder.log(newest);
    let bytes = folder.disk.read(&path).map_err(StoreError::io(&path, "read"))?;
    let torn = format::read(&bytes).torn;
    if torn > 0 {
        folder.disk.cut(&path, bytes.len() as u64 - torn).map_err(StoreError::io(&path, "truncate"))?;
    }
    if torn == bytes.len() as u64 {
        folder.disk.remove(&path).map_err(StoreError::io(&path, "remove"))?;
    }
    Ok(torn)
}
