//! The data directory: its layout, its lock, and the clock of its runs.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustix::fs::{FlockOperation, OFlags, flock};
use serde::{Deserialize, Serialize};
use wire::ids::RunId;

use super::disk::Disk;
use super::folder::{RunFolder, log_name};
use super::local_disk::{self, LocalDisk};
use super::{StoreError, signed};
use crate::clock::ServerClock;

/// Returns the default data directory: `$PACELINE_DATA`, `$XDG_DATA_HOME/paceline`, `~/.local/share/paceline`, or
/// `paceline-data` in the current directory.
#[must_use]
pub fn default_path() -> PathBuf {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    variable("PACELINE_DATA")
        .or_else(|| Some(variable("XDG_DATA_HOME")?.join("paceline")))
        .or_else(|| Some(variable("HOME")?.join(".local/share/paceline")))
        .unwrap_or_else(|| PathBuf::from("paceline-data"))
}

/// The folder that tests whether a run can be stored. No run may have this name.
const TRIAL: &str = ".trial";
/// The size of the log that is written to find that out, in bytes: more than a usual group of batches.
const TRIAL_BYTES: usize = 16_384;

/// Returns the path without the links in the part of it that exists.
fn resolve_links(path: &Path) -> PathBuf {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let real = whole.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
    // Collecting parts leaves no slash at the end, where nothing is missing.
    let joined =
        real.and_then(|(above, real)| Some(real.iter().chain(whole.strip_prefix(above).ok()?).collect()));
    joined.unwrap_or(whole)
}

/// The paths in a data directory, and the disk that it is on.
#[derive(Clone, Debug)]
pub struct Layout {
    root: PathBuf,
    disk: Arc<dyn Disk>,
    /// What is locked, once this process holds the directory.
    locked: Arc<OnceLock<Locked>>,
}

impl Layout {
    /// Returns the layout of the directory `root` on this machine. The directory need not exist.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self::with_disk(Arc::new(LocalDisk), resolve_links(&root.into()))
    }

    /// Returns the layout of the directory `root` on another disk.
    #[must_use]
    pub fn with_disk(disk: Arc<dyn Disk>, root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), disk, locked: Arc::default() }
    }

    /// Returns the path of the data directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    #[must_use]
    pub fn run(&self, run: &RunId) -> PathBuf {
        self.root.join("runs").join(run.as_str())
    }

    /// Creates the directory durably if it does not exist.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be created or synced.
    pub fn create(&self) -> Result<(), StoreError> {
        let runs = self.root.join("runs");
        self.disk.create_folder(&runs).map_err(StoreError::io(&runs, "create"))?;
        self.disk.sync_folder(&self.root).map_err(StoreError::io(&self.root, "sync"))?;
        for above in self.root.ancestors().skip(1).filter(|above| above.is_absolute()) {
            // Parent directories of other users may be unreadable. Those that this call created are readable.
            let _not_ours = self.disk.sync_folder(above);
        }
        Ok(())
    }

    /// Checks that the directory that this process locked is still in its place.
    ///
    /// # Errors
    /// Returns an error if it was removed or replaced. Another server may then hold what is in its place.
    pub fn check_is_held(&self) -> Result<(), StoreError> {
        match self.locked.get() {
            Some(locked) if !locked.is_in_place() => Err(StoreError::content(
                &self.root,
                "the data directory was removed or replaced while this server ran: restart the server",
            )),
            _ => Ok(()),
        }
    }

    /// Returns the address of the server that serves the directory, or served it last.
    #[must_use]
    pub fn serving(&self) -> Option<String> {
        read(self)?.address
    }

    /// Does what the first batch of a new run needs: creates a folder beside those of the runs, and writes and syncs a log in it. Then
    /// removes both.
    ///
    /// # Errors
    /// Returns an error if that cannot be done, for example because the disk is full.
    pub fn try_to_write(&self) -> Result<(), StoreError> {
        let disk = self.disk.as_ref();
        let runs = self.root.join("runs");
        let (folder, path) = (runs.join(TRIAL), runs.join(TRIAL).join(log_name(1)));
        disk.create_folder(&folder).map_err(StoreError::io(&folder, "create"))?;
        let written = disk.write(&path, &[0; TRIAL_BYTES]).map_err(StoreError::io(&path, "write"));
        let synced = written.and_then(|()| {
            [&folder, &runs]
                .into_iter()
                .try_for_each(|folder| disk.sync_folder(folder).map_err(StoreError::io(folder, "sync")))
        });
        let removed = match disk.remove(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(StoreError::io(&path, "remove")(error)),
            _ => disk.remove_folder(&folder).map_err(StoreError::io(&folder, "remove")),
        };
        synced.and(removed)
    }

    /// Returns the files of a run.
    #[must_use]
    pub fn folder(&self, run: &RunId) -> RunFolder {
        RunFolder { disk: self.disk.clone(), path: self.run(run), run: run.clone() }
    }

    /// Returns all runs that have a directory, in no particular order.
    ///
    /// # Errors
    /// Returns an error if the directory exists and cannot be read.
    pub fn runs(&self) -> Result<Vec<RunId>, StoreError> {
        let path = self.root.join("runs");
        let names = match self.disk.list(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            listed => listed.map_err(StoreError::io(&path, "list"))?,
        };
        // Files and folders with other names are ignored.
        Ok(names.into_iter().filter_map(|name| RunId::new(name).ok()).collect())
    }
}

