//! Sends leftovers, each file to its own server, and says what became of it.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::file::{self, Next};
use super::{ENDING, Leftovers, UNFINISHED};
use crate::transport::{Delivery, Transport};

/// The age at which a file is removed: its server does not come back, or its writer was killed.
const MOST_AGE: Duration = Duration::from_hours(30 * 24);
/// The longest time that a server's request to try again is followed.
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// The number of times that a batch is sent to a server that has no room.
const MOST_TRIES: usize = 5;
/// The ending of a file of which only a part could be read.
const DAMAGED: &str = "damaged";

/// What became of a file of leftovers, or of all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// The file, or the folder. A file is gone if all its batches are sent or refused.
    pub path: PathBuf,
    /// The server that its batches are for.
    pub server: String,
    /// The number of batches that the server has stored.
    pub stored: u64,
    /// The batches that the server refuses, if it refuses any.
    pub refused: Option<RefusedBatches>,
    /// The reason why the others are not sent.
    pub left: Option<String>,
    /// Whether the file is removed although some are not sent, because it is too old.
    pub is_given_up: bool,
}

/// Batches that a server refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedBatches {
    /// Their number.
    pub count: u64,
    /// The reason for the newest of them.
    pub reason: String,
}

impl Leftovers {
    /// Sends all leftovers, each to its server, until `deadline`. A file is removed once all its batches are stored or refused.
    /// `token` returns the token of a server with an address. Files that another process sends now are left to it.
    #[must_use]
    pub fn send(&self, token: impl Fn(&str) -> Option<String>, deadline: Option<Instant>) -> Vec<Sent> {
        if self.folder.symlink_metadata().is_err() {
            return Vec::new();
        }
        let is_due = || deadline.is_some_and(|deadline| Instant::now() >= deadline);
        let files = self.open().and_then(|()| Ok((self.files(ENDING)?, self.files(UNFINISHED)?)));
        match files {
            Ok((files, unfinished)) => {
                unfinished.iter().for_each(|path| remove_if_old(path));
                let mut silent = BTreeSet::new();
                files
                    .iter()
                    .take_while(|_| !is_due())
                    .filter_map(|path| send_file(path, &token, &mut silent))
                    .collect()
            }
            Err(error) => {
                let left = Some(error.to_string());
                vec![Sent { path: self.folder.clone(), left, ..Sent::default() }]
            }
        }
    }
}

fn remove_if_old(path: &Path) {
    if path.symlink_metadata().ok().and_then(|found| found.modified().ok()).is_some_and(is_old) {
        // The next command tries again.
        let _still_there = fs::remove_file(path);
    }
}

fn is_old(modified: SystemTime) -> bool {
    SystemTime::now().duration_since(modified).is_ok_and(|age| age > MOST_AGE)
}

/// Sends one file; `None` if another process sends it now, or if nothing is to be said of it. Servers that do not answer are added to
/// `silent`, and not asked again.
fn send_file(
    path: &Path,
    token: impl Fn(&str) -> Option<String>,
    silent: &mut BTreeSet<String>,
) -> Option<Sent> {
    let mut sent = Sent { path: path.to_owned(), ..Sent::default() };
    let file = match file::open(path) {
        Ok(file) => file,
        Err(error) => {
            sent.left = Some(error.to_string());
            return Some(sent);
        }
    };
    file.try_lock().ok()?;
    let is_old = file.metadata().ok()?.modified().is_ok_and(is_old);
    let mut reader = BufReader::new(&file);
    let Some(server) = file::server_of(&mut reader) else {
        sent.left = Some("it is not a file of leftovers of this version".into());
        return Some(sent);
    };
    sent.server.clone_from(&server);
    let end = if silent.contains(&server) {
        End::Left("the server does not answer".into())
    } else {
        send_frames(&mut reader, &Transport::new(&server, token(&server).as_deref()), &mut sent)
    };
    match end {
        End::All => remove(path),
        End::Damage => {
            // The rest may be of use to a person. It is not read again.
            let kept = path.with_extension(DAMAGED);
            let place = if fs::rename(path, &kept).is_ok() { kept } else { path.to_owned() };
            let read = sent.stored + sent.refused.as_ref().map_or(0, |refused| refused.count);
            let sentence = format!("it is damaged from its batch {} on: see {}", read + 1, place.display());
            sent.left = Some(sentence);
        }
        End::Contradicted(reason) => sent.left = Some(reason),
        End::Left(reason) => {
            sent.left = Some(reason);
            silent.insert(server);
        }
    }
    sent.is_given_up = is_old && path.exists() && sent.left.is_some();
    if sent.is_given_up {
        remove(path);
    }
    Some(sent)
}

fn remove(path: &Path) {
    // If it cannot be removed, the server recognizes its batches the next time.
    let _still_there = fs::remove_file(path);
}

/// How the sending of a file ended.
enum End {
    /// All batches are stored or refused.
    All,
    /// What follows cannot be read.
    Damage,
    /// The server does not take the others now, for this reason.
    Contradicted(String),
    /// The server takes nothing now, for this reason.
    Left(String),
}

fn send_frames(reader: &mut impl BufRead, transport: &Transport, sent: &mut Sent) -> End {
    loop {
        let frame = match file::next(reader) {
            Next::Frame(frame) => frame,
            Next::End => return End::All,
            Next::Damage => return End::Damage,
        };
        let Ok(batch) = wire::codec::decode(&frame) else {
            note_refused(sent, "it is of another version of Paceline".into());
            continue;
        };
        match deliver(transport, &frame, &batch.receipt()) {
            Delivery::Acknowledged(_) => sent.stored += 1,
            Delivery::Refused(reason) => note_refused(sent, reason),
            // For example while a later process of the rank is alive.
            Delivery::Contradicted(reason) => return End::Contradicted(reason),
            Delivery::Denied(reason) => return End::Left(reason),
            Delivery::Later(_) => return End::Left("the server has no room now".into()),
            Delivery::Unreachable => return End::Left("the server does not answer".into()),
            Delivery::Unproven(answer) => return End::Left(format!("the server answers {answer}")),
        }
    }
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
    let earlier = sent.refused.take().map_or(0, |refused| refused.count);
    sent.refused = Some(RefusedBatches { count: earlier + 1, reason });
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::PermissionsExt as _;

    use super::super::tests::leftovers;
    use super::*;

    #[test]
    fn what_no_server_takes_stays_and_what_is_no_file_of_ours_is_named() {
        let root = tempfile::tempdir().unwrap();
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let folder = leftovers(root.path());
        assert_eq!(folder.send(|_| None, None), []);
        fs::write(root.path().join("a.spool"), b"something else").unwrap();
        let batch = batch();
        // Nothing listens at port 1.
        folder.keep("http://127.0.0.1:1", "r", [batch.as_slice()].into_iter()).unwrap();
        let said: Vec<Option<String>> =
            folder.send(|_| None, None).into_iter().map(|sent| sent.left).collect();
        let said: Vec<&str> = said.iter().flatten().map(String::as_str).collect();
        assert_eq!(said, ["it is not a file of leftovers of this version", "the server does not answer"]);
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 2);
        let old = SystemTime::now() - MOST_AGE - Duration::from_secs(60);
        File::options().write(true).open(root.path().join("r.spool")).unwrap().set_modified(old).unwrap();
        assert_eq!(folder.send(|_| None, None).iter().filter(|sent| sent.is_given_up).count(), 1);
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1, "a file that is not ours stays");
    }

    fn batch() -> Vec<u8> {
        wire::codec::encode(&wire::fixtures::batch()).unwrap()
    }
}
