//! The file operations that storage uses, as a trait, so that tests can run the real code on a faulty disk.
//!
//! The trait makes no decisions: the caller decides what to sync and when, and what a failure means.

use std::fmt;
use std::io;
use std::path::Path;

/// A file system.
pub trait Disk: fmt::Debug + Send + Sync {
    /// Lists the names of all entries of a folder, in no particular order.
    ///
    /// # Errors
    /// Returns an error if the folder does not exist or cannot be read.
    fn list(&self, folder: &Path) -> io::Result<Vec<String>>;

    /// Reads the whole content of a file.
    ///
    /// # Errors
    /// Returns an error if the file does not exist or cannot be read.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// Creates a file for appending. Its name is durable once its folder is synced.
    ///
    /// # Errors
    /// Returns an error if the file exists or cannot be created.
    fn create(&self, path: &Path) -> io::Result<Box<dyn AppendFile>>;

    /// Opens a file for appending.
    ///
    /// # Errors
    /// Returns an error if the file does not exist or cannot be opened.
    fn reopen(&self, path: &Path) -> io::Result<Box<dyn AppendFile>>;

    /// Creates or replaces a file and syncs its content. A crash may leave any part of the content.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written or synced.
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;

    /// Truncates a file to its first `length` bytes and syncs it.
    ///
    /// # Errors
    /// Returns an error if the file cannot be truncated or synced.
    fn cut(&self, path: &Path, length: u64) -> io::Result<()>;

    /// Renames a file, replacing any file of the new name.
    ///
    /// # Errors
    /// Returns an error if the file cannot be renamed.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be removed.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Creates a folder and its parents if they do not exist.
    ///
    /// # Errors
    /// Returns an error if a folder cannot be created.
    fn create_folder(&self, path: &Path) -> io::Result<()>;

    /// Returns the stamp of a folder. It changes whenever a name in the folder is added or removed.
    ///
    /// # Errors
    /// Returns an error if the folder does not exist or cannot be inspected.
    fn stamp(&self, folder: &Path) -> io::Result<Stamp>;

    /// Removes an empty folder.
    ///
    /// # Errors
    /// Returns an error if the folder is not empty or cannot be removed.
    fn remove_folder(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a folder durable.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be opened or synced.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;
}

/// When a folder's names last changed, and which folder it is. Only comparing two of them means anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp(pub [i128; 3]);

/// The state of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileState {
    /// The length, in bytes.
    pub length: u64,
    /// When the content last changed. Only comparing two of them means anything.
    pub changed: i128,
}

/// A file that is open for appending.
pub trait AppendFile: Send {
    /// Appends bytes. After an error the end of the file is unknown.
    ///
    /// # Errors
    /// Returns an error if the bytes cannot be written.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Makes all appended bytes durable.
    ///
    /// # Errors
    /// Returns an error if the file cannot be synced. Bytes appended since the last successful sync may then be lost.
    fn sync(&mut self) -> io::Result<()>;

    /// Truncates the file to its first `length` bytes. This is durable after the next sync.
    ///
    /// # Errors
    /// Returns an error if the file cannot be truncated.
    fn cut(&mut self, length: u64) -> io::Result<()>;

    /// Returns the length of the file, and when it last changed.
    ///
    /// # Errors
    /// Returns an error if the file cannot be inspected.
    fn state(&self) -> io::Result<FileState>;

    /// Returns true if `path` still names this file.
    ///
    /// # Errors
    /// Returns an error if that cannot be found out.
    fn is_at(&self, path: &Path) -> io::Result<bool>;
}
