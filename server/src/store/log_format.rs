//! The format of a log, and what remains readable after damage.
//!
//! ```text
//! version 2    mark:4 length:u32 received:i64 frame_crc32:u32 head_crc32:u32 frame      little endian throughout
//! version 1    length:u32 crc32:u32 received:i64 frame                                  crc32 of received and frame
//! ```
//!
//! A log is a sequence of entries of one version. The head's checksum covers the entry's offset in the file and the
//! head before the checksum, so bytes that were an entry at another offset do not count as an entry. Since a head can
//! be trusted without its frame, a crash is distinguished from damage:
//!
//! - A *torn tail* is one of three things: an entry whose valid head announces more bytes than the file has, fewer
//!   bytes than any entry has, or zeros up to the end. Its write was never finished, so it was never acknowledged.
//! - All other bytes that do not match their checksum are *damage*. Reading resumes at the next valid entry.

use wire::batch::MAX_WIRE_BYTES;
use wire::clock::ServerNanos;

/// The first bytes of each entry of version 2. Read as the length of a version 1 entry, they exceed the largest length.
const MARK: [u8; 4] = *b"\xb6PL2";
const HEAD_BYTES: usize = 24;
const HEAD_BYTES_V1: usize = 16;
/// The first bytes of a frame (see [`wire::codec`]). Entries of version 1 have no mark of their own.
const FRAME_MAGIC: &[u8] = b"PCLB";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The time when the batch arrived.
    pub received: ServerNanos,
    /// The batch's frame.
    pub frame: Vec<u8>,
}

/// A damaged range of bytes, which held at least one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The offset of the range.
    pub at: u64,
    /// The length of the range, in bytes.
    pub bytes: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// The readable entries, in order.
    pub entries: Vec<Entry>,
    /// The damaged ranges.
    pub gaps: Vec<Gap>,
    /// The length of the torn tail, in bytes.
    pub torn: u64,
    /// Whether an older version wrote the log.
    pub is_version_1: bool,
}

/// Appends an entry to `bytes`. `at` is the entry's offset in its file.
pub fn write_entry(bytes: &mut Vec<u8>, at: u64, received: ServerNanos, frame: &[u8]) {
    let mut head = [0; HEAD_BYTES];
    head[..4].copy_from_slice(&MARK);
    head[4..8].copy_from_slice(&(frame.len() as u32).to_le_bytes());
    head[8..16].copy_from_slice(&received.0.to_le_bytes());
    head[16..20].copy_from_slice(&crc32fast::hash(frame).to_le_bytes());
    let checksum = head_checksum(at, &head[..20]);
    head[20..].copy_from_slice(&checksum.to_le_bytes());
    bytes.extend_from_slice(&head);
    bytes.extend_from_slice(frame);
}

fn head_checksum(at: u64, head: &[u8]) -> u32 {
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(&at.to_le_bytes());
    checksum.update(head);
    checksum.finalize()
}

#[must_use]
pub fn read(bytes: &[u8]) -> Contents {
    let is_version_1 = is_version_1(bytes);
    let reader = Reader { bytes, is_version_1 };
    let mut contents = Contents { is_version_1, ..Contents::default() };
    let mut at = 0;
    while at < bytes.len() {
        match reader.next(at) {
            Next::Whole(entry, end) => {
                contents.entries.push(entry);
                at = end;
            }
            Next::Torn => {
                contents.torn = (bytes.len() - at) as u64;
                break;
            }
            Next::Damaged { next } => {
                contents.gaps.push(Gap { at: at as u64, bytes: (next - at) as u64 });
                at = next;
            }
        }
    }
    contents
}

/// Returns whether an older version wrote the log. A log of version 2 with a damaged first mark looks older; another
/// head, or the rest of the first head, then identifies it. Searching for entries of both versions would be wrong:
/// entries of version 1 do not contain their offset, so a sender could put one into a frame.
fn is_version_1(bytes: &[u8]) -> bool {
    let (newer, older) = (Reader { bytes, is_version_1: false }, Reader { bytes, is_version_1: true });
    let is_newer = || newer.has_head_without_mark() || (0..bytes.len()).any(|at| newer.head(at).is_some());
    !bytes.starts_with(&MARK) && (older.entry_v1(0).is_some() || !is_newer())
}

