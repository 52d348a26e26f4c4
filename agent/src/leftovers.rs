//! Batches that a process could not send before its end. They are kept on disk, and the next `paceline` command of the same user sends
//! them to the server that they were for.
//!
//! A process writes at most one file, which only its user can read: a line that names the format, a line with the server's address, and
//! the encoded batches, each after its length in four bytes, least significant byte first. The token is not in it.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, BufWriter, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use wire::batch::MAX_WIRE_BYTES;

use crate::transport::{Delivery, Transport};

/// The variable that names the folder.
pub(crate) const VARIABLE: &str = "PACELINE_SPOOL_DIR";
/// The first line of a file.
const FORMAT: &str = "paceline-spool 1";
const ENDING: &str = "spool";
/// The largest size of all files in the folder, in bytes: four times the default limit of a rank's spool.
const MOST_BYTES: u64 = 1 << 30;
/// The age at which a file is removed: its server does not come back.
const MOST_AGE: Duration = Duration::from_hours(30 * 24);
/// The longest time that a server's request to try again is followed.
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// The number of times that a batch is sent to a server that has no room.
const MOST_TRIES: usize = 5;

/// The folder of leftovers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftovers {
    folder: PathBuf,
}

/// What became of a file of leftovers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The file. It is gone if all batches are sent or refused.
    pub file: PathBuf,
    /// The server that its batches are for.
    pub server: String,
    /// The number of batches that the server has stored.
    pub stored: u64,
    /// The number of batches that the server refuses, and the newest reason.
    pub refused: Option<(u64, String)>,
    /// The reason why the others are not sent.
    pub left: Option<String>,
    /// Whether the file is removed although some are not sent, because it is too old.
    pub is_given_up: bool,
}

impl Leftovers {
    /// Returns the folder: `PACELINE_SPOOL_DIR`, or a folder of this user among the temporary files of the host. Those are on a local disk, so
    /// that writing to them does not hold up the end of a job. Returns `None` if the variable is empty: nothing is to be kept.
    #[must_use]
    pub fn of_environment() -> Option<Self> {
        Self::of(|name| std::env::var(name).ok())
    }

    pub(crate) fn of(get: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let user = rustix::process::getuid().as_raw();
        let default = || std::env::temp_dir().join(format!("paceline-spool-{user}"));
        let folder = get(VARIABLE).map_or_else(default, PathBuf::from);
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
            let bytes = frame.len() as u64 + 4;
            let fits = bytes <= room;
            room = room.saturating_sub(bytes);
            fits
        };
        let (all, kept) = (frames.clone().count(), frames.clone().rev().take_while(fits).count());
        if kept == 0 {
            return Err(io::Error::other(format!("{} is full", self.folder.display())));
        }
        let (path, temporary) =
            (self.folder.join(format!("{name}.{ENDING}")), self.folder.join(format!("{name}.tmp")));
        let written = write(&temporary, server, frames.skip(all - kept));
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

    fn files(&self) -> io::Result<Vec<PathBuf>> {
        let paths =
            fs::read_dir(&self.folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
        let mut files: Vec<PathBuf> = paths
            .into_iter()
            .filter(|path| path.extension().is_some_and(|ending| ending == ENDING))
            .collect();
        files.sort();
        Ok(files)
    }

    fn bytes(&self) -> io::Result<u64> {
        let sizes = self.files()?.into_iter().filter_map(|path| Some(path.metadata().ok()?.len()));
        Ok(sizes.sum())
    }

    /// Sends all leftovers, each to its server. A file is removed once all its batches are stored or refused. `token` is that of the
    /// servers. Files that another process sends now are left to it.
    #[must_use]
    pub fn send(&self, token: Option<&str>) -> Vec<Sent> {
        // Without the folder there are no leftovers.
        let files = self.open_if_there().and_then(|()| self.files()).unwrap_or_default();
        let mut silent = BTreeSet::new();
        files.iter().filter_map(|file| send_file(file, token, &mut silent)).collect()
    }

    fn open_if_there(&self) -> io::Result<()> {
        self.folder.symlink_metadata()?;
        self.open()
    }
}

fn write<'a>(path: &Path, server: &str, frames: impl Iterator<Item = &'a [u8]>) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    let mut out = BufWriter::new(file);
    writeln!(out, "{FORMAT}\n{server}")?;
    for frame in frames {
        out.write_all(&(frame.len() as u32).to_le_bytes())?;
        out.write_all(frame)?;
    }
    out.into_inner()?;
    Ok(())
}

