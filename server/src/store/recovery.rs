//! What a server mends before it begins: the torn tails that a crash left.

use wire::ids::RunId;

use super::StoreError;
use super::directory::Layout;
use super::folder::RunFolder;
use super::log::format;

/// Cuts the torn tail of the newest log of every run. From then on, a log that ends within a batch is damaged.
///
/// Only the holder of the directory may call it. What cannot be cut is said and left.
///
/// # Errors
/// When the runs cannot be listed.
pub fn cut_torn_tails(layout: &Layout) -> Result<(), StoreError> {
    layout.runs()?.iter().for_each(|run| cut_and_say(layout, run));
    Ok(())
}

/// Cuts the torn tail of the newest log of one run. What cannot be cut is said and left.
pub fn cut_and_say(layout: &Layout, run: &RunId) {
    match cut_torn_tail(&layout.folder(run)) {
        Ok(0) => {}
        Ok(torn) => {
            tracing::info!(%run, torn, "the newest log ended within a batch that was never acknowledged");
        }
        Err(error) => tracing::warn!(%run, %error, "the end of the newest log could not be checked"),
    }
}

/// Cuts the torn tail of a run's newest log; returns how many bytes that were.
///
/// # Errors
/// When the log cannot be read or cut.
pub fn cut_torn_tail(folder: &RunFolder) -> Result<u64, StoreError> {
    let newest = folder.newest()?;
    if !folder.logs()?.contains(&newest) {
        return Ok(0);
    }
    let path = folder.log(newest);
    let bytes = folder.disk.read(&path).map_err(StoreError::io(&path, "read"))?;
    let torn = format::read(&bytes).torn;
    if torn > 0 {
        folder.disk.cut(&path, bytes.len() as u64 - torn).map_err(StoreError::io(&path, "cut"))?;
    }
    Ok(torn)
}
