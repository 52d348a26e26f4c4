//! Fuzzes manifests, read as a server reads them.

use std::sync::Arc;

use fuzz::{Corpus, Verdict};
use paceline::store::directory::Layout;
use paceline::store::folder::{RunFolder, segment_name};
use paceline::store::manifest::Manifest;
use wire::ids::RunId;

use super::memory::MemoryDisk;
use super::{CORPUS, STORED, ensure};

/// The text before the checksum.
const KEY: &str = ",\n  \"crc32\": \"";

fn corpus() -> Corpus {
    let stored = Corpus::files(STORED, "manifest.json").and(Corpus::folder(format!("{CORPUS}/manifest")));
    stored.words(&[
        "segments",
        "files",
        "bytes",
        "damage",
        "reason",
        "version",
        "crc32",
        "null",
        "1e400",
        "-1",
        "true",
        "18446744073709551616",
        "segment-000001",
        "segment-+00001",
        "segment-1",
        "..",
        "\"",
        "{",
        "}",
        "[",
        "]",
        ",",
    ])
}

/// Appends a valid checksum, like someone who edits the file and knows its format.
fn signed(bytes: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(bytes);
    let body = text.rsplit_once(KEY).map_or(&*text, |(body, _)| body);
    format!("{body}{KEY}{:08x}\"\n}}\n", crc32fast::hash(body.as_bytes())).into_bytes()
}

/// Reads these bytes as the manifest of a folder.
fn read(folder: &RunFolder, bytes: &[u8]) -> Result<Manifest, String> {
    folder.disk.write(&folder.path.join("manifest.json"), bytes).expect("the manifest can be written");
    Manifest::read(folder).map_err(|error| error.to_string())
}

fn names_are_paths_of_segments(manifest: &Manifest) -> Verdict {
    for sealed in &manifest.segments {
        let number = sealed.number();
        ensure(sealed.name == segment_name(number), || format!("{:?} is number {number}", sealed.name))?;
        let found = manifest.find(number);
        ensure(found == Some(sealed), || format!("{:?} is found as {found:?}", sealed.name))?;
    }
    Ok(())
}

#[test]
fn only_valid_manifests_are_accepted() {
    let run = RunId::new("fuzz").expect("a name");
    let folder = Layout::with_disk(Arc::new(MemoryDisk::default()), "/data").folder(&run);
    let corpus = corpus();
    let good: Vec<Vec<u8>> = corpus.entries().map(|(_, bytes)| bytes.to_vec()).collect();
    corpus.check("manifest", 12_000, |bytes, choice| {
        let is_signed = choice % 2 == 1;
        let bytes = if is_signed { signed(bytes) } else { bytes.to_vec() };
        let manifest = match read(&folder, &bytes) {
            Ok(manifest) => manifest,
            Err(reason) => return ensure(reason.len() < 2_000 + bytes.len(), || format!("long: {reason}")),
        };
        names_are_paths_of_segments(&manifest)?;
        let is_known = is_signed || good.contains(&bytes);
        ensure(is_known, || format!("{manifest:?} matches no checksum"))?;
        manifest.write(&folder).map_err(|error| error.to_string())?;
        let again = Manifest::read(&folder).map_err(|error| error.to_string())?;
        ensure(again.segments == manifest.segments, || format!("written and read again: {again:?}"))
    });
}
