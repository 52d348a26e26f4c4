//! The files of a run by number, oldest first. For each number, the segment is read if it is intact, and otherwise the
//! log.

use std::collections::BTreeSet;

use wire::ids::Step;

use super::folder::{RunFolder, segment_name};
use super::manifest::{LogDamage, Manifest, Sealed};
use super::segment::Received;
use super::{StepRange, StoreError, log_reader, segment};

/// The most numbers without a file that are returned.
const MAX_SKIPPED: usize = 1_000;

/// The batches of a number, and the damage that hides other batches.
pub type Content = (Vec<Received>, Option<LogDamage>);

/// The files of a run at one moment. A server may seal logs meanwhile.
pub struct Files<'a> {
    folder: &'a RunFolder,
    manifest: Manifest,
    numbers: BTreeSet<u32>,
    /// The number of segments that the manifest did not name.
    unnamed: usize,
    /// Whether there is a manifest that names all segments.
    is_complete: bool,
}

impl<'a> Files<'a> {
    /// Lists the files of a run.
    ///
    /// # Errors
    /// Returns an error if the files cannot be listed or the manifest cannot be read.
    pub fn list(folder: &'a RunFolder) -> Result<Self, StoreError> {
        // Logs are listed before the manifest is read: if a server seals a log and removes it first, the manifest names
        // its segment. Segments are listed before logs, so that one without a log is finished.
        let segments = folder.segments()?;
        let logs = folder.logs()?;
        let mut manifest = Manifest::read(folder)?;
        let is_absent = manifest.is_absent();
        let is_lost = |number: &u32| !logs.contains(number) && manifest.find(*number).is_none();
        let unnamed: Vec<u32> = segments.into_iter().filter(is_lost).collect();
        unnamed.iter().for_each(|&number| manifest.put(Sealed::unchecked(segment_name(number))));
        let sealed = manifest.segments.iter().map(Sealed::number);
        let numbers = logs.into_iter().chain(sealed).collect();
        let is_complete = !is_absent && unnamed.is_empty();
        Ok(Self { folder, manifest, numbers, unnamed: unnamed.len(), is_complete })
    }

    /// Returns the number of segments that the manifest does not name although their logs are gone: it was removed or replaced.
    #[must_use]
    pub fn unnamed(&self) -> usize {
        self.unnamed
    }

    /// Returns the numbers that no file has although there is a later one, if there is no manifest or it does not name segments that are
    /// there. Otherwise such a number had no batches: the manifest would name its segment.
    #[must_use]
    pub fn skipped(&self) -> Vec<u32> {
        let last = if self.is_complete { 0 } else { self.numbers.last().copied().unwrap_or(0) };
        (1..last).filter(|number| !self.numbers.contains(number)).take(MAX_SKIPPED).collect()
    }

    /// Returns the numbers of all files, oldest first.
    #[must_use]
    pub fn numbers(&self) -> Vec<u32> {
        self.numbers.iter().copied().collect()
    }

    /// Returns false if the files of this number are known to have no record of these steps, and true otherwise.
    #[must_use]
    pub fn may_hold(&self, number: u32, steps: StepRange) -> bool {
        self.manifest.find(number).is_none_or(|sealed| sealed.may_hold(steps))
    }

    /// Returns the steps that the files of this number have records of, if known.
    #[must_use]
    pub fn steps(&self, number: u32) -> Option<StepRange> {
        let (first, last) = self.manifest.find(number)?.steps?;
        Some(StepRange { first: Step(first), last: Step(last) })
    }

    /// Reads the batches of a number, with only the records of `steps` if it is not `None`.
    ///
    /// # Errors
    /// Returns an error if the log is missing and the manifest, or the segment that it now names, cannot be read.
    pub fn read(&mut self, number: u32, steps: Option<StepRange>) -> Result<Content, StoreError> {
        let is_newest = self.numbers.last() == Some(&number);
        let damaged = match self.read_segment(number, steps) {
            Some(Ok(content)) => return Ok(content),
            Some(Err(damaged)) => Some(damaged),
            None => None,
        };
        match (log_reader::read_steps(self.folder, number, is_newest, steps), damaged) {
            (Ok(content), _) => Ok(content),
            (Err(_), Some((batches, error))) => {
                let lost = LogDamage { batches: batches.max(1), reason: error.to_string() };
                Ok((Vec::new(), Some(lost)))
            }
            // The log may have been sealed and removed a moment ago.
            (Err(error), None) => {
                self.manifest = Manifest::read(self.folder)?;
                match self.read_segment(number, steps) {
                    Some(content) => content.map_err(|(_, error)| error),
                    None => Ok((Vec::new(), Some(LogDamage { batches: 1, reason: error.to_string() }))),
                }
            }
        }
    }

    /// Reads the segment of a number. Returns `None` if no segment counts. An error carries the number of batches that
    /// are lost with the segment.
    fn read_segment(
        &self,
        number: u32,
        steps: Option<StepRange>,
    ) -> Option<Result<Content, (u64, StoreError)>> {
        let sealed = self.manifest.find(number)?;
        Some(match segment::read_steps(self.folder, sealed, steps) {
            Ok(batches) => Ok((batches, sealed.damage.clone())),
            Err(error) => Err((sealed.batches, error)),
        })
    }
}
