//! The captures of a run: traces of PyTorch's profiler that ranks sent, in the folder `captures` of the run.
//!
//! ```text
//! captures/
//!   ID.json             the ranks and steps that were asked for
//!   ID-rank-R.json      the answer of rank R
//!   ID-rank-R.trace.gz  its trace
//!   ID-of-R-and-Q.json  the comparison of ranks R and Q, once it was asked for
//! ```
//!
//! All names are made of numbers that the server knows. Every file is written whole or not at all. JSON files carry a
//! checksum, and an answer has that of its trace.

use std::io::ErrorKind;
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use wire::ids::{Rank, Step};
use wire::request::TraceRequest;
use wire::views::captures::{Capture, CaptureOutcome, CapturedRank, StoredTrace, TraceComparison};

use super::directory::write_atomically;
use super::disk::AppendFile;
use super::folder::RunFolder;
use super::{StoreError, signed};

/// The largest number of captures of a run. Beyond it, the oldest is deleted.
const MAX_CAPTURES: usize = 20;
/// The largest size of the traces of a run, in bytes. Beyond it, the oldest captures are deleted, but not the newest.
const MAX_BYTES: u64 = 1 << 30;

/// What the ranks of a capture were asked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Asked {
    /// The number of the capture.
    pub id: u64,
    pub first_step: Step,
    /// The number of steps.
    pub steps: u8,
    /// Whether the server asked by itself.
    pub automatic: bool,
    /// The ranks, the suspected one first.
    pub ranks: Vec<Rank>,
}

impl Asked {
    /// Returns the request to each rank.
    #[must_use]
    pub fn request(&self) -> TraceRequest {
        TraceRequest { number: self.id, first: self.first_step, steps: self.steps }
    }
}

/// The stored answer of a rank.
#[derive(Serialize, Deserialize)]
struct Answer {
    outcome: CaptureOutcome,
}

/// The captures of one run.
#[derive(Clone, Debug)]
pub struct Captures {
    run: RunFolder,
}

/// A trace that is being received. Dropping it without [`Self::finish`] removes what was received.
pub struct Incoming {
    captures: Captures,
    temporary: PathBuf,
    file: Option<Box<dyn AppendFile>>,
    checksum: crc32fast::Hasher,
    bytes: u64,
}

impl Captures {
    #[must_use]
    pub fn new(run: RunFolder) -> Self {
        Self { run }
    }

    fn folder(&self) -> PathBuf {
        self.run.path.join("captures")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    fn answer_file(&self, id: u64, rank: Rank) -> PathBuf {
        self.file(&format!("{id}-rank-{rank}.json"))
    }

    fn trace_file(&self, id: u64, rank: Rank) -> PathBuf {
        self.file(&format!("{id}-rank-{rank}.trace.gz"))
    }

    /// Stores that ranks are asked, and deletes the oldest captures beyond the limit.
    ///
    /// # Errors
    /// Returns an error if a file cannot be written.
    pub fn begin(&self, asked: &Asked) -> Result<(), StoreError> {
        let folder = self.folder();
        self.run.disk.create_folder(&folder).map_err(StoreError::io(&folder, "create"))?;
        self.run.disk.sync_folder(&self.run.path).map_err(StoreError::io(&self.run.path, "sync"))?;
        self.write(&self.file(&format!("{}.json", asked.id)), asked)?;
        let ids = self.ids()?;
        for id in ids.iter().take(ids.len().saturating_sub(MAX_CAPTURES)) {
            self.delete(*id)?;
        }
        Ok(())
    }

    /// Returns the captures, newest first.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be listed.
    pub fn list(&self) -> Result<Vec<Capture>, StoreError> {
        let names = self.names()?;
        let newest_first = self.ids()?.into_iter().rev();
        // A damaged description hides its capture and no other.
        Ok(newest_first.filter_map(|id| self.shown(id, &names).inspect_err(report).ok()).collect())
    }

    /// Returns a capture; `None` if there is none with this number.
    ///
    /// # Errors
    /// Returns an error if its description is damaged.
    pub fn find(&self, id: u64) -> Result<Option<Capture>, StoreError> {
        let names = self.names()?;
        if !names.iter().any(|name| capture_number(name) == Some(id)) {
            return Ok(None);
        }
        self.shown(id, &names).map(Some)
    }

    fn shown(&self, id: u64, names: &[String]) -> Result<Capture, StoreError> {
        let Asked { id, first_step, steps, automatic, ranks } =
            self.read(&self.file(&format!("{id}.json")))?;
        let outcome = |rank: Rank| {
            let file = self.answer_file(id, rank);
            let is_there = names.iter().any(|name| file.file_name().is_some_and(|own| own == name.as_str()));
            if !is_there {
                return CaptureOutcome::Waiting;
            }
            self.read::<Answer>(&file).map_or_else(
                |error| CaptureOutcome::Refused { reason: format!("its answer is damaged on disk: {error}") },
                |answer| answer.outcome,
            )
        };
        let ranks = ranks.into_iter().map(|rank| CapturedRank { rank, outcome: outcome(rank) }).collect();
        Ok(Capture { id, first_step, steps: steps.into(), automatic, ranks })
    }

    /// Stores the reason why a rank has no trace.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn refuse(&self, id: u64, rank: Rank, reason: String) -> Result<(), StoreError> {
        self.write(&self.answer_file(id, rank), &Answer { outcome: CaptureOutcome::Refused { reason } })
    }

