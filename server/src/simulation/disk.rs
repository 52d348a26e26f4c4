//! A disk in memory with all faults that a real disk may have.
//!
//! Synced data survives a power cut. Any part of unsynced data survives: each change of a name independently, and any
//! prefix of the bytes appended to a file, or such a prefix with holes. Operations fail before or after they had some
//! effect. The disk may be full, the power may be cut at any operation, and bits may flip in stored data. An operation may
//! take minutes: the disk has the simulation's clock.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rand::{Rng as _, RngExt as _};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;

use wire::clock::ServerNanos;

use crate::store::disk::{AppendFile, Disk, FileState, Stamp};

/// The faults to inject.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// The chance of failure is one in this many operations; 0 for none.
    pub errors: u32,
    /// The power is cut at this operation, counted from now.
    pub power_cut_at: Option<u64>,
    /// The number of bytes that may be appended before the disk is full.
    pub room: Option<usize>,
    /// One in this many operations takes [`STALL_NANOS`]; 0 for none.
    pub stalls: u32,
}

/// How long a stall is, in nanoseconds.
pub const STALL_NANOS: Range<i64> = 5_000_000_000..120_000_000_000;
/// The time that an operation takes, in nanoseconds.
const OPERATION_NANOS: i64 = 1_000_000;

/// The disk. Clones share it.
#[derive(Clone, Debug)]
pub struct SimulatedDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    random: ChaCha8Rng,
    files: BTreeMap<u64, Content>,
    names: BTreeMap<PathBuf, Node>,
    durable: BTreeMap<PathBuf, Node>,
    /// Changes of names that are not synced, oldest first.
    unsynced: Vec<Change>,
    faults: Faults,
    operations: u64,
    now: ServerNanos,
    is_off: bool,
    trace: Option<Vec<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    Folder,
    File(u64),
    /// A symbolic link, which no operation follows.
    Link,
}

#[derive(Clone, Debug)]
struct Change {
    folder: PathBuf,
    put: Option<(PathBuf, Node)>,
    removed: Option<PathBuf>,
}

/// The content of a file: what programs read, and what is durable.
#[derive(Debug, Default)]
struct Content {
    seen: Vec<u8>,
    durable: Vec<u8>,
}

impl SimulatedDisk {
    /// Creates an empty disk without faults, on which the folder `root` exists.
    pub fn new(seed: u64, root: &Path, traced: bool) -> Self {
        let names = BTreeMap::from([(root.to_owned(), Node::Folder)]);
        let state = State {
            random: ChaCha8Rng::seed_from_u64(seed),
            files: BTreeMap::new(),
            durable: names.clone(),
            names,
            unsynced: Vec::new(),
            faults: Faults::default(),
            operations: 0,
            now: ServerNanos(0),
            is_off: false,
            trace: traced.then(Vec::new),
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_faults(&self, faults: Faults) {
        let mut state = self.state();
        let first = state.operations;
        state.faults = Faults { power_cut_at: faults.power_cut_at.map(|at| first + at), ..faults };
    }

    /// Cuts the power and restores it. Returns whether some file has holes in its unsynced part.
    pub fn power_cut(&self) -> bool {
        let mut state = self.state();
        state.note(|| "power cut".into());
        state.power_cut()
    }

    /// Returns true if the power is off.
    pub fn is_off(&self) -> bool {
        self.state().is_off
    }

    /// Flips a bit of one file, if there is one. Returns the file's path.
    pub fn flip_a_bit(&self) -> Option<PathBuf> {
        self.state().flip_a_bit()
    }

    /// Returns the number of operations so far.
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// Returns the time.
    pub fn now(&self) -> ServerNanos {
        self.state().now
    }

    /// Lets time pass.
    pub fn pass(&self, nanos: i64) {
        let mut state = self.state();
        state.now = state.now + nanos;
    }

    /// Returns the trace, for the message of a failing test.
    pub fn trace(&self) -> Vec<String> {
        self.state().trace.clone().unwrap_or_default()
    }

    /// Removes a folder with all that is in it, durably.
    pub fn remove_tree(&self, folder: &Path) {
        let mut state = self.state();
        let is_outside = |path: &Path| !path.starts_with(folder);
        state.names.retain(|path, _| is_outside(path));
        state.durable.retain(|path, _| is_outside(path));
        state.unsynced.retain(|change| {
            is_outside(&change.folder) && change.put.as_ref().is_none_or(|(path, _)| is_outside(path))
        });
    }

    /// Puts a link in place of a file, durably.
    pub fn replace_by_link(&self, path: &Path) {
        let mut state = self.state();
        state.names.insert(path.to_owned(), Node::Link);
        state.durable.insert(path.to_owned(), Node::Link);
    }

    /// Adds a line to the trace.
    pub fn note(&self, line: impl FnOnce() -> String) {
        self.state().note(line);
    }
}

impl State {
    fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(line());
        }
    }

