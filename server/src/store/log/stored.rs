//! What is known to be stored of a run, and how the log finds out that someone removed or changed some of it.

use std::collections::{BTreeMap, BTreeSet};

use crate::store::StoreError;
use crate::store::disk::Stamp;
use crate::store::folder::{Names, RunFolder};
use crate::store::log_format;
use crate::store::losses::{self, Loss};

/// What is known to be stored of a run. It outlives the log that is written to, and any error.
#[derive(Debug, Default)]
pub(super) struct Stored {
    /// The number of acknowledged batches in each log, or in the segment made of it.
    batches: BTreeMap<u32, u64>,
    /// Logs that were changed or removed while they were written to, and were not compared yet.
    suspects: BTreeSet<u32>,
    /// All losses of the run.
    losses: Vec<Loss>,
    /// The losses of which the hub does not know yet.
    untold: Vec<Loss>,
    /// The largest number of a log so far. If someone removes a run's directory, its next log must not get the number of one that waits
    /// to be sealed, or that is lost.
    newest: u32,
    /// The stamp of the run's directory when it was last compared. Nothing in it was removed as long as it is the same.
    compared: Option<Stamp>,
    /// Whether losses are yet to be written to the disk.
    is_unwritten: bool,
}

impl Stored {
    /// Returns what a reader found: the batches of each number, and the losses.
    pub(super) fn new(batches: BTreeMap<u32, u64>, losses: Vec<Loss>) -> Self {
        let numbers = losses.iter().filter_map(|loss| Some(loss.file?.number));
        let newest = numbers.chain(batches.keys().copied()).max().unwrap_or(0);
        Self { batches, losses, newest, ..Self::default() }
    }

    /// Returns what is known of a run that no reader has read.
    pub(super) fn read(folder: &RunFolder) -> Self {
        let losses = losses::read(folder).unwrap_or_else(|_| vec![Loss::damaged_list()]);
        Self::new(BTreeMap::new(), losses)
    }

    /// Returns a number that no log or segment of the run has or had.
    pub(super) fn next_number(&self, folder: &RunFolder) -> Result<u32, StoreError> {
        Ok(folder.newest()?.max(self.newest) + 1)
    }

    pub(super) fn created(&mut self, number: u32) {
        self.newest = self.newest.max(number);
    }

    /// Notes that a log was removed in which there was no batch.
    pub(super) fn abandoned(&mut self, number: u32) {
        if self.newest == number {
            self.newest -= 1;
        }
    }

    /// Notes that batches of a log are acknowledged.
    pub(super) fn add(&mut self, number: u32, batches: u64) {
        *self.batches.entry(number).or_default() += batches;
    }

    pub(super) fn batches(&self, number: u32) -> u64 {
        self.batches.get(&number).copied().unwrap_or(0)
    }

    /// Notes that a log was changed or removed while it was written to.
    pub(super) fn suspect(&mut self, number: u32) {
        self.suspects.insert(number);
    }

    /// Returns the losses that were found since the previous call.
    pub(super) fn take_untold(&mut self) -> Vec<Loss> {
        std::mem::take(&mut self.untold)
    }

    /// Compares what is known to be stored with what is there, if the run's directory has changed. What is lost is on disk when this
    /// returns.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be listed or the losses cannot be written. The next call tries again.
    pub(super) fn compare(&mut self, folder: &RunFolder) -> Result<(), StoreError> {
        self.note_losses(folder)?;
        if self.is_unwritten {
            losses::write(folder, &self.losses)?;
            self.is_unwritten = false;
        }
        Ok(())
    }

    /// Does what [`Self::compare`] does for a run that sends nothing, except that losses are written by the call after the one that found
    /// them, and only if the directory is still there: who deletes a run must not find a new file in it.
    ///
    /// # Errors
    /// Returns an error in the same cases as [`Self::compare`].
    pub(super) fn compare_silent(&mut self, folder: &RunFolder) -> Result<(), StoreError> {
        let were_known = self.is_unwritten;
        self.note_losses(folder)?;
        if were_known && self.compared.is_some() { self.compare(folder) } else { Ok(()) }
    }

    /// Notes what is lost, if the run's directory has changed.
    fn note_losses(&mut self, folder: &RunFolder) -> Result<(), StoreError> {
        let stamp = folder.disk.stamp(&folder.path).ok();
        let is_same = stamp.is_some() && stamp == self.compared;
        if is_same && self.suspects.is_empty() {
            return Ok(());
        }
        let (found, names) = self.find(folder)?;
        self.suspects.clear();
        for loss in &found {
            if let Some(file) = loss.file {
                self.batches.insert(file.number, file.held - loss.batches);
            }
        }
        self.is_unwritten |= !found.is_empty() || (!names.has_losses && !self.losses.is_empty());
        self.losses.extend(found.iter().cloned());
        self.untold.extend(found);
        self.compared = stamp;
        Ok(())
    }

    /// Returns what is lost and not yet noted, and the names that are there.
    fn find(&self, folder: &RunFolder) -> Result<(Vec<Loss>, Names), StoreError> {
        let mut names = folder.names()?;
        let is_gone =
            |names: &Names, number: &u32| self.batches(*number) > 0 && !names.numbers.contains(number);
        if self.batches.keys().any(|number| is_gone(&names, number)) {
            // A log that was sealed and removed during the first look has its segment now.
            names = folder.names()?;
        }
        let loss = |(&number, &held): (&u32, &u64)| {
            let is_suspect = self.suspects.contains(&number);
            let is_gone = is_gone(&names, &number);
            let found = if is_gone || !is_suspect { 0 } else { readable(folder, number).min(held) };
            match (is_gone, is_suspect) {
                (_, true) => (found < held).then(|| Loss::open_log(number, held, found)),
                (true, false) => Some(Loss::closed_log(number, held)),
                (false, false) => None,
            }
        };
        Ok((self.batches.iter().filter_map(loss).collect(), names))
    }
}

/// Returns the number of batches in a log that can be read. A log that was sealed meanwhile was whole.
pub(super) fn readable(folder: &RunFolder, number: u32) -> u64 {
    match folder.disk.read(&folder.log(number)) {
        Ok(bytes) => log_format::read(&bytes).entries.len() as u64,
        Err(_) => 0,
    }
}
