//! The files of one run: logs and segments by number.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use wire::ids::RunId;

use super::StoreError;
use super::disk::Disk;

/// The file that says which batches of the run someone has removed.
pub(super) const LOSSES: &str = "losses.json";

/// What a run's directory holds.
#[derive(Debug)]
pub(super) struct Names {
    /// The numbers that have a log or a segment, finished or not.
    pub numbers: BTreeSet<u32>,
    /// Whether there is a list of losses.
    pub has_losses: bool,
}

/// The directory of a run. Log N becomes segment N, so the numbers order logs and segments by time.
#[derive(Clone, Debug)]
pub struct RunFolder {
    /// The disk that the directory is on.
    pub disk: Arc<dyn Disk>,
    /// The path of the directory.
    pub path: PathBuf,
    pub run: RunId,
}

impl RunFolder {
    #[must_use]
    pub fn log(&self, number: u32) -> PathBuf {
        self.path.join(log_name(number))
    }

    #[must_use]
    pub fn segment(&self, number: u32) -> PathBuf {
        self.path.join(segment_name(number))
    }

    /// Returns the numbers of all logs, oldest first.
    ///
    /// # Errors
    /// Returns an error if the directory exists and cannot be listed.
    pub fn logs(&self) -> Result<Vec<u32>, StoreError> {
        let mut numbers: Vec<u32> = self.listed()?.iter().filter_map(|name| log_number(name)).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Returns the numbers of all segments, finished or not.
    ///
    /// # Errors
    /// Returns an error if the directory exists and cannot be listed.
    pub fn segments(&self) -> Result<Vec<u32>, StoreError> {
        Ok(self.listed()?.iter().filter_map(|name| segment_number(name)).collect())
    }

    /// Returns the largest number of any log or segment, finished or not, or 0 if there is none.
    ///
    /// # Errors
    /// Returns an error if the directory exists and cannot be listed.
    pub fn newest(&self) -> Result<u32, StoreError> {
        Ok(self.names()?.numbers.last().copied().unwrap_or(0))
    }

    /// Returns what the directory holds; nothing if it does not exist.
    ///
    /// # Errors
    /// Returns an error if the directory exists and cannot be listed.
    pub(super) fn names(&self) -> Result<Names, StoreError> {
        let names = self.listed()?;
        let numbers = names.iter().filter_map(|name| log_number(name).or_else(|| segment_number(name)));
        Ok(Names { numbers: numbers.collect(), has_losses: names.iter().any(|name| name == LOSSES) })
    }

    fn listed(&self) -> Result<Vec<String>, StoreError> {
        match self.disk.list(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            listed => listed.map_err(StoreError::io(&self.path, "list")),
        }
    }
}

/// Returns the file name of a log.
#[must_use]
pub fn log_name(number: u32) -> String {
    format!("log-{number:06}.plog")
}

#[must_use]
pub fn segment_name(number: u32) -> String {
    format!("segment-{number:06}")
}

fn log_number(name: &str) -> Option<u32> {
    let number = name.strip_prefix("log-")?.strip_suffix(".plog")?.parse().ok()?;
    // A number in another spelling, such as without leading zeros, is a file of some other program.
    (log_name(number) == name).then_some(number)
}

/// Returns the number in a segment's folder name, or `None` for another name.
#[must_use]
pub fn segment_number(name: &str) -> Option<u32> {
    let number = name.strip_prefix("segment-")?.parse().ok()?;
    (segment_name(number) == name).then_some(number)
}