/// Sends one file; `None` if another process sends it now, or if nothing is to be said of it. Servers that do not answer are added to
/// `silent`, and not asked again.
fn send_file(path: &Path, token: Option<&str>, silent: &mut BTreeSet<String>) -> Option<Sent> {
    let file = File::open(path).ok()?;
    file.try_lock().ok()?;
    let age = file.metadata().ok()?.modified().ok().and_then(|at| SystemTime::now().duration_since(at).ok());
    let mut reader = BufReader::new(&file);
    let Some(server) = server_of(&mut reader) else {
        let (server, left) = (String::new(), Some("it is not a file of leftovers of this version".into()));
        return Some(Sent {
            file: path.to_owned(),
            server,
            stored: 0,
            refused: None,
            left,
            is_given_up: false,
        });
    };
    let mut sent = Sent {
        file: path.to_owned(),
        server: server.clone(),
        stored: 0,
        refused: None,
        left: None,
        is_given_up: false,
    };
    if silent.contains(&server) {
        sent.left = Some("the server does not answer".into());
    } else {
        let transport = Transport::new(&server, token);
        sent.left = send_frames(&mut reader, &transport, &mut sent);
        silent.extend(sent.left.is_some().then_some(server));
    }
    sent.is_given_up = sent.left.is_some() && age.is_some_and(|age| age > MOST_AGE);
    if sent.left.is_none() || sent.is_given_up {
        // If it cannot be removed, the server recognizes its batches the next time.
        let _still_there = fs::remove_file(path);
    }
    Some(sent)
}

/// Sends the batches of a file. Returns the reason why some are left, if so.
fn send_frames(reader: &mut impl io::Read, transport: &Transport, sent: &mut Sent) -> Option<String> {
    while let Some(frame) = frame_of(reader) {
        let Ok(batch) = wire::codec::decode(&frame) else {
            note_refused(sent, "a batch is damaged".into());
            continue;
        };
        match deliver(transport, &frame, &batch.receipt()) {
            Delivery::Acknowledged(_) => sent.stored += 1,
            Delivery::Refused(reason) if reason.starts_with("401") => return Some(reason),
            Delivery::Refused(reason) => note_refused(sent, reason),
            Delivery::Later(_) => return Some("the server has no room now".into()),
            Delivery::Unreachable => return Some("the server does not answer".into()),
            Delivery::Unproven(answer) => return Some(format!("the server answers {answer}")),
        }
    }
    None
}

fn deliver(transport: &Transport, frame: &[u8], receipt: &str) -> Delivery {
    for _ in 1..MOST_TRIES {
        match transport.deliver(frame, receipt, Duration::MAX) {
            Delivery::Later(wait) => std::thread::sleep(wait.min(LONGEST_WAIT)),
            delivery => return delivery,
        }
    }
    transport.deliver(frame, receipt, Duration::MAX)
}

fn note_refused(sent: &mut Sent, reason: String) {
    let before = sent.refused.take().map_or(0, |(count, _)| count);
    sent.refused = Some((before + 1, reason));
}

/// Reads the first two lines, and returns the address of the server.
fn server_of(reader: &mut impl io::BufRead) -> Option<String> {
    let mut line = || {
        let mut line = String::new();
        reader.by_ref().take(MAX_LINE_BYTES).read_line(&mut line).ok()?;
        line.strip_suffix('\n').map(str::to_owned)
    };
    (line()? == FORMAT).then(line)?
}

