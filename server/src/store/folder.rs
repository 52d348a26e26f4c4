//! The files of one run: logs and segments by number.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use wire::ids::RunId;

use super::StoreError;
use super::disk::Disk;

/// The directory of one run. Log N becomes segment N, so numbers order both by time.
#[derive(Clone, Debug)]
pub struct RunFolder {
    /// The disk it is on.
    pub disk: Arc<dyn Disk>,
    /// Where it is.
    pub path: PathBuf,
    /// The run.
    pub run: RunId,
}

impl RunFolder {
    /// The file of a log.
    #[must_use]
    pub fn log(&self, number: u32) -> PathBuf {
        self.path.join(log_name(number))
    }

    /// The folder of a segment.
    #[must_use]
    pub fn segment(&self, number: u32) -> PathBuf {
        self.path.join(segment_name(number))
    }

    /// The numbers of all logs, oldest first.
    ///
    /// # Errors
    /// When the directory exists and cannot be listed.
    pub fn logs(&self) -> Result<Vec<u32>, StoreError> {
        let mut numbers: Vec<u32> = self.names()?.iter().filter_map(|name| log_number(name)).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// The largest number that a log or a segment has, finished or not; 0 when there is none.
    ///
    /// # Errors
    /// As [`Self::logs`].
    pub fn newest(&self) -> Result<u32, StoreError> {
        let names = self.names()?;
        let numbers = names.iter().filter_map(|name| log_number(name).or_else(|| segment_number(name)));
        Ok(numbers.max().unwrap_or(0))
    }

    fn names(&self) -> Result<Vec<String>, StoreError> {
        match self.disk.list(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            listed => listed.map_err(StoreError::io(&self.path, "list")),
        }
    }
}

/// The file name of a log.
#[must_use]
pub fn log_name(number: u32) -> String {
    format!("log-{number:06}.plog")
}

/// The folder name of a segment.
#[must_use]
pub fn segment_name(number: u32) -> String {
    format!("segment-{number:06}")
}

fn log_number(name: &str) -> Option<u32> {
    let number = name.strip_prefix("log-")?.strip_suffix(".plog")?.parse().ok()?;
    // Another spelling of a number is another file, which is not this program's.
    (log_name(number) == name).then_some(number)
}

/// The number in a segment's folder name.
#[must_use]
pub fn segment_number(name: &str) -> Option<u32> {
    let number = name.strip_prefix("segment-")?.parse().ok()?;
    (segment_name(number) == name).then_some(number)
}
