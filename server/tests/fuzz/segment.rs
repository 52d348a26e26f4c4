//! Sealed segments: what is written is read again to the last bit, and a file that matches its checksum and holds
//! something else is an error.

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
/// The largest segment in the corpus is 20 KB; a damaged length must not make it gigabytes.
const MOST_HELD: u64 = 256 << 20;

fn folder() -> RunFolder {
    let disk = Arc::new(MemoryDisk::default());
    Layout::on(disk, "/data").folder(&RunId::new("fuzz").expect("a name"))
}

fn without_started(mut batch: Batch) -> Batch {
    batch.events.retain(|event| !matches!(event, Event::Started(_)));
    batch.events.sort_by_key(Event::kind);
    batch
}

/// Any batch that the codec takes can be sealed, and comes back as it was.
#[test]
fn batches_survive_being_sealed() {
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
        let files = sums.map_err(|error| format!("it cannot be written: {error}"))?;
        let sealed = Sealed { name: segment_name(1), batches: 1, steps: None, files, damage: None };
        let read = segment::read(&folder, &sealed).map_err(|error| format!("it cannot be read: {error}"))?;
        let [back] = read.as_slice() else { return Err(format!("it came back as {} batches", read.len())) };
        let sorted = |received: &Received| (received.at, without_started(received.batch.clone()));
        ensure(sorted(back) == sorted(&received), || format!("{received:?} came back as {back:?}"))
    });
}

/// The files of a segment by name.
fn files_of(segment: &Path) -> BTreeMap<String, Vec<u8>> {
    let listed = std::fs::read_dir(segment).expect("it can be listed");
    let paths: Vec<PathBuf> = listed.map(|entry| entry.expect("an entry").path()).collect();
    let name = |path: &Path| path.file_name().expect("a name").to_string_lossy().into_owned();
    paths.iter().map(|path| (name(path), std::fs::read(path).expect("a file"))).collect()
}

/// One file of a segment is spoilt, and its checksum made right.
fn damaged(name: &str, inputs: &Corpus, cases: u32) {
    let folder = folder();
    let whole = Path::new(STORED).join("v2/both/runs/both-20261123-033324-079c/segment-000001");
    let mut files = files_of(&whole);
    let path = folder.segment(1);
    let write =
        |name: &str, bytes: &[u8]| folder.disk.write(&path.join(name), bytes).expect("it can be written");
    files.iter().for_each(|(name, bytes)| write(name, bytes));
    let sums: BTreeMap<_, _> = files.iter().map(|(name, bytes)| (name.clone(), FileSum::of(bytes))).collect();
    let good = files.remove(name).expect("a file of that name");
    let before = Sealed { name: segment_name(1), batches: 0, steps: None, files: sums, damage: None };
    let batches = segment::read(&folder, &before).expect("it is good as it is").len();
    inputs.check(&format!("segment-{name}"), cases, |bytes, choice| -> Verdict {
        write(name, bytes);
        let mut sealed = before.clone();
        // A checksum that is right or, from an older program, missing; else the damage is seen.
        match choice % 4 {
            0 => {}
            1 => sealed.files.clear(),
            _ => drop(sealed.files.insert(name.to_owned(), FileSum::of(bytes))),
        }
        let mut read = None;
        let used = allocation_counter::measure(|| read = Some(segment::read(&folder, &sealed)));
        ensure(used.bytes_max < MOST_HELD, || format!("reading held {} bytes", used.bytes_max))?;
        match read.expect("it was read") {
            Ok(_) if choice.is_multiple_of(4) => ensure(bytes == good, || "damage is not seen".into()),
            // Its table of batches says how many there are; the other files cannot make more of them.
            Ok(read) if name != "batches.parquet" => {
                ensure(read.len() == batches, || format!("{} batches of {batches}", read.len()))
            }
            Ok(_) => Ok(()),
            Err(error) => ensure(!error.to_string().is_empty(), || "an error that says nothing".into()),
        }
    });
}

#[test]
fn notes_that_are_damaged() {
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
fn tables_of_batches_that_are_damaged() {
    damaged("batches.parquet", &Corpus::files(STORED, "batches.parquet"), 1_500);
}

#[test]
fn tables_of_buckets_that_are_damaged() {
    damaged("buckets.parquet", &Corpus::files(STORED, "buckets.parquet"), 1_500);
}