/// The content of `server.json`, in which a server describes itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerFile {
    /// The server's process id.
    pub pid: u32,
    /// The URL that the server listens on, or `None` before it listens.
    pub address: Option<String>,
    /// The id of the boot that the server's clock counts from.
    pub boot_id: String,
    /// Unix time minus boot time, in nanoseconds.
    pub unix_minus_boot_nanos: i64,
}

/// The file that is locked, or the directory itself if no file can be created in it.
#[derive(Debug)]
struct Lock {
    path: PathBuf,
    file: File,
}

impl Lock {
    /// Opens what is to be locked. The directory may be read-only, or its disk full.
    fn open(root: &Path) -> Result<Self, StoreError> {
        let path = root.join("lock");
        let opened = local_disk::open(&path, OFlags::RDWR | OFlags::CREATE)
            .or_else(|_| local_disk::open(&path, OFlags::RDONLY))
            .map(|file| Self { path: path.clone(), file });
        let itself = || local_disk::open(root, OFlags::RDONLY | OFlags::DIRECTORY);
        opened.or_else(|error| match path.symlink_metadata() {
            Err(missing) if missing.kind() == ErrorKind::NotFound => {
                let file = itself().map_err(StoreError::io(root, "open"))?;
                Ok(Self { path: root.to_owned(), file })
            }
            _ => Err(StoreError::io(&path, "open")(error)),
        })
    }

    fn locked(&self) -> std::io::Result<Locked> {
        let file = self.file.metadata()?;
        Ok(Locked { path: self.path.clone(), device: file.dev(), inode: file.ino() })
    }
}

/// The file or folder that is locked.
#[derive(Debug)]
struct Locked {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Locked {
    fn is_in_place(&self) -> bool {
        let is_it = |there: fs::Metadata| (there.dev(), there.ino()) == (self.device, self.inode);
        self.path.symlink_metadata().is_ok_and(is_it)
    }
}

/// A data directory that this process has locked. The lock is released when the value is dropped or the process dies.
#[derive(Debug)]
pub struct Held {
    layout: Layout,
    /// The clock of the directory's runs.
    pub clock: ServerClock,
    file: ServerFile,
    /// The reason why nothing can be written to the directory.
    unwritable: Option<StoreError>,
    _lock: Lock,
}

impl Held {
    /// Creates the directory if it does not exist, and locks it. A directory that cannot be written, because its disk is full or
    /// read-only, is held too: its runs can be read when they are needed most.
    ///
    /// # Errors
    /// Returns [`StoreError::InUse`] if another server holds the directory, or an I/O error if it cannot be created.
    pub fn acquire(layout: Layout) -> Result<Self, StoreError> {
        let created = layout.create();
        let mut unwritable = match created {
            Err(error) if layout.root.join("runs").is_dir() => Some(error),
            created => created.map(|()| None)?,
        };
        let lock = Lock::open(&layout.root)?;
        let known = read(&layout);
        if flock(&lock.file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let known = known.unwrap_or_default();
            return Err(StoreError::InUse { path: layout.root, pid: known.pid, address: known.address });
        }
        let locked = lock.locked().map_err(StoreError::io(&lock.path, "inspect"))?;
        let _set_once = layout.locked.set(locked);
        let boot_id = boot_id();
        let same_boot = known.filter(|known| !boot_id.is_empty() && known.boot_id == boot_id);
        let clock = same_boot.map_or_else(ServerClock::start, |known| {
            ServerClock::from_difference(known.unix_minus_boot_nanos)
        });
        let file = ServerFile {
            pid: std::process::id(),
            address: None,
            boot_id,
            unix_minus_boot_nanos: clock.difference(),
        };
        unwritable = unwritable.or(write(&layout, &file).err());
        Ok(Self { layout, clock, file, unwritable, _lock: lock })
    }