    /// Begins to receive the trace of a rank. `attempt` tells apart the attempts of a rank, which may overlap.
    ///
    /// # Errors
    /// Returns an error if the file cannot be created.
    pub fn receive(&self, id: u64, rank: Rank, attempt: u64) -> Result<Incoming, StoreError> {
        let temporary = self.file(&format!("{id}-rank-{rank}-{}-{attempt}.part", std::process::id()));
        let file = self.run.disk.create(&temporary).map_err(StoreError::io(&temporary, "create"))?;
        let checksum = crc32fast::Hasher::new();
        Ok(Incoming { captures: self.clone(), temporary, file: Some(file), checksum, bytes: 0 })
    }

    /// Returns the trace of a rank, compressed.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or is damaged.
    pub fn trace(&self, id: u64, rank: Rank, stored: &StoredTrace) -> Result<Vec<u8>, StoreError> {
        let path = self.trace_file(id, rank);
        let bytes = self.run.disk.read(&path).map_err(StoreError::io(&path, "read"))?;
        if (bytes.len() as u64, crc32fast::hash(&bytes)) != (stored.bytes, stored.crc32) {
            return Err(StoreError::content(
                &path,
                "the trace is damaged on disk: it does not match its checksum",
            ));
        }
        Ok(bytes)
    }

    /// Returns the stored comparison of two ranks; `None` if there is none that can be read. It can be made again.
    #[must_use]
    pub fn comparison(&self, id: u64, (rank, against): (Rank, Rank)) -> Option<TraceComparison> {
        self.read(&self.file(&format!("{id}-of-{rank}-and-{against}.json"))).ok()
    }

    #[must_use]
    pub fn newest_comparison(&self) -> Option<TraceComparison> {
        let captures = self.list().unwrap_or_default();
        captures.iter().find_map(|capture| self.comparison(capture.id, pair(capture)?))
    }

    /// Returns the newest request and the ranks that have not answered it.
    #[must_use]
    pub fn unanswered(&self) -> Option<(TraceRequest, Vec<Rank>)> {
        let newest = self.list().ok()?.into_iter().next()?;
        let steps = u8::try_from(newest.steps).ok()?;
        let request = TraceRequest { number: newest.id, first: newest.first_step, steps };
        let waiting = newest.ranks.iter().filter(|rank| rank.outcome == CaptureOutcome::Waiting);
        Some((request, waiting.map(|rank| rank.rank).collect()))
    }

