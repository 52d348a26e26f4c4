//! The file system of this machine.
//!
//! No operation follows a symbolic link in any part of a path. Otherwise, whoever may write to a folder of runs, or to a copy of one, could
//! make the server truncate or read any file of its user. The data directory itself may be reached through links, which
//! [`Layout`](super::directory::Layout) resolves once. For the same reason, nothing but regular files is opened, since a pipe would block
//! the server, and nothing is written to a file that has a second name.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, Mode, OFlags, ResolveFlags, fstat, fsync, mkdirat, openat, openat2, renameat, unlinkat,
};
use rustix::io::Errno;

use super::disk::{AppendFile, Disk, FileState, Stamp};

/// The file system of this machine. New files and folders are private to the user whatever the process's umask is,
/// because `paceline run` leaves the umask to its ranks.
#[derive(Clone, Copy, Debug)]
pub struct LocalDisk;

/// The most bytes that are read of a file: as much as all runs may take in memory.
const LONGEST_READ: u64 = 2 << 30;

impl Disk for LocalDisk {
    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let entries = Dir::new(open_folder(folder)?)?;
        let names = entries.map(|entry| Ok(entry?.file_name().to_str().map(str::to_owned).ok()));
        // Names of storage files are ASCII: a name that is not UTF-8 is some other file.
        let names = names.filter_map(Result::transpose).collect::<Result<Vec<String>, Errno>>()?;
        Ok(names.into_iter().filter(|name| name != "." && name != "..").collect())
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        open(path, OFlags::RDONLY)?.take(LONGEST_READ + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > LONGEST_READ {
            return Err(io::Error::other("it is larger than any file that Paceline writes"));
        }
        Ok(bytes)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn AppendFile>> {
        Ok(Box::new(open(path, OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL)?))
    }

    fn reopen(&self, path: &Path) -> io::Result<Box<dyn AppendFile>> {
        Ok(Box::new(open_to_change(path, OFlags::APPEND)?))
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        // What is there may not be a file, or may be a second name of a file that is not ours.
        match self.remove(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = open(path, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)?;
        file.write_all(bytes)?;
        file.sync_all()
    }

    fn cut(&self, path: &Path, length: u64) -> io::Result<()> {
        let file = open_to_change(path, OFlags::empty())?;
        file.set_len(length)?;
        file.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let ((from_folder, from), (to_folder, to)) = (place(from)?, place(to)?);
        Ok(renameat(from_folder, from, to_folder, to)?)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let (folder, name) = place(path)?;
        Ok(unlinkat(folder, name, AtFlags::empty())?)
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        match open_folder(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            opened => return opened.map(drop),
        }
        if let Some(above) = path.parent() {
            self.create_folder(above)?;
        }
        let (folder, name) = place(path)?;
        match mkdirat(folder, name, Mode::RWXU) {
            // Another thread was faster.
            Ok(()) | Err(Errno::EXIST) => open_folder(path).map(drop),
            Err(error) => Err(error.into()),
        }
    }

    fn stamp(&self, folder: &Path) -> io::Result<Stamp> {
        let there = fstat(open_folder(folder)?)?;
        let changed = i128::from(there.st_mtime) * 1_000_000_000 + i128::from(there.st_mtime_nsec);
        Ok(Stamp([changed, i128::from(there.st_dev), i128::from(there.st_ino)]))
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        let (folder, name) = place(path)?;
        Ok(unlinkat(folder, name, AtFlags::REMOVEDIR)?)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        Ok(fsync(open_folder(path)?)?)
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

    fn state(&self) -> io::Result<FileState> {
        let own = self.metadata()?;
        let changed = i128::from(own.mtime()) * 1_000_000_000 + i128::from(own.mtime_nsec());
        Ok(FileState { length: own.len(), changed })
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        let own = self.metadata()?;
        match std::fs::symlink_metadata(path) {
            Ok(there) => Ok((there.dev(), there.ino()) == (own.dev(), own.ino())),
            // There may be a file in place of the folder.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Opens a regular file, or with [`OFlags::DIRECTORY`] a folder, without following links.
pub(super) fn open(path: &Path, flags: OFlags) -> io::Result<File> {
    // A pipe without a reader or a writer would block here.
    let file = open_any(path, flags | OFlags::NONBLOCK).map(File::from)?;
    let kind = file.metadata()?.file_type();
    if kind.is_file() || (flags.contains(OFlags::DIRECTORY) && kind.is_dir()) {
        Ok(file)
    } else {
        let what = if kind.is_dir() { "a folder" } else { "a pipe, a socket or a device" };
        Err(io::Error::other(format!("it is {what} and not a file: remove it")))
    }
}

/// Opens a file that is there for writing. One that has another name is refused: a copy made of hard links, or a file of somebody
/// else, would change with it.
fn open_to_change(path: &Path, flags: OFlags) -> io::Result<File> {
    let file = open(path, OFlags::WRONLY | flags)?;
    if file.metadata()?.nlink() > 1 {
        return Err(io::Error::other("it has a second name (a hard link): replace it by a copy"));
    }
    Ok(file)
}

fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    // A relative path with one part lies in the current folder.
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    open_any(path, OFlags::RDONLY | OFlags::DIRECTORY)
}

fn open_any(path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC;
    let mode = if flags.contains(OFlags::CREATE) { Mode::RUSR | Mode::WUSR } else { Mode::empty() };
    let opened = match openat2(CWD, path, flags, mode, ResolveFlags::NO_SYMLINKS) {
        // Linux before 5.6, or a sandbox that does not know this call. The last part of the path is still checked.
        Err(Errno::NOSYS | Errno::PERM) => openat(CWD, path, flags | OFlags::NOFOLLOW, mode),
        opened => opened,
    };
    opened.map_err(|error| match error {
        Errno::LOOP => {
            io::Error::other("it is, or lies behind, a symbolic link, which Paceline does not follow")
        }
        error => error.into(),
    })
}

/// Returns the opened folder of a path, and the name in it.
fn place(path: &Path) -> io::Result<(OwnedFd, &OsStr)> {
    let name = path.file_name().ok_or(ErrorKind::InvalidInput)?;
    Ok((open_folder(path.parent().unwrap_or(Path::new("")))?, name))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn no_operation_follows_a_link_in_any_part_of_a_path() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (root, victim) = (root.path().canonicalize().unwrap(), outside.path().join("victim"));
        fs::write(&victim, b"precious").unwrap();
        symlink(&victim, root.join("log")).unwrap();
        symlink(outside.path(), root.join("run")).unwrap();
        let disk = LocalDisk;
        for path in [root.join("log"), root.join("run/victim")] {
            assert!(disk.read(&path).is_err() && disk.reopen(&path).is_err() && disk.cut(&path, 0).is_err());
            assert!(disk.create(&path).is_err());
        }
        assert!(disk.write(&root.join("run/victim"), b"x").is_err());
        let said = disk.cut(&root.join("log"), 0).unwrap_err().to_string();
        assert!(said.contains("symbolic link"), "{said}");
        let linked = root.join("run/new");
        assert!(disk.list(&root.join("run")).is_err() && disk.create_folder(&linked).is_err());
        assert!(disk.remove(&root.join("run/victim")).is_err());
        assert!(disk.rename(&root.join("run/victim"), &root.join("mine")).is_err());
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
        assert!(!outside.path().join("new").exists());
        disk.write(&root.join("log"), b"x").unwrap();
        assert_eq!(fs::read(&victim).unwrap(), b"precious", "the link is replaced and not what it names");
        disk.remove(&root.join("log")).unwrap();
        symlink(&victim, root.join("log")).unwrap();
        disk.remove(&root.join("log")).unwrap();
        assert!(victim.exists(), "the link is removed and not what it names");
    }

    #[test]
    fn pipes_devices_folders_and_second_names_of_files_are_refused() {
        let root = tempfile::tempdir().unwrap();
        let (disk, root) = (LocalDisk, root.path().canonicalize().unwrap());
        let (pipe, folder) = (root.join("pipe"), root.join("folder"));
        rustix::fs::mknodat(CWD, &pipe, rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap();
        fs::create_dir(&folder).unwrap();
        for (path, what) in [(&pipe, "a pipe"), (&folder, "a folder")] {
            let said = disk.read(path).unwrap_err().to_string();
            assert!(said.contains(what), "{said}");
            assert!(disk.reopen(path).is_err() && disk.cut(path, 0).is_err());
        }
        assert!(disk.read(Path::new("/dev/zero")).is_err());
        disk.write(&pipe, b"a file now").unwrap();
        assert_eq!(disk.read(&pipe).unwrap(), b"a file now");
        assert!(disk.write(&folder, b"x").is_err());

        let (precious, second) = (root.join("precious"), root.join("second"));
        fs::write(&precious, b"precious").unwrap();
        fs::hard_link(&precious, &second).unwrap();
        let said = disk.cut(&second, 0).unwrap_err().to_string();
        assert!(said.contains("hard link") && disk.reopen(&second).is_err(), "{said}");
        disk.write(&second, b"other").unwrap();
        assert_eq!(fs::read(&precious).unwrap(), b"precious");
    }

    #[test]
    fn files_and_folders_are_private_and_found_again() {
        let root = tempfile::tempdir().unwrap();
        let (disk, folder) = (LocalDisk, root.path().canonicalize().unwrap().join("a/b"));
        disk.create_folder(&folder).unwrap();
        disk.create_folder(&folder).unwrap();
        let path = folder.join("log");
        let mut file = disk.create(&path).unwrap();
        file.append(b"ab").unwrap();
        assert!(disk.create(&path).is_err(), "it exists");
        assert_eq!(
            (disk.read(&path).unwrap(), disk.reopen(&path).unwrap().state().unwrap().length),
            (b"ab".to_vec(), 2)
        );
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&folder)), (0o600, 0o700));
        assert!(file.is_at(&path).unwrap());
        disk.rename(&path, &folder.join("other")).unwrap();
        assert!(!file.is_at(&path).unwrap() && file.is_at(&folder.join("other")).unwrap());
        assert_eq!(disk.list(&folder).unwrap(), ["other"]);
        let stamp = disk.stamp(&folder).unwrap();
        assert_eq!(disk.stamp(&folder).unwrap(), stamp);
        assert!(disk.remove_folder(&folder).is_err(), "it is not empty");
        disk.remove(&folder.join("other")).unwrap();
        disk.remove_folder(&folder).unwrap();
        assert!(disk.stamp(&folder).is_err() && !folder.exists());
        disk.create_folder(&folder).unwrap();
        disk.sync_folder(&folder).unwrap();
    }
}
