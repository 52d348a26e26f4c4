//! Fuzzes sealed segments: batches are read as they were written, and a file that matches its checksum but has invalid
//! content is an error.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fuzz::{Corpus, Verdict};
use paceline::store::directory::Layout;
use paceline::store::folder::{RunFolder, segment_name};
use paceline::store::manifest::{FileSum, Sealed};
use paceline::store::segment::{self, Received};
use wire::batch::Batch;
use wire::clock::ServerNanos;
use wire::codec::decode_plain;
use wire::event::Event;
use wire::ids::RunId;

use super::memory::MemoryDisk;
use super::odd::make_odd;
use super::{STORED, ensure};

const WIRE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../wire");
/// The most memory that reading may hold, in bytes. The largest segment in the corpus is 20 KB, and a damaged length
/// must not cost gigabytes.
const MAX_HELD: u64 = 256 << 20;

fn folder() -> RunFolder {
    let disk = Arc::new(MemoryDisk::default());
    Layout::with_disk(disk, "/data").folder(&RunId::new("fuzz").expect("a name"))
}

fn remove_started(mut batch: Batch) -> Batch {
    batch.events.retain(|event| !matches!(event, Event::Started(_)));
    batch.events.sort_by_key(Event::kind);
    batch
}

/// Any batch that the codec accepts can be sealed and is read back unchanged.
#[test]
fn sealed_batches_are_read_back_unchanged() {
    let folder = folder();
    let corpus = Corpus::folder(format!("{WIRE}/tests/corpus/plain"))
        .and(Corpus::files(format!("{WIRE}/src/codec"), ".hex"))
        .only(|bytes| decode_plain(bytes).is_ok());
    corpus.check("sealed-batch", 1_500, |bytes, choice| {
        let Ok(mut batch) = decode_plain(bytes) else { return Ok(()) };
        make_odd(&mut batch, choice);
        let received =
            Received { at: ServerNanos(choice as i64), batch: Batch { run: folder.run.clone(), ..batch } };
        let sums = segment::write(&folder, 1, std::slice::from_ref(&received));
        let files = sums.map_err(|error| format!("cannot be written: {error}"))?;
        let sealed = Sealed { name: segment_name(1), batches: 1, steps: None, files, damage: None };
        let read = segment::read(&folder, &sealed).map_err(|error| format!("cannot be read: {error}"))?;
        let [back] = read.as_slice() else { return Err(format!("read back as {} batches", read.len())) };
        let sorted = |received: &Received| (received.at, remove_started(received.batch.clone()));
        ensure(sorted(back) == sorted(&received), || format!("{received:?} was read back as {back:?}"))
    });
}

/// Returns the files of a segment by name.
fn files_of(segment: &Path) -> BTreeMap<String, Vec<u8>> {
    let listed = std::fs::read_dir(segment).expect("the segment can be listed");
    let paths: Vec<PathBuf> = listed.map(|entry| entry.expect("an entry").path()).collect();
    let name = |path: &Path| path.file_name().expect("a name").to_string_lossy().into_owned();
    paths.iter().map(|path| (name(path), std::fs::read(path).expect("a file"))).collect()
}

/// Reads a segment with one damaged file, with and without a matching checksum.
fn damaged(name: &str, inputs: &Corpus, cases: u32) {
    let folder = folder();
    let whole = Path::new(STORED).join("v1/runs/both-20261123-110738-db04/segment-000001");
    let mut files = files_of(&whole);
    let path = folder.segment(1);
    let write =
        |name: &str, bytes: &[u8]| folder.disk.write(&path.join(name), bytes).expect("can be written");
    files.iter().for_each(|(name, bytes)| write(name, bytes));
    let sums: BTreeMap<_, _> =
        files.iter().map(|(name, bytes)| (name.clone(), FileSum::new(bytes))).collect();
    let good = files.remove(name).expect("a file of that name");
    let undamaged = Sealed { name: segment_name(1), batches: 0, steps: None, files: sums, damage: None };
    let batches = segment::read(&folder, &undamaged).expect("the undamaged segment can be read").len();
    inputs.check(&format!("segment-{name}"), cases, |bytes, choice| -> Verdict {
        write(name, bytes);
        let mut sealed = undamaged.clone();
        // The checksum stays, so that the damage must be detected; or is removed, as if the manifest were; or
        // is made to match.
        match choice % 4 {
            0 => {}
            1 => sealed.files.clear(),
            _ => drop(sealed.files.insert(name.to_owned(), FileSum::new(bytes))),
        }
        let mut read = None;
        let used = allocation_counter::measure(|| read = Some(segment::read(&folder, &sealed)));
        ensure(used.bytes_max < MAX_HELD, || format!("reading held {} bytes", used.bytes_max))?;
        match read.expect("the closure ran") {
            Ok(_) if choice.is_multiple_of(4) => ensure(bytes == good, || "undetected damage".into()),
            // The table of batches determines their number. The other files cannot add any.
            Ok(read) if name != "batches.parquet" => {
                ensure(read.len() == batches, || format!("{} batches of {batches}", read.len()))
            }
            Ok(_) => Ok(()),
            Err(error) => ensure(!error.to_string().is_empty(), || "an empty error message".into()),
        }
    });
}

#[test]
fn damaged_notes_never_change_the_number_of_batches() {
    let words = [
        "life",
        "batch",
        "notes",
        "drops",
        "version",
        "world_size",
        "lives",
        "null",
        "-1",
        "1e400",
        "{",
        "]",
    ];
    damaged("notes.json", &Corpus::files(STORED, "notes.json").words(&words), 2_000);
}

#[test]
fn a_damaged_table_of_batches_is_read_within_its_memory_bound() {
    damaged("batches.parquet", &Corpus::files(STORED, "batches.parquet"), 1_500);
}

#[test]
fn a_damaged_table_of_buckets_never_changes_the_number_of_batches() {
    damaged("buckets.parquet", &Corpus::files(STORED, "buckets.parquet"), 1_500);
}
