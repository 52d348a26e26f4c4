//! The format of a log, and what remains readable after damage.
//!
//! ```text
//! mark:4 length:u32 received:i64 frame_crc32:u32 head_crc32:u32 frame      little endian throughout
//! ```
//!
//! A log is a sequence of entries of one version, which their marks name. The head's checksum covers the entry's offset in
//! the file and the head before the checksum, so bytes that were an entry at another offset do not count as an entry. Since
//! a head can be trusted without its frame, a crash is distinguished from damage:
//!
//! - A *torn tail* is one of three things: an entry whose valid head announces more bytes than the file has, fewer
//!   bytes than any entry has, or zeros up to the end. Its write was never finished, so it was never acknowledged.
//! - All other bytes that do not match their checksum are *damage*. Reading resumes at the next valid entry.

use wire::batch::MAX_WIRE_BYTES;
use wire::clock::ServerNanos;

/// The first bytes of each entry. The last one is the version.
const MARK: [u8; 4] = *b"\xb6PL1";
const HEAD_BYTES: usize = 24;

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
    let mut contents = Contents::default();
    let mut at = 0;
    while at < bytes.len() {
        match next(bytes, at) {
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

/// Returns whether these are the bytes of a log in another version of this format.
#[must_use]
pub fn is_of_other_version(bytes: &[u8]) -> bool {
    let others = bytes.get(..MARK.len()).filter(|mark| mark[..3] == MARK[..3] && mark[3] != MARK[3]);
    others.is_some_and(|mark| mark[3].is_ascii_digit()) && read(bytes).entries.is_empty()
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

fn next(bytes: &[u8], at: usize) -> Next {
    let rest = &bytes[at..];
    if rest.len() < HEAD_BYTES || rest.iter().all(|&byte| byte == 0) {
        return Next::Torn;
    }
    let Some(head) = head(bytes, at) else {
        let next = (at + 1..bytes.len()).find(|&at| self::head(bytes, at).is_some());
        return Next::Damaged { next: next.unwrap_or(bytes.len()) };
    };
    let end = at + HEAD_BYTES + head.length;
    match bytes.get(at + HEAD_BYTES..end) {
        None => Next::Torn,
        Some(frame) if crc32fast::hash(frame) == head.frame_checksum => {
            Next::Whole(Entry { received: head.received, frame: frame.to_vec() }, end)
        }
        Some(_) => Next::Damaged { next: end },
    }
}

/// Returns the head of an entry at an offset, if it is valid.
fn head(bytes: &[u8], at: usize) -> Option<Head> {
    let head = bytes.get(at..at + HEAD_BYTES).filter(|head| head.starts_with(&MARK))?;
    let length = word(head, 4)? as usize;
    let is_right = word(head, 20)? == head_checksum(at as u64, &head[..20]) && length <= MAX_WIRE_BYTES;
    let received = ServerNanos(i64::from_le_bytes(head[8..16].try_into().ok()?));
    is_right.then_some(Head { length, received, frame_checksum: word(head, 16)? })
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
