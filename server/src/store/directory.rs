//! The data directory: where things lie, who holds it, and which clock its runs are on.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use wire::ids::RunId;

use super::disk::{Disk, LocalDisk};
use super::folder::RunFolder;
use super::{StoreError, signed};
use crate::clock::ServerClock;

/// Where data go without `--data`: `$PACELINE_DATA`, `$XDG_DATA_HOME/paceline`, `~/.local/share/paceline`, or
/// `paceline-data` here.
#[must_use]
pub fn default_path() -> PathBuf {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    variable("PACELINE_DATA")
        .or_else(|| Some(variable("XDG_DATA_HOME")?.join("paceline")))
        .or_else(|| Some(variable("HOME")?.join(".local/share/paceline")))
        .unwrap_or_else(|| PathBuf::from("paceline-data"))
}

/// The paths in a data directory, and the disk they are on.
#[derive(Clone, Debug)]
pub struct Layout {
    root: PathBuf,
    disk: Arc<dyn Disk>,
}

impl Layout {
    /// The directory `root` of this machine, which need not exist.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self::on(Arc::new(LocalDisk), root)
    }

    /// The directory `root` of another disk.
    #[must_use]
    pub fn on(disk: Arc<dyn Disk>, root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), disk }
    }

    /// The directory itself.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The directory of one run.
    #[must_use]
    pub fn run(&self, run: &RunId) -> PathBuf {
        self.root.join("runs").join(run.as_str())
    }

    /// Makes the directory, durably, if need be.
    ///
    /// # Errors
    /// When it cannot be made or synced.
    pub fn create(&self) -> Result<(), StoreError> {
        let runs = self.root.join("runs");
        self.disk.create_folder(&runs).map_err(StoreError::io(&runs, "create"))?;
        self.disk.sync_folder(&self.root).map_err(StoreError::io(&self.root, "sync"))?;
        for above in self.root.ancestors().skip(1).filter(|above| above.is_absolute()) {
            // Folders of others may not be ours to open; those that were just made are.
            let _not_ours = self.disk.sync_folder(above);
        }
        Ok(())
    }

    /// The files of one run.
    #[must_use]
    pub fn folder(&self, run: &RunId) -> RunFolder {
        RunFolder { disk: self.disk.clone(), path: self.run(run), run: run.clone() }
    }

    /// All runs that have a directory, in no particular order.
    ///
    /// # Errors
    /// When the directory exists and cannot be read.
    pub fn runs(&self) -> Result<Vec<RunId>, StoreError> {
        let path = self.root.join("runs");
        let names = match self.disk.list(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            listed => listed.map_err(StoreError::io(&path, "list runs"))?,
        };
        // A stray file or a folder of another name is not ours and is left alone.
        Ok(names.into_iter().filter_map(|name| RunId::new(name).ok()).collect())
    }
}

/// What a server writes about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerFile {
    /// Its process id.
    pub pid: u32,
    /// Where it listens; `None` until it does.
    pub address: Option<String>,
    /// The boot its clock counts from.
    pub boot_id: String,
    /// Unix time minus boot time, in nanoseconds.
    pub unix_minus_boot_nanos: i64,
}

/// A data directory that this process holds; released when dropped or when the process dies.
#[derive(Debug)]
pub struct Held {
    /// Its paths.
    pub layout: Layout,
    /// The clock of its runs.
    pub clock: ServerClock,
    file: ServerFile,
    _lock: File,
}

impl Held {
    /// Makes the directory if need be and locks it.
    ///
    /// # Errors
    /// [`StoreError::InUse`] when another server holds it; an I/O error when it cannot be made or written.
    pub fn acquire(layout: Layout) -> Result<Self, StoreError> {
        layout.create()?;
        let lock_path = layout.root.join("lock");
        let lock = File::create(&lock_path).map_err(StoreError::io(&lock_path, "create"))?;
        let known = read(&layout);
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            let known = known.unwrap_or_default();
            return Err(StoreError::InUse { path: layout.root, pid: known.pid, address: known.address });
        }
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
        write(&layout, &file)?;
        Ok(Self { layout, clock, file, _lock: lock })
    }

    /// Tells others where the server listens.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn announce(&mut self, address: &str) -> Result<(), StoreError> {
        self.file.address = Some(address.to_owned());
        write(&self.layout, &self.file)
    }
}

fn server_file(layout: &Layout) -> PathBuf {
    layout.root.join("server.json")
}

/// `None` where it is not there or damaged: a clock with a flipped bit is worse than one that begins again.
fn read(layout: &Layout) -> Option<ServerFile> {
    let path = server_file(layout);
    let text = String::from_utf8_lossy(&fs::read(&path).ok()?).into_owned();
    // Older programs wrote no checksum. A wrong checksum stays in the text, as an unknown field, which is an error.
    let file = serde_json::from_str(&signed::verified(&text).unwrap_or(text));
    if let Err(error) = &file {
        tracing::warn!(file = %path.display(), %error, "this file is damaged: the server's clock begins again");
    }
    file.ok()
}

fn write(layout: &Layout, file: &ServerFile) -> Result<(), StoreError> {
    let path = server_file(layout);
    let json = signed::sign(file).map_err(|error| StoreError::content(&path, error))?;
    write_atomically(&LocalDisk, &path, &json)
}

fn boot_id() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

/// Replaces `path` by `bytes`: after a crash the old or the new content is there, never a mixture.
///
/// # Errors
/// When it cannot be written, synced or renamed.
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
    fn a_directory_has_one_server_and_keeps_its_clock() {
        let root = tempfile::tempdir().unwrap();
        let mut first = Held::acquire(Layout::new(root.path())).unwrap();
        first.announce("http://127.0.0.1:9").unwrap();
        let error = Held::acquire(Layout::new(root.path())).unwrap_err().to_string();
        assert!(error.contains("in use") && error.contains("http://127.0.0.1:9"), "{error}");
        let clock = first.clock;
        drop(first);
        assert_eq!(Held::acquire(Layout::new(root.path())).unwrap().clock, clock);
    }

    #[test]
    fn a_damaged_clock_is_not_believed() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::new(root.path());
        layout.create().unwrap();
        let address = Some("http://127.0.0.1:9".into());
        let file = ServerFile { pid: 7, address, boot_id: "b".into(), unix_minus_boot_nanos: 1_790_000_000 };
        write(&layout, &file).unwrap();
        assert_eq!(read(&layout), Some(file.clone()));
        let path = server_file(&layout);
        let whole = fs::read(&path).unwrap();
        for bit in 0..whole.len() * 8 {
            let mut spoilt = whole.clone();
            spoilt[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, &spoilt).unwrap();
            assert_eq!(read(&layout), None, "bit {bit}");
        }
        fs::write(&path, serde_json::to_vec_pretty(&file).unwrap()).unwrap();
        assert_eq!(read(&layout), Some(file), "older programs wrote no checksum");
    }
}
