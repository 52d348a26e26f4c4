//! The files of an import: finds them, and reads them on all cores.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, ensure};
use import::{Source, Unreadable};
use indicatif::ProgressBar;
use wire::views::imports::{RECORDING_NAMES, may_be_recording};

use crate::cli::progress;
use crate::imports::Files;

/// Returns the files that `paths` name: files, folders of them, and patterns.
///
/// # Errors
/// Returns an error if a path names nothing.
pub(super) fn find(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for path in paths {
        let before = found.len();
        if path.is_dir() {
            found.extend(in_folder(path)?);
            ensure!(
                found.len() > before,
                "{} has no file whose name says that it may be a trace, table, log or dump ({}): name the files",
                path.display(),
                RECORDING_NAMES.join(", ")
            );
        } else if path.exists() {
            found.push(path.clone());
        } else {
            found.extend(matching(path)?);
            ensure!(found.len() > before, "there is no file {}", path.display());
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

fn in_folder(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
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
pub(super) fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// Returns a name for the run of these files: that of their folder, or of the only file.
pub(super) fn name(paths: &[PathBuf]) -> String {
    let stem = |path: &Path| file_name(path).split('.').next().unwrap_or_default().to_owned();
    let folder = |path: &Path| {
        path.canonicalize().ok()?.parent()?.file_name().map(|name| name.to_string_lossy().into_owned())
    };
    match paths {
        [one] => stem(one),
        [first, ..] => folder(first).unwrap_or_else(|| stem(first)),
        [] => String::new(),
    }
}

/// Reads the files, several at a time.
pub(super) fn read(paths: &[PathBuf]) -> Files {
    let sizes = paths.iter().map(|path| path.metadata().map_or(0, |metadata| metadata.len()));
    let bar = progress::bar("reading", sizes.sum());
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(paths.len());
    let (next, read) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(paths.len())));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(path) = paths.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let source = read_one(path, &bar);
                    read.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((path, source));
                }
            });
        }
    });
    bar.finish_and_clear();
    let mut read = read.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    read.sort_by_key(|(path, _)| *path);
    let mut files = Files::default();
    read.into_iter().for_each(|(path, source)| files.add(&file_name(path), source));
    files
}

fn read_one(path: &Path, bar: &ProgressBar) -> Result<Source, Unreadable> {
    import::read(&file_name(path), Counted { file: File::open(path)?, bar })
}

/// A file whose bytes count as progress.
struct Counted<'a> {
    file: File,
    bar: &'a ProgressBar,
}

impl Read for Counted<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(into)?;
        self.bar.inc(read as u64);
        Ok(read)
    }
}