    fn chance(&mut self, one_in: u32) -> bool {
        one_in > 0 && self.random.random_range(0..one_in) == 0
    }

    /// Counts an operation and decides whether it fails. In an error, `true` means that the operation has no effect.
    fn operate(&mut self, what: &str, path: &Path) -> Result<(), (io::Error, bool)> {
        self.operations += 1;
        let is_slow = self.chance(self.faults.stalls);
        let nanos = if is_slow { self.random.random_range(STALL_NANOS) } else { OPERATION_NANOS };
        self.now = self.now + nanos;
        let mut outcome = Ok(());
        if self.is_off {
            outcome = Err((ErrorKind::Other.into(), true));
        } else if self.faults.power_cut_at.is_some_and(|at| self.operations >= at) {
            self.is_off = true;
            outcome = Err((io::Error::other("the power is off"), self.random.random_bool(0.5)));
        } else if self.chance(self.faults.errors) {
            outcome = Err((io::Error::from_raw_os_error(5), self.random.random_bool(0.5)));
        }
        let said = if outcome.is_ok() { "" } else { " FAILS" };
        self.note(|| format!("  {what} {}{said}", path.display()));
        outcome
    }

    fn file(&self, path: &Path) -> io::Result<u64> {
        match self.names.get(path) {
            Some(Node::File(file)) => Ok(*file),
            _ => Err(ErrorKind::NotFound.into()),
        }
    }

    fn change(&mut self, put: Option<(PathBuf, Node)>, removed: Option<PathBuf>) {
        let named = put.as_ref().map(|(path, _)| path).or(removed.as_ref());
        let folder = named.and_then(|path| path.parent()).unwrap_or(Path::new("")).to_owned();
        let change = Change { folder, put, removed };
        change.apply(&mut self.names);
        self.unsynced.push(change);
    }

    fn append(&mut self, file: u64, bytes: &[u8]) -> io::Result<()> {
        let fits = self.faults.room.map_or(bytes.len(), |room| room.min(bytes.len()));
        if let Some(content) = self.files.get_mut(&file) {
            content.seen.extend_from_slice(&bytes[..fits]);
        }
        self.faults.room = self.faults.room.map(|room| room - fits);
        if fits == bytes.len() { Ok(()) } else { Err(ErrorKind::StorageFull.into()) }
    }

