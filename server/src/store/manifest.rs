//! The manifest of a run: which segments count, and the checksums of their files.
//!
//! ```json
//! {
//!   "version": 3,
//!   "segments": [
//!     { "name": "segment-000001", "batches": 12, "steps": [0, 57],
//!       "files": { "steps.parquet": { "bytes": 2080, "crc32": 3735928559 }, ... },
//!       "damage": { "batches": 1, "reason": "412 bytes at 8192 do not match their checksum" } }
//!   ],
//!   "crc32": "0d7e0b6c"
//! }
//! ```
//!
//! The last line is a checksum of all bytes before it. Version 2 does not say which steps a segment holds; version 1 is
//! a list of names without any checksum.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use wire::ids::Step;

use super::directory::write_atomically;
use super::folder::{RunFolder, segment_name, segment_number};
use super::{StepRange, StoreError, signed};

const VERSION: u32 = 3;

/// Which segments of a run count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    version: u32,
    /// The segments, oldest first.
    pub segments: Vec<Sealed>,
}

/// A segment that counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sealed {
    /// The name of its folder.
    pub name: String,
    /// How many batches it holds; 0 where it is not known.
    pub batches: u64,
    /// The first and the last step that it has a record of. Absent when it has none, or an older program wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<(u64, u64)>,
    /// Its files by name. Empty when an older program wrote it, without checksums.
    pub files: BTreeMap<String, FileSum>,
    /// What could not be read of its log, which is then still there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damage: Option<LogDamage>,
}

/// What a file must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSum {
    /// Its length.
    pub bytes: u64,
    /// The CRC-32 (IEEE) of its content.
    pub crc32: u32,
}

impl FileSum {
    /// Of a file with this content.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self { bytes: bytes.len() as u64, crc32: crc32fast::hash(bytes) }
    }
}

/// What could not be read of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogDamage {
    /// At least this many batches are lost.
    pub batches: u64,
    /// Where, in a sentence without an end.
    pub reason: String,
}

/// What version 1 wrote.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ManifestV1 {
    segments: Vec<String>,
}

impl Sealed {
    /// Its number.
    #[must_use]
    pub fn number(&self) -> u32 {
        segment_number(&self.name).unwrap_or(0)
    }

    /// False only where it is known to have no record of these steps.
    #[must_use]
    pub fn may_hold(&self, steps: StepRange) -> bool {
        self.steps.is_none_or(|(first, last)| steps.meets(StepRange { first: Step(first), last: Step(last) }))
    }
}

impl Manifest {
    /// The manifest of a run; empty when it has none yet.
    ///
    /// # Errors
    /// When it is there and cannot be read, or does not match its checksum.
    pub fn read(folder: &RunFolder) -> Result<Self, StoreError> {
        let path = path(folder);
        match folder.disk.read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::default()),
            bytes => {
                let bytes = bytes.map_err(StoreError::io(&path, "read"))?;
                Self::parse(&bytes).map_err(|reason| StoreError::content(&path, reason))
            }
        }
    }

    /// Makes it the manifest of a run: after a crash it is the old or the new one.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, folder: &RunFolder) -> Result<(), StoreError> {
        let path = path(folder);
        let bytes = self.to_bytes().map_err(|error| StoreError::content(&path, error))?;
        write_atomically(folder.disk.as_ref(), &path, &bytes)
    }

    /// The segment of this number.
    #[must_use]
    pub fn find(&self, number: u32) -> Option<&Sealed> {
        let name = segment_name(number);
        self.segments.iter().find(|sealed| sealed.name == name)
    }

    /// Adds a segment, in place of the one of its name.
    pub fn put(&mut self, sealed: Sealed) {
        self.segments.retain(|known| known.name != sealed.name);
        self.segments.push(sealed);
        self.segments.sort_by_key(Sealed::number);
    }

    fn to_bytes(&self) -> serde_json::Result<Vec<u8>> {
        signed::sign(&Self { version: VERSION, segments: self.segments.clone() })
    }

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
        if let Ok(old) = serde_json::from_str::<ManifestV1>(text) {
            let segment =
                |name| Sealed { name, batches: 0, steps: None, files: BTreeMap::new(), damage: None };
            return Self { version: 1, segments: old.segments.into_iter().map(segment).collect() }.checked();
        }
        let broken = "it does not match its checksum: the disk damaged it, or somebody edited it";
        let json = signed::verified(text).ok_or(broken)?;
        // What matches its checksum and cannot be read is of another program.
        let manifest: Self = serde_json::from_str(&json)
            .map_err(|error| format!("this program reads versions 1 to {VERSION} of it: {error}"))?;
        manifest.checked()
    }

    fn checked(self) -> Result<Self, String> {
        if let Some(sealed) = self.segments.iter().find(|sealed| segment_number(&sealed.name).is_none()) {
            return Err(format!("{:?} is not the name of a segment", sealed.name));
        }
        let names: BTreeSet<&str> = self.segments.iter().map(|sealed| sealed.name.as_str()).collect();
        if names.len() < self.segments.len() {
            return Err("it names a segment twice".into());
        }
        Ok(self)
    }
}

fn path(folder: &RunFolder) -> PathBuf {
    folder.path.join("manifest.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let mut manifest = Manifest { version: VERSION, segments: Vec::new() };
        let files = BTreeMap::from([("steps.parquet".to_owned(), FileSum::of(b"abc"))]);
        let damage = Some(LogDamage { batches: 1, reason: "it is gone".into() });
        let steps = Some((7, 40));
        manifest.put(Sealed {
            name: "segment-000002".into(),
            batches: 3,
            steps,
            files: files.clone(),
            damage,
        });
        manifest.put(Sealed { name: "segment-000001".into(), batches: 2, steps: None, files, damage: None });
        manifest
    }

    #[test]
    fn any_spoilt_bit_is_noticed() {
        let bytes = manifest().to_bytes().unwrap();
        assert_eq!(Manifest::parse(&bytes).unwrap(), manifest());
        assert!(serde_json::from_slice::<serde_json::Value>(&bytes).is_ok(), "it is JSON");
        for bit in 0..bytes.len() * 8 {
            let mut spoilt = bytes.clone();
            spoilt[bit / 8] ^= 1 << (bit % 8);
            assert!(Manifest::parse(&spoilt).is_err(), "bit {bit}: {}", String::from_utf8_lossy(&spoilt));
        }
        for cut in 0..bytes.len() {
            assert!(Manifest::parse(&bytes[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn a_manifest_of_version_1_is_a_list_of_names() {
        let manifest = Manifest::parse(b"{\n  \"segments\": [\n    \"segment-000001\"\n  ]\n}").unwrap();
        assert_eq!(manifest.find(1).map(|sealed| sealed.files.len()), Some(0));
        assert!(Manifest::parse(b"{\"segments\": [\"../../x\"]}").is_err());
    }
}