/// The longest line, in bytes.
const MAX_LINE_BYTES: u64 = 4 << 10;

/// Reads one batch; `None` at the end, or where the file was cut.
fn frame_of(reader: &mut impl io::Read) -> Option<Vec<u8>> {
    let mut length = [0; 4];
    reader.read_exact(&mut length).ok()?;
    let length =
        usize::try_from(u32::from_le_bytes(length)).ok().filter(|length| *length <= MAX_WIRE_BYTES)?;
    let mut frame = vec![0; length];
    reader.read_exact(&mut frame).ok()?;
    Some(frame)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn leftovers(folder: &Path) -> Leftovers {
        let of = |name: &str| (name == VARIABLE).then(|| folder.display().to_string());
        Leftovers::of(of).expect("the variable is not empty")
    }

    #[test]
    fn an_empty_variable_means_that_nothing_is_kept() {
        assert_eq!(Leftovers::of(|_| Some(String::new())), None);
        assert!(Leftovers::of(|_| None).is_some());
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
        let mut reader = BufReader::new(File::open(&path).unwrap());
        assert_eq!(server_of(&mut reader).as_deref(), Some("http://h:1"));
        let read: Vec<Vec<u8>> = std::iter::from_fn(|| frame_of(&mut reader)).collect();
        assert_eq!(read, frames);
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
        File::create(root.path().join("big.spool")).unwrap().set_len(MOST_BYTES - 12).unwrap();
        let frames: [&[u8]; 3] = [b"old", b"ab", b"c"];
        let (path, lost) = folder.keep("http://h:1", "r", frames.into_iter()).unwrap();
        assert_eq!(lost, 1);
        fs::remove_file(path).unwrap();
        File::create(root.path().join("big.spool")).unwrap().set_len(MOST_BYTES).unwrap();
        assert!(
            folder.keep("http://h:1", "r", frames.into_iter()).unwrap_err().to_string().ends_with("is full")
        );
    }

    #[test]
    fn what_no_server_takes_stays_and_what_is_no_file_of_ours_is_named() {
        let root = tempfile::tempdir().unwrap();
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let folder = leftovers(root.path());
        assert_eq!(folder.send(None), []);
        fs::write(root.path().join("a.spool"), b"something else").unwrap();
        let batch = batch();
        // Nothing listens at port 1.
        folder.keep("http://127.0.0.1:1", "r", [batch.as_slice()].into_iter()).unwrap();
        let said: Vec<Option<String>> = folder.send(None).into_iter().map(|sent| sent.left).collect();
        let said: Vec<&str> = said.iter().flatten().map(String::as_str).collect();
        assert_eq!(said, ["it is not a file of leftovers of this version", "the server does not answer"]);
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 2);
        let old = SystemTime::now() - MOST_AGE - Duration::from_secs(60);
        File::options().write(true).open(root.path().join("r.spool")).unwrap().set_modified(old).unwrap();
        assert_eq!(folder.send(None).iter().filter(|sent| sent.is_given_up).count(), 1);
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1, "a file that is not ours stays");
    }

    fn batch() -> Vec<u8> {
        use wire::batch::Batch;
        use wire::clock::{ClockAnchor, MonoNanos, UnixNanos};
        use wire::ids::{BatchSeq, Incarnation, Rank, RunId};
        let batch = Batch {
            run: RunId::new("r").unwrap(),
            rank: Rank(0),
            world_size: 1,
            incarnation: Incarnation(1),
            seq: BatchSeq(0),
            anchor: ClockAnchor { mono: MonoNanos(0), unix: UnixNanos(0) },
            probes: Vec::new(),
            drops: Vec::new(),
            notes: Vec::new(),
            events: Vec::new(),
        };
        wire::codec::encode(&batch).unwrap()
    }
}