    /// Returns the reason why nothing can be written to the directory, if so.
    #[must_use]
    pub fn unwritable(&self) -> Option<&StoreError> {
        self.unwritable.as_ref()
    }

    /// Records the address that the server listens on, for other programs, unless nothing can be written.
    pub fn announce(&mut self, address: &str) {
        self.file.address = Some(address.to_owned());
        if let Err(error) = write(&self.layout, &self.file) {
            self.unwritable.get_or_insert(error);
        }
    }
}

fn server_file(layout: &Layout) -> PathBuf {
    layout.root.join("server.json")
}

/// Reads `server.json`. Returns `None` if it is missing or damaged: a clock with a flipped bit is worse than a new
/// clock.
fn read(layout: &Layout) -> Option<ServerFile> {
    let path = server_file(layout);
    let bytes = layout.disk.read(&path).ok()?;
    let json = signed::verified(&String::from_utf8_lossy(&bytes));
    let file = json.and_then(|json| serde_json::from_str(&json).ok());
    if file.is_none() {
        tracing::warn!(file = %path.display(), "this file is damaged: the server starts a new clock");
    }
    file
}

fn write(layout: &Layout, file: &ServerFile) -> Result<(), StoreError> {
    let path = server_file(layout);
    let json = signed::sign(file).map_err(|error| StoreError::content(&path, error))?;
    write_atomically(layout.disk.as_ref(), &path, &json)
}

fn boot_id() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

/// Replaces the content of `path` by `bytes`. After a crash the file has the old or the new content, never a mixture.
///
/// # Errors
/// Returns an error if the file cannot be written, synced or renamed.
pub fn write_atomically(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    let temporary = path.with_extension("tmp");
    disk.write(&temporary, bytes).map_err(StoreError::io(&temporary, "write"))?;
    disk.rename(&temporary, path).map_err(StoreError::io(path, "replace"))?;
    let Some(folder) = path.parent() else { return Ok(()) };
    disk.sync_folder(folder).map_err(StoreError::io(folder, "sync"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_one_server_at_a_time_and_one_clock() {
        let root = tempfile::tempdir().unwrap();
        let mut first = Held::acquire(Layout::new(root.path())).unwrap();
        first.announce("http://127.0.0.1:9");
        let error = Held::acquire(Layout::new(root.path())).unwrap_err().to_string();
        assert!(error.contains("in use") && error.contains("http://127.0.0.1:9"), "{error}");
        let clock = first.clock;
        drop(first);
        assert_eq!(Held::acquire(Layout::new(root.path())).unwrap().clock, clock);
    }

    #[test]
    fn a_trial_needs_what_a_new_run_needs_and_leaves_nothing() {
        let root = tempfile::tempdir().unwrap();
        let (layout, runs) = (Layout::new(root.path()), root.path().join("runs"));
        layout.create().unwrap();
        // As a server leaves it that is killed during a trial.
        fs::create_dir(runs.join(TRIAL)).unwrap();
        fs::write(runs.join(TRIAL).join(log_name(1)), b"").unwrap();
        layout.try_to_write().unwrap();
        assert_eq!((fs::read_dir(&runs).unwrap().count(), layout.runs().unwrap()), (0, vec![]));
        assert!(RunId::new(TRIAL).is_err(), "no run has this name");
        fs::remove_dir(&runs).unwrap();
        fs::write(&runs, b"").unwrap();
        layout.try_to_write().unwrap_err();
    }

    #[test]
    fn a_damaged_server_file_is_ignored() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::new(root.path());
        layout.create().unwrap();
        let address = Some("http://127.0.0.1:9".into());
        let file = ServerFile { pid: 7, address, boot_id: "b".into(), unix_minus_boot_nanos: 1_790_000_000 };
        write(&layout, &file).unwrap();
        assert_eq!(read(&layout), Some(file));
        let path = server_file(&layout);
        let whole = fs::read(&path).unwrap();
        for bit in 0..whole.len() * 8 {
            let mut spoilt = whole.clone();
            spoilt[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, &spoilt).unwrap();
            assert_eq!(read(&layout), None, "bit {bit}");
        }
    }
}
