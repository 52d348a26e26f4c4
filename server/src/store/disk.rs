//! The few file operations that storage is made of, so that a test can put a faulty disk under the real code.
//!
//! Nothing here decides anything: what is synced when, and what a failure means, is up to the caller.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

const PRIVATE_FILE: u32 = 0o600;
const PRIVATE_FOLDER: u32 = 0o700;

/// A place where files lie.
pub trait Disk: fmt::Debug + Send + Sync {
    /// The names of all entries of a folder, in no particular order.
    ///
    /// # Errors
    /// When there is no such folder, or it cannot be read.
    fn list(&self, folder: &Path) -> io::Result<Vec<String>>;

    /// The whole content of a file.
    ///
    /// # Errors
    /// When there is no such file, or it cannot be read.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// Makes a file for appending. Its name is durable once its folder is synced.
    ///
    /// # Errors
    /// When the file exists, or cannot be made.
    fn create(&self, path: &Path) -> io::Result<Box<dyn AppendFile>>;

    /// Opens a file to append to it, and says how long it is.
    ///
    /// # Errors
    /// When there is no such file, or it cannot be opened.
    fn reopen(&self, path: &Path) -> io::Result<(Box<dyn AppendFile>, u64)>;

    /// Makes or replaces a file and syncs its content. A crash leaves any part of it.
    ///
    /// # Errors
    /// When it cannot be written or synced.
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;

    /// Cuts a file to its first `length` bytes and syncs it.
    ///
    /// # Errors
    /// When it cannot be cut or synced.
    fn cut(&self, path: &Path, length: u64) -> io::Result<()>;

    /// Gives a file another name, in place of the file that had it.
    ///
    /// # Errors
    /// When it cannot be renamed.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// When it cannot be removed.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes a folder, and those it lies in, unless they exist.
    ///
    /// # Errors
    /// When one cannot be made.
    fn create_folder(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a folder durable.
    ///
    /// # Errors
    /// When it cannot be opened or synced.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;
}

/// A file that grows at its end.
pub trait AppendFile: Send {
    /// Writes behind what is there. After an error the end of the file is unknown.
    ///
    /// # Errors
    /// When the bytes cannot be written.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Makes all that was appended durable.
    ///
    /// # Errors
    /// When it cannot be synced. What was appended since the last success may be lost, or not.
    fn sync(&mut self) -> io::Result<()>;

    /// Cuts the file to its first `length` bytes. This is durable after the next sync.
    ///
    /// # Errors
    /// When it cannot be cut.
    fn cut(&mut self, length: u64) -> io::Result<()>;
}

/// The disk of this machine. What it makes belongs to its user alone, whatever the process's umask is: `paceline run`
/// leaves that to its ranks.
#[derive(Clone, Copy, Debug)]
pub struct LocalDisk;

impl Disk for LocalDisk {
    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let names = fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().into_string().ok()));
        // Storage gives its files ASCII names: a name that is not UTF-8 belongs to somebody else.
        names.filter_map(Result::transpose).collect()
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        fs::read(path)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn AppendFile>> {
        Ok(Box::new(OpenOptions::new().append(true).create_new(true).mode(PRIVATE_FILE).open(path)?))
    }

    fn reopen(&self, path: &Path) -> io::Result<(Box<dyn AppendFile>, u64)> {
        let file = OpenOptions::new().append(true).open(path)?;
        let length = file.metadata()?.len();
        Ok((Box::new(file), length))
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(PRIVATE_FILE).open(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    }

    fn cut(&self, path: &Path, length: u64) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(path)?;
        file.set_len(length)?;
        file.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(PRIVATE_FOLDER).create(path)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }
}

impl AppendFile for File {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }
}