    /// Stores the comparison of two ranks.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn add_comparison(&self, id: u64, compared: &TraceComparison) -> Result<(), StoreError> {
        let TraceComparison { rank, against, .. } = compared;
        self.write(&self.file(&format!("{id}-of-{rank}-and-{against}.json")), compared)
    }

    /// Deletes the oldest captures until the traces of the run fit into the limit. The newest stays.
    ///
    /// # Errors
    /// Returns an error if a file cannot be listed or deleted.
    pub fn limit(&self) -> Result<(), StoreError> {
        let captures = self.list()?;
        let mut bytes = 0;
        for (at, capture) in captures.iter().enumerate() {
            bytes += bytes_of(capture);
            if at > 0 && bytes > MAX_BYTES {
                self.delete(capture.id)?;
            }
        }
        Ok(())
    }

    /// Deletes a capture. Its description goes last, so that a crash leaves nothing that no one would delete.
    fn delete(&self, id: u64) -> Result<(), StoreError> {
        tracing::warn!(run = %self.run.run, capture = id, "the oldest capture of this run is deleted, because the run has too many or too large ones");
        let own = format!("{id}-");
        let files = self.names()?.into_iter().filter(|name| name.starts_with(&own));
        for name in files.chain([format!("{id}.json")]) {
            let path = self.file(&name);
            self.run.disk.remove(&path).map_err(StoreError::io(&path, "delete"))?;
        }
        Ok(())
    }

    /// Returns the numbers of the captures, oldest first.
    fn ids(&self) -> Result<Vec<u64>, StoreError> {
        let mut ids: Vec<u64> = self.names()?.iter().filter_map(|name| capture_number(name)).collect();
        ids.sort_unstable();
        Ok(ids)
    }

    fn names(&self) -> Result<Vec<String>, StoreError> {
        let folder = self.folder();
        match self.run.disk.list(&folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            listed => listed.map_err(StoreError::io(&folder, "list")),
        }
    }

    fn write(&self, path: &std::path::Path, value: &impl Serialize) -> Result<(), StoreError> {
        let text = signed::sign(value).map_err(|error| StoreError::content(path, error))?;
        write_atomically(&*self.run.disk, path, &text)
    }

    fn read<T: DeserializeOwned>(&self, path: &std::path::Path) -> Result<T, StoreError> {
        let bytes = self.run.disk.read(path).map_err(StoreError::io(path, "read"))?;
        let text = signed::verified(&String::from_utf8_lossy(&bytes))
            .ok_or_else(|| StoreError::content(path, "the file does not match its checksum"))?;
        serde_json::from_str(&text).map_err(|error| StoreError::content(path, error))
    }
}

impl Incoming {
    /// Adds bytes to the trace.
    ///
    /// # Errors
    /// Returns an error if they cannot be written.
    pub fn add(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.checksum.update(bytes);
        self.bytes += bytes.len() as u64;
        let Some(file) = &mut self.file else { return Ok(()) };
        file.append(bytes).map_err(StoreError::io(&self.temporary, "write"))
    }

    /// Stores the trace, which is durable then.
    ///
    /// # Errors
    /// Returns an error if it cannot be stored.
    pub fn finish(mut self, id: u64, rank: Rank, trace: StoredTrace) -> Result<StoredTrace, StoreError> {
        let Some(mut file) = self.file.take() else { return Ok(trace) };
        file.sync().map_err(StoreError::io(&self.temporary, "sync"))?;
        let (captures, path) = (&self.captures, self.captures.trace_file(id, rank));
        captures.run.disk.rename(&self.temporary, &path).map_err(StoreError::io(&path, "replace"))?;
        let stored = StoredTrace { bytes: self.bytes, crc32: self.checksum.clone().finalize(), ..trace };
        // Syncs the folder, and the name of the trace with it.
        captures
            .write(&captures.answer_file(id, rank), &Answer { outcome: CaptureOutcome::Stored(stored) })?;
        Ok(stored)
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            // What stays of it has a name that nothing reads, and goes with its capture.
            let _stays = self.captures.run.disk.remove(&self.temporary);
        }
    }
}

/// Returns the two ranks of a capture that are compared unless others are asked for: the first two that have a trace.
#[must_use]
pub fn pair(capture: &Capture) -> Option<(Rank, Rank)> {
    let mut stored = capture.stored();
    Some((stored.next()?, stored.next()?))
}

fn report(error: &StoreError) {
    tracing::warn!(%error, "this capture is damaged and not shown");
}

fn bytes_of(capture: &Capture) -> u64 {
    let sizes = capture.ranks.iter().map(|rank| match &rank.outcome {
        CaptureOutcome::Stored(stored) => stored.bytes,
        _ => 0,
    });
    sizes.sum()
}

fn capture_number(name: &str) -> Option<u64> {
    let number = name.strip_suffix(".json")?;
    let id = number.parse().ok()?;
    // Another spelling, such as with leading zeros, is a file of some other program.
    (number == format!("{id}")).then_some(id)
}

#[cfg(test)]
mod tests {
    use wire::ids::RunId;

