//! A disk in memory. A sync costs nothing, so a test can try thousands of inputs.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use paceline::store::disk::{AppendFile, Disk, FileState, Stamp};

/// Files by path. Clones share them. Folders exist as far as paths of files contain them.
#[derive(Clone, Debug, Default)]
pub struct MemoryDisk(Arc<Mutex<BTreeMap<PathBuf, Vec<u8>>>>);

struct Open {
    disk: MemoryDisk,
    path: PathBuf,
}

impl MemoryDisk {
    fn files(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file<T>(&self, path: &Path, work: impl FnOnce(&mut Vec<u8>) -> T) -> io::Result<T> {
        self.files().get_mut(path).map(work).ok_or_else(|| ErrorKind::NotFound.into())
    }
}

impl Disk for MemoryDisk {
    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let below = |path: &PathBuf| {
            Some(
                path.strip_prefix(folder)
                    .ok()?
                    .components()
                    .next()?
                    .as_os_str()
                    .to_string_lossy()
                    .into_owned(),
            )
        };
        let mut names: Vec<String> = self.files().keys().filter_map(below).collect();
        names.dedup();
        Ok(names)
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.file(path, |content| content.clone())
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn AppendFile>> {
        if self.files().insert(path.to_owned(), Vec::new()).is_some() {
            return Err(ErrorKind::AlreadyExists.into());
        }
        Ok(Box::new(Open { disk: self.clone(), path: path.to_owned() }))
    }

    fn reopen(&self, path: &Path) -> io::Result<Box<dyn AppendFile>> {
        self.file(path, |_| ())?;
        Ok(Box::new(Open { disk: self.clone(), path: path.to_owned() }))
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.files().insert(path.to_owned(), bytes.to_vec());
        Ok(())
    }

    fn cut(&self, path: &Path, length: u64) -> io::Result<()> {
        self.file(path, |content| content.truncate(length as usize))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let content = self.files().remove(from).ok_or(ErrorKind::NotFound)?;
        self.write(to, &content)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.files().remove(path).map(drop).ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn create_folder(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn stamp(&self, _folder: &Path) -> io::Result<Stamp> {
        Err(ErrorKind::Unsupported.into())
    }

    fn remove_folder(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn sync_folder(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }
}

impl AppendFile for Open {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.disk.file(&self.path, |content| content.extend_from_slice(bytes))
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.disk.cut(&self.path, length)
    }

    fn state(&self) -> io::Result<FileState> {
        let length = self.disk.file(&self.path, |content| content.len() as u64)?;
        Ok(FileState { length, changed: 0 })
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        Ok(self.path == path && self.disk.files().contains_key(path))
    }
}