    fn part<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[..self.random.random_range(0..=bytes.len() as u64) as usize]
    }

    fn power_cut(&mut self) -> bool {
        self.is_off = false;
        self.faults = Faults::default();
        for change in std::mem::take(&mut self.unsynced) {
            if self.random.random_bool(0.5) {
                change.apply(&mut self.durable);
            }
        }
        // A name is lost with its folder if the folder was never made durable.
        let folders = self.durable.clone();
        let has_folder = |path: &Path| {
            path.ancestors().skip(1).all(|above| {
                above.as_os_str().is_empty()
                    || above == Path::new("/")
                    || folders.get(above) == Some(&Node::Folder)
            })
        };
        self.durable.retain(|path, _| has_folder(path));
        self.names = self.durable.clone();
        let (random, mut has_holes) = (&mut self.random, false);
        for content in self.files.values_mut() {
            has_holes |= content.lose(random);
        }
        has_holes
    }

    fn flip_a_bit(&mut self) -> Option<PathBuf> {
        let mut files: Vec<(PathBuf, u64)> = Vec::new();
        for (path, node) in &self.names {
            if let Node::File(file) = node
                && !self.files[file].seen.is_empty()
            {
                files.push((path.clone(), *file));
            }
        }
        let chosen = self.random.random_range(0..files.len().max(1) as u64) as usize;
        let (path, file) = files.get(chosen)?.clone();
        let content = self.files.get_mut(&file)?;
        let at = self.random.random_range(0..content.seen.len() as u64) as usize;
        let bit = 1 << self.random.random_range(0..8);
        content.seen[at] ^= bit;
        if let Some(byte) = content.durable.get_mut(at) {
            *byte ^= bit;
        }
        self.note(|| format!("bit {bit:#04x} of byte {at} flips in {}", path.display()));
        Some(path)
    }
}

impl Change {
    fn apply(&self, names: &mut BTreeMap<PathBuf, Node>) {
        if let Some(removed) = &self.removed {
            names.remove(removed);
        }
        if let Some((path, node)) = &self.put {
            names.insert(path.clone(), *node);
        }
    }
}

impl Content {
    /// Applies a power cut. Returns whether it left holes.
    fn lose(&mut self, random: &mut ChaCha8Rng) -> bool {
        let mut has_holes = false;
        if self.seen.starts_with(&self.durable) {
            let unsynced = self.seen.split_off(self.durable.len());
            let kept = random.random_range(0..=unsynced.len() as u64) as usize;
            let mut kept = unsynced[..kept].to_vec();
            if !kept.is_empty() && random.random_range(0..4) == 0 {
                let hole = random.random_range(0..kept.len() as u64) as usize;
                kept[..hole].fill(0);
                has_holes = hole > 0;
            }
            self.durable.extend(kept);
        } else if random.random_bool(0.5) {
            // The file was truncated: the truncation is durable, or not.
            self.durable.clone_from(&self.seen);
        }
        self.seen.clone_from(&self.durable);
        has_holes
    }
}

impl Disk for SimulatedDisk {
    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let mut state = self.state();
        state.operate("list", folder).map_err(|(error, _)| error)?;
        if state.names.get(folder) != Some(&Node::Folder) {
            return Err(ErrorKind::NotFound.into());
        }
        let here = state.names.keys().filter(|path| path.parent() == Some(folder));
        Ok(here.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect())
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut state = self.state();
        let file = state.file(path)?;
        state.operate("read", path).map_err(|(error, _)| error)?;
        Ok(state.files[&file].seen.clone())
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn AppendFile>> {
        let mut state = self.state();
        if state.names.contains_key(path) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        let outcome = state.operate("create", path);
        if let Err((error, true)) = outcome {
            return Err(error);
        }
        let file = state.make(path);
        outcome.map_err(|(error, _)| error)?;
        Ok(Box::new(SimulatedFile { disk: self.clone(), path: path.to_owned(), file }))
    }

    fn reopen(&self, path: &Path) -> io::Result<Box<dyn AppendFile>> {
        let mut state = self.state();
        let file = state.file(path)?;
        state.operate("reopen", path).map_err(|(error, _)| error)?;
        Ok(Box::new(SimulatedFile { disk: self.clone(), path: path.to_owned(), file }))
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        let outcome = state.operate("write", path);
        if let Err((error, true)) = outcome {
            return Err(error);
        }
        let file = match state.file(path) {
            Ok(file) => file,
            Err(_) => state.make(path),
        };
        if let Some(content) = state.files.get_mut(&file) {
            content.seen.clear();
        }
        if let Err((error, _)) = outcome {
            let part = state.part(bytes).to_vec();
            state.append(file, &part)?;
            return Err(error);
        }
        state.append(file, bytes)?;
        state.sync(file);
        Ok(())
    }