    use super::*;
    use crate::store::directory::Layout;

    fn stored() -> StoredTrace {
        StoredTrace { first_step: Step(7), steps: 3, pause_nanos: 5, bytes: 0, crc32: 0 }
    }

    fn captures(root: &std::path::Path) -> Captures {
        let folder = Layout::new(root).folder(&RunId::new("r").unwrap());
        folder.disk.create_folder(&folder.path).unwrap();
        Captures::new(folder)
    }

    fn asked(id: u64) -> Asked {
        Asked { id, first_step: Step(7), steps: 3, automatic: false, ranks: vec![Rank(2), Rank(0)] }
    }

    fn add(captures: &Captures, id: u64, bytes: &[u8]) -> StoredTrace {
        let mut incoming = captures.receive(id, Rank(2), 1).unwrap();
        incoming.add(bytes).unwrap();
        incoming.finish(id, Rank(2), stored()).unwrap()
    }

    #[test]
    fn a_capture_is_found_again_with_the_answers_of_its_ranks() {
        let root = tempfile::tempdir().unwrap();
        let captures = captures(root.path());
        assert_eq!((captures.list().unwrap().len(), captures.find(1).unwrap()), (0, None));
        captures.begin(&asked(1)).unwrap();
        captures.begin(&asked(2)).unwrap();
        let trace = add(&captures, 2, b"gzip");
        captures.refuse(2, Rank(0), "busy".into()).unwrap();
        let [newest, oldest] = &captures.list().unwrap()[..] else { panic!() };
        assert_eq!((newest.id, oldest.id, oldest.is_complete()), (2, 1, false));
        let answers: Vec<&CaptureOutcome> = newest.ranks.iter().map(|rank| &rank.outcome).collect();
        let refused = CaptureOutcome::Refused { reason: "busy".into() };
        assert_eq!(answers, [&CaptureOutcome::Stored(trace), &refused]);
        assert_eq!(captures.trace(2, Rank(2), &trace).unwrap(), b"gzip");
        assert_eq!(captures.unanswered(), Some((asked(2).request(), Vec::new())));
    }

    #[test]
    fn a_damaged_file_is_an_error_and_harms_no_other() {
        let root = tempfile::tempdir().unwrap();
        let captures = captures(root.path());
        captures.begin(&asked(1)).unwrap();
        captures.begin(&asked(2)).unwrap();
        let trace = add(&captures, 1, b"gzip");
        std::fs::write(captures.trace_file(1, Rank(2)), b"gzap").unwrap();
        let error = captures.trace(1, Rank(2), &trace).unwrap_err().to_string();
        assert!(error.contains("1-rank-2.trace.gz") && error.contains("damaged"), "{error}");
        std::fs::write(captures.answer_file(1, Rank(2)), b"{}").unwrap();
        let CaptureOutcome::Refused { reason } = captures.find(1).unwrap().unwrap().ranks[0].outcome.clone()
        else {
            panic!()
        };
        assert!(reason.contains("damaged"), "{reason}");
        std::fs::write(captures.file("2.json"), b"{}").unwrap();
        assert_eq!(captures.list().unwrap().iter().map(|capture| capture.id).collect::<Vec<_>>(), [1]);
        assert!(captures.find(2).is_err());
    }

    #[test]
    fn the_oldest_capture_makes_room_for_a_new_one() {
        let root = tempfile::tempdir().unwrap();
        let captures = captures(root.path());
        for id in 1..=MAX_CAPTURES as u64 {
            captures.begin(&asked(id)).unwrap();
        }
        add(&captures, 1, b"gzip");
        captures.begin(&asked(99)).unwrap();
        let ids = captures.ids().unwrap();
        assert_eq!((ids.len(), ids[0], *ids.last().unwrap()), (MAX_CAPTURES, 2, 99));
        assert!(captures.names().unwrap().iter().all(|name| !name.starts_with("1-")));
    }

    #[test]
    fn a_trace_that_does_not_arrive_whole_leaves_nothing() {
        let root = tempfile::tempdir().unwrap();
        let captures = captures(root.path());
        captures.begin(&asked(1)).unwrap();
        let mut incoming = captures.receive(1, Rank(2), 1).unwrap();
        incoming.add(b"gz").unwrap();
        drop(incoming);
        assert_eq!(captures.names().unwrap(), ["1.json"]);
    }
}
