//! The manifest of a run: the segments that count, and the checksums of their files.
//!
//! ```json
//! {
//!   "version": 3,
//!   "segments": [
//!     { "name": "segment-000001", "batches": 12, "steps": [0, 57],
//!       "files": { "steps.parquet": { "bytes": 2080, "crc32": 3735928559 }, ... },
//!       "damage": { "batches": 1, "reason": "412 bytes at offset 8192 do not match their checksum" } }
//!   ],
//!   "crc32": "0d7e0b6c"
//! }
//! ```
//!
//! The last line is a checksum of all bytes before it. Version 2 does not say which steps a segment holds. Version 1 is
//! a list of names without checksums.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use wire::ids::Step;

use super::directory::write_atomically;
use super::folder::{RunFolder, segment_name, segment_number};
use super::{StepRange, StoreError, signed};

const VERSION: u32 = 3;

/// The segments of a run that count.
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
    /// The name of the segment's folder.
    pub name: String,
    /// The number of batches, or 0 if unknown.
    pub batches: u64,
    /// The first and the last step that the segment has records of. Absent if there are none, or if an older version
    /// wrote the segment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<(u64, u64)>,
    /// The size and checksum of each file, by name. Empty if an older version wrote the segment, without checksums.
    pub files: BTreeMap<String, FileSum>,
    /// What could not be read of the segment's log, which is then still on disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damage: Option<LogDamage>,
}

/// The size and checksum of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSum {
    /// The length, in bytes.
    pub bytes: u64,
    /// The CRC-32 (IEEE) of the content.
    pub crc32: u32,
}

impl FileSum {
    /// Returns the size and checksum of a file with this content.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        Self { bytes: bytes.len() as u64, crc32: crc32fast::hash(bytes) }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogDamage {
    /// The smallest number of batches that are lost.
    pub batches: u64,
    /// The place and the kind of damage, as a clause without a period.
    pub reason: String,
}

/// The content of a version 1 manifest.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ManifestV1 {
    segments: Vec<String>,
}

impl Sealed {
    /// Returns a segment of which only the name is known.
    #[must_use]
    pub fn unchecked(name: String) -> Self {
        Self { name, batches: 0, steps: None, files: BTreeMap::new(), damage: None }
    }

    /// Returns a segment that was removed together with the manifest.
    #[must_use]
    pub fn removed(number: u32) -> Self {
        let name = segment_name(number);
        let reason = format!("{name} was removed together with the manifest");
        Self { damage: Some(LogDamage { batches: 1, reason }), ..Self::unchecked(name) }
    }

    /// Returns true if an older version wrote the segment, without checksums.
    #[must_use]
    pub fn is_unchecked(&self) -> bool {
        self.files.is_empty() && self.damage.is_none()
    }

    /// Returns the segment's number.
    #[must_use]
    pub fn number(&self) -> u32 {
        segment_number(&self.name).unwrap_or(0)
    }

    /// Returns false if the segment is known to have no record of these steps, and true otherwise.
    #[must_use]
    pub fn may_hold(&self, steps: StepRange) -> bool {
        self.steps.is_none_or(|(first, last)| steps.meets(StepRange { first: Step(first), last: Step(last) }))
    }
}

impl Manifest {
    /// Reads the manifest of a run. Returns an empty one if the file does not exist.
    ///
    /// # Errors
    /// Returns an error if the file exists and cannot be read or does not match its checksum.
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

    /// Writes this manifest as the manifest of a run. After a crash the file is the old or the new manifest.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn write(&self, folder: &RunFolder) -> Result<(), StoreError> {
        let path = path(folder);
        let bytes = self.to_bytes().map_err(|error| StoreError::content(&path, error))?;
        write_atomically(folder.disk.as_ref(), &path, &bytes)
    }

    /// Returns true if there is no manifest.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        self.version == 0
    }

    /// Returns the segment with this number.
    #[must_use]
    pub fn find(&self, number: u32) -> Option<&Sealed> {
        let name = segment_name(number);
        self.segments.iter().find(|sealed| sealed.name == name)
    }

    /// Adds a segment and replaces any segment of the same name.
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
            let segments = old.segments.into_iter().map(Sealed::unchecked).collect();
            return Self { version: 1, segments }.checked();
        }
        let broken = "it does not match its checksum: it was damaged on disk or edited";
        let json = signed::verified(text).ok_or(broken)?;
        // A file that matches its checksum and cannot be parsed is from another version.
        let manifest: Self = serde_json::from_str(&json)
            .map_err(|error| format!("not a manifest of version 1 to {VERSION}: {error}"))?;
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
        let files = BTreeMap::from([("steps.parquet".to_owned(), FileSum::new(b"abc"))]);
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
    fn any_flipped_bit_is_detected() {
        let bytes = manifest().to_bytes().unwrap();
        assert_eq!(Manifest::parse(&bytes).unwrap(), manifest());
        assert!(serde_json::from_slice::<serde_json::Value>(&bytes).is_ok(), "a manifest is JSON");
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
