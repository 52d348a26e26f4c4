//! The files that a command line names: finds them, and reads them on all cores.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, ensure};
use import::{Source, Unreadable};
use wire::views::imports::{RECORDING_NAMES, may_be_recording};

use super::Files;

/// Returns the files that `paths` name: files, folders of them, and patterns.
///
/// # Errors
/// Returns an error if a path names nothing.
pub fn find(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for path in paths {
        let count_before = found.len();
        if path.is_dir() {
            found.extend(folder_files(path)?);
            ensure!(
                found.len() > count_before,
                "{} has no file whose name says that it may be a trace, table, log or dump ({}): name the files",
                path.display(),
                RECORDING_NAMES.join(", ")
            );
        } else if path.exists() {
            found.push(path.clone());
        } else {
            found.extend(matching(path)?);
            ensure!(found.len() > count_before, "there is no file {}", path.display());
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

fn folder_files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries =
        std::fs::read_dir(folder).with_context(|| format!("cannot read the folder {}", folder.display()))?;
    let files = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_file());
    Ok(files.filter(|path| may_be_recording(&file_name(path))).collect())
}

fn matching(pattern: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let text = pattern.to_string_lossy();
    let matches = glob::glob(&text).with_context(|| format!("{text} is neither a file nor a pattern"))?;
    Ok(matches.filter_map(Result::ok).filter(|path| path.is_file()).collect())
}

/// Returns the name of a file without its folder.
#[must_use]
pub fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// Returns a name for the run of these files: that of their folder, or of the only file.
#[must_use]
pub fn name(paths: &[PathBuf]) -> String {
    let stem = |path: &Path| file_name(path).split('.').next().unwrap_or_default().to_owned();
    let folder = |path: &Path| {
        path.canonicalize().ok()?.parent()?.file_name().map(|name| name.to_string_lossy().into_owned())
    };
    match paths {
        [path] => stem(path),
        [first, ..] => folder(first).unwrap_or_else(|| stem(first)),
        [] => String::new(),
    }
}

/// Returns the size of the files, in bytes. A file that is gone counts 0: reading it says so.
#[must_use]
pub fn size(paths: &[PathBuf]) -> u64 {
    paths.iter().map(|path| path.metadata().map_or(0, |metadata| metadata.len())).sum()
}

/// Reads the files, several at a time. `count_bytes` is told how many more bytes are read.
pub fn read(paths: &[PathBuf], count_bytes: impl Fn(usize) + Sync) -> Files {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(paths.len());
    let (next, read) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(paths.len())));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(path) = paths.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let source = read_file(path, &count_bytes);
                    read.lock().unwrap_or_else(PoisonError::into_inner).push((path, source));
                }
            });
        }
    });
    let mut read = read.into_inner().unwrap_or_else(PoisonError::into_inner);
    read.sort_by_key(|(path, _)| *path);
    let mut files = Files::default();
    read.into_iter().for_each(|(path, source)| files.add(&file_name(path), source));
    files
}

fn read_file(path: &Path, count_bytes: &impl Fn(usize)) -> Result<Source, Unreadable> {
    import::read(&file_name(path), Counted { file: File::open(path)?, count_bytes })
}

/// A file whose bytes count as progress.
struct Counted<'a, F> {
    file: File,
    count_bytes: &'a F,
}

impl<F: Fn(usize)> Read for Counted<'_, F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        (self.count_bytes)(read);
        Ok(read)
    }
}