    fn cut(&self, path: &Path, length: u64) -> io::Result<()> {
        let mut state = self.state();
        let file = state.file(path)?;
        state.operate("cut", path).map_err(|(error, _)| error)?;
        if let Some(content) = state.files.get_mut(&file) {
            content.seen.truncate(length as usize);
        }
        state.sync(file);
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        let file = state.file(from)?;
        let outcome = state.operate("rename to", to);
        if !matches!(outcome, Err((_, true))) {
            state.change(Some((to.to_owned(), Node::File(file))), Some(from.to_owned()));
        }
        outcome.map_err(|(error, _)| error)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.file(path)?;
        let outcome = state.operate("remove", path);
        if !matches!(outcome, Err((_, true))) {
            state.change(None, Some(path.to_owned()));
        }
        outcome.map_err(|(error, _)| error)
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.operate("create folder", path).map_err(|(error, _)| error)?;
        let above: Vec<PathBuf> = path.ancestors().map(Path::to_owned).collect();
        for folder in above.into_iter().rev().filter(|folder| folder.file_name().is_some()) {
            if !state.names.contains_key(&folder) {
                state.change(Some((folder, Node::Folder)), None);
            }
        }
        Ok(())
    }

    fn stamp(&self, _folder: &Path) -> io::Result<Stamp> {
        // As if the folder changed all the time.
        Ok(Stamp([self.operations().into(), 0, 0]))
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        let outcome = state.operate("remove folder", path);
        if !matches!(outcome, Err((_, true))) {
            state.change(None, Some(path.to_owned()));
        }
        outcome.map_err(|(error, _)| error)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.operate("sync folder", path).map_err(|(error, _)| error)?;
        let unsynced = std::mem::take(&mut state.unsynced);
        let (synced, unsynced): (Vec<Change>, Vec<Change>) =
            unsynced.into_iter().partition(|change| change.folder == path);
        state.unsynced = unsynced;
        synced.iter().for_each(|change| change.apply(&mut state.durable));
        Ok(())
    }
}

impl State {
    fn make(&mut self, path: &Path) -> u64 {
        let file = self.random.next_u64();
        self.files.insert(file, Content::default());
        self.change(Some((path.to_owned(), Node::File(file))), None);
        file
    }

    fn sync(&mut self, file: u64) {
        if let Some(content) = self.files.get_mut(&file) {
            content.durable.clone_from(&content.seen);
        }
    }
}

struct SimulatedFile {
    disk: SimulatedDisk,
    path: PathBuf,
    file: u64,
}

impl AppendFile for SimulatedFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.disk.state();
        match state.operate("append", &self.path) {
            Ok(()) => state.append(self.file, bytes),
            Err((error, true)) => Err(error),
            Err((error, false)) => {
                let part = state.part(bytes).to_vec();
                state.append(self.file, &part)?;
                Err(error)
            }
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.disk.state();
        let outcome = state.operate("sync", &self.path);
        if !matches!(outcome, Err((_, true))) {
            state.sync(self.file);
        }
        outcome.map_err(|(error, _)| error)
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        let outcome = state.operate("cut", &self.path);
        if !matches!(outcome, Err((_, true)))
            && let Some(content) = state.files.get_mut(&self.file)
        {
            content.seen.truncate(length as usize);
        }
        outcome.map_err(|(error, _)| error)
    }

    fn state(&self) -> io::Result<FileState> {
        let length = self.disk.state().files[&self.file].seen.len() as u64;
        Ok(FileState { length, changed: 0 })
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        Ok(self.disk.state().names.get(path) == Some(&Node::File(self.file)))
    }
}
