//! Batches that a process could not send before its end. They are kept on disk, and the next `paceline` command of the same user sends
//! them to the server that they were for.
//!
//! A process writes at most one file, which only its user can read ([`file`]). The token is not in it.

mod file;
mod send;

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::PathBuf;

use file::HEAD_BYTES;
pub use send::{RefusedBatches, Sent};

/// The variable that names the folder.
pub(crate) const VARIABLE: &str = "PACELINE_SPOOL_DIR";
const ENDING: &str = "spool";
/// The ending of a file that is being written, or whose writer was killed.
const UNFINISHED: &str = "tmp";
/// The largest size of all files in the folder, in bytes: four times the default limit of a rank's spool.
const MOST_BYTES: u64 = 1 << 30;

/// The folder of leftovers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftovers {
    folder: PathBuf,
}

impl Leftovers {
    /// Returns the folder: `PACELINE_SPOOL_DIR`, or a folder of this user among the temporary files of the host. Those are on a local disk, so
    /// that writing to them does not hold up the end of a job. Returns `None` if the variable is empty: nothing is to be kept.
    #[must_use]
    pub fn from_environment() -> Option<Self> {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    pub(crate) fn from_variables(get: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let user = rustix::process::getuid().as_raw();
        let default = || std::env::temp_dir().join(format!("paceline-spool-{user}"));
        let folder = get(VARIABLE).map_or_else(default, PathBuf::from);
        // A job says where its leftovers are, and whoever reads that may be in another folder.
        let folder = std::path::absolute(&folder).unwrap_or(folder);
        (!folder.as_os_str().is_empty()).then_some(Self { folder })
    }

    /// Writes encoded batches for a server to a file called `name`, the newest ones if not all fit. Returns the path, and the number of
    /// the oldest ones that did not fit.
    ///
    /// # Errors
    /// Returns an error if the folder belongs to another user, or if the file cannot be written.
    pub(crate) fn keep<'a>(
        &self,
        server: &str,
        name: &str,
        frames: impl DoubleEndedIterator<Item = &'a [u8]> + Clone,
    ) -> io::Result<(PathBuf, usize)> {
        self.open()?;
        let mut room = MOST_BYTES.saturating_sub(self.bytes()?);
        let fits = |frame: &&[u8]| {
            let bytes = (frame.len() + HEAD_BYTES) as u64;
            let fits = bytes <= room;
            room = room.saturating_sub(bytes);
            fits
        };
        let (all, kept) = (frames.clone().count(), frames.clone().rev().take_while(fits).count());
        if kept == 0 {
            return Err(io::Error::other(format!("{} is full", self.folder.display())));
        }
        let path = self.folder.join(format!("{name}.{ENDING}"));
        let temporary = path.with_extension(UNFINISHED);
        let written = file::write(&temporary, server, frames.skip(all - kept));
        if let Err(error) = written.and_then(|()| fs::rename(&temporary, &path)) {
            let _left_behind = fs::remove_file(&temporary);
            return Err(error);
        }
        Ok((path, all - kept))
    }

    /// Creates the folder, or checks that no other user can have put anything into it.
    fn open(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let found = self.folder.symlink_metadata()?;
        let is_own = found.is_dir() && found.uid() == rustix::process::getuid().as_raw();
        if is_own && found.mode() & 0o022 == 0 {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "{} is not a folder that only this user can write to",
            self.folder.display()
        )))
    }

    /// Returns the files with this ending, in the order of their names.
    fn files(&self, ending: &str) -> io::Result<Vec<PathBuf>> {
        let paths =
            fs::read_dir(&self.folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
        let has_ending = |path: &PathBuf| path.extension().is_some_and(|found| found == ending);
        let mut files: Vec<PathBuf> = paths.into_iter().filter(has_ending).collect();
        files.sort();
        Ok(files)
    }

    fn bytes(&self) -> io::Result<u64> {
        let all = [self.files(ENDING)?, self.files(UNFINISHED)?].concat();
        Ok(all.into_iter().filter_map(|path| Some(path.symlink_metadata().ok()?.len())).sum())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use super::*;

    pub(super) fn leftovers(folder: &Path) -> Leftovers {
        let get = |name: &str| (name == VARIABLE).then(|| folder.display().to_string());
        Leftovers::from_variables(get).expect("the variable is not empty")
    }

    #[test]
    fn an_empty_variable_means_that_nothing_is_kept() {
        assert_eq!(Leftovers::from_variables(|_| Some(String::new())), None);
        assert!(Leftovers::from_variables(|_| None).is_some());
    }

    #[test]
    fn batches_are_kept_for_their_server_in_a_private_file() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("spool");
        let frames: [&[u8]; 3] = [b"one", b"", b"three"];
        let (path, lost) = leftovers(&folder).keep("http://h:1", "r-0-7", frames.into_iter()).unwrap();
        assert_eq!((path.clone(), lost), (folder.join("r-0-7.spool"), 0));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&folder)), (0o600, 0o700));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn a_folder_that_others_can_write_to_is_not_used() {
        let root = tempfile::tempdir().unwrap();
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let kept = leftovers(root.path()).keep("http://h:1", "r", [b"x".as_slice()].into_iter());
        assert!(kept.unwrap_err().to_string().contains("only this user"));
        let link = root.path().join("link");
        std::os::unix::fs::symlink(root.path(), &link).unwrap();
        assert!(leftovers(&link).keep("http://h:1", "r", [b"x".as_slice()].into_iter()).is_err());
    }

    #[test]
    fn the_oldest_batches_give_way_once_the_folder_is_full() {
        let root = tempfile::tempdir().unwrap();
        let folder = leftovers(root.path());
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o700)).unwrap();
        File::create(root.path().join("big.spool"))
            .unwrap()
            .set_len(MOST_BYTES - 2 * HEAD_BYTES as u64 - 3)
            .unwrap();
        let frames: [&[u8]; 3] = [b"old", b"ab", b"c"];
        let (path, lost) = folder.keep("http://h:1", "r", frames.into_iter()).unwrap();
        assert_eq!(lost, 1);
        fs::remove_file(path).unwrap();
        File::create(root.path().join("big.spool")).unwrap().set_len(MOST_BYTES).unwrap();
        assert!(
            folder.keep("http://h:1", "r", frames.into_iter()).unwrap_err().to_string().ends_with("is full")
        );
    }
}