/// The result of reading at an offset.
enum Next {
    /// An entry, and the offset of the next one.
    Whole(Entry, usize),
    /// A torn tail.
    Torn,
    /// Damage. The next entry begins at `next`, or the log ends there.
    Damaged { next: usize },
}

struct Reader<'a> {
    bytes: &'a [u8],
    is_version_1: bool,
}

impl Reader<'_> {
    fn next(&self, at: usize) -> Next {
        let rest = &self.bytes[at..];
        if rest.len() < HEAD_BYTES || rest.iter().all(|&byte| byte == 0) {
            return Next::Torn;
        }
        if let Some(head) = self.head(at) {
            return match rest.get(HEAD_BYTES..HEAD_BYTES + head.length) {
                None => Next::Torn,
                Some(frame) if crc32fast::hash(frame) == head.frame_checksum => Next::Whole(
                    Entry { received: head.received, frame: frame.to_vec() },
                    at + HEAD_BYTES + head.length,
                ),
                Some(_) => Next::Damaged { next: at + HEAD_BYTES + head.length },
            };
        }
        if let Some((entry, end)) = self.entry_v1(at) {
            return Next::Whole(entry, end);
        }
        match self.find(at + 1) {
            Some(next) => Next::Damaged { next },
            None if self.is_torn_v1(at) => Next::Torn,
            None => Next::Damaged { next: self.bytes.len() },
        }
    }

    /// Returns the offset of the first valid head or entry at or after `from`.
    fn find(&self, from: usize) -> Option<usize> {
        (from..self.bytes.len()).find(|&at| self.head(at).is_some() || self.entry_v1(at).is_some())
    }

    /// Returns whether the log begins with a head of version 2 in which only the mark is damaged.
    fn has_head_without_mark(&self) -> bool {
        let head = self.bytes.get(MARK.len()..HEAD_BYTES);
        head.is_some_and(|head| {
            let whole = [MARK.as_slice(), head].concat();
            word(&whole, 20) == Some(head_checksum(0, &whole[..20]))
        })
    }

    /// Returns the head of a version 2 entry at an offset, if it is valid.
    fn head(&self, at: usize) -> Option<Head> {
        if self.is_version_1 {
            return None;
        }
        let head = self.bytes.get(at..at + HEAD_BYTES).filter(|head| head.starts_with(&MARK))?;
        let length = word(head, 4)? as usize;
        let is_right = word(head, 20)? == head_checksum(at as u64, &head[..20]) && length <= MAX_WIRE_BYTES;
        let received = ServerNanos(i64::from_le_bytes(head[8..16].try_into().ok()?));
        is_right.then_some(Head { length, received, frame_checksum: word(head, 16)? })
    }

    /// Returns a complete version 1 entry at an offset and the offset of the next one, if it is valid.
    fn entry_v1(&self, at: usize) -> Option<(Entry, usize)> {
        let (head, frame) = self.head_v1(at)?;
        let length = word(head, 0)? as usize;
        let frame = frame.get(..length)?;
        let mut checksum = crc32fast::Hasher::new();
        checksum.update(&head[8..]);
        checksum.update(frame);
        let received = ServerNanos(i64::from_le_bytes(head[8..].try_into().ok()?));
        let is_right = word(head, 4)? == checksum.finalize();
        is_right.then(|| (Entry { received, frame: frame.to_vec() }, at + HEAD_BYTES_V1 + length))
    }

    /// Splits the bytes at an offset into a version 1 head and the bytes after it, if they look like an entry.
    fn head_v1(&self, at: usize) -> Option<(&[u8], &[u8])> {
        let (head, frame) = self.bytes.get(at..)?.split_at_checked(HEAD_BYTES_V1)?;
        let is_likely = self.is_version_1
            && frame.starts_with(FRAME_MAGIC)
            && word(head, 0).is_some_and(|length| length as usize <= MAX_WIRE_BYTES);
        is_likely.then_some((head, frame))
    }

    /// Returns whether the entry at an offset is probably a torn tail of version 1: its head announces more bytes than
    /// the log has. Heads of version 1 have no checksum, so this is not certain.
    fn is_torn_v1(&self, at: usize) -> bool {
        self.head_v1(at)
            .is_some_and(|(head, frame)| word(head, 0).is_some_and(|length| length as usize > frame.len()))
    }
}

struct Head {
    length: usize,
    received: ServerNanos,
    frame_checksum: u32,
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests;
