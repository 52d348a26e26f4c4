//! Fuzzes logs. After any damage each byte belongs to an entry, a gap or the torn tail, and only
//! entries are read that were written at their place.

use std::collections::BTreeSet;

use fuzz::{Corpus, Verdict};
use paceline::store::log_format::{Contents, read, write_entry};
use wire::clock::ServerNanos;

use super::{CORPUS, STORED, ensure, word};

const MARK: &[u8] = b"\xb6PL1";
const HEAD: usize = 24;

fn corpus() -> Corpus {
    Corpus::files(STORED, ".plog").and(Corpus::folder(format!("{CORPUS}/log")))
}

fn checksum(parts: &[&[u8]]) -> u32 {
    let mut checksum = crc32fast::Hasher::new();
    parts.iter().for_each(|part| checksum.update(part));
    checksum.finalize()
}

/// Reads the entry at an offset independently of the code under test. Returns the entry's time, frame and length.
fn entry_at(bytes: &[u8], at: usize) -> Option<(i64, &[u8], usize)> {
    let rest = bytes.get(at..)?;
    let end = HEAD.checked_add(word(rest, 4)? as usize)?;
    let (frame, time) = (rest.get(HEAD..end)?, rest.get(8..16)?);
    let is_right = rest.starts_with(MARK)
        && word(rest, 16)? == checksum(&[frame])
        && word(rest, 20)? == checksum(&[&(at as u64).to_le_bytes(), &rest[..20]]);
    is_right.then(|| (i64::from_le_bytes(time.try_into().expect("eight bytes")), frame, end))
}

/// Recomputes checksums of heads, of frames, or of both, so that the code after their verification is reached.
fn repair(bytes: &mut [u8], choice: u64) {
    let (heads, frames) = (choice & 1 != 0, choice & 2 != 0);
    let mut at = 0;
    while at + HEAD <= bytes.len() {
        let mark = bytes[at..].windows(MARK.len()).position(|window| window == MARK);
        let Some(found) = mark.map(|mark| at + mark).filter(|found| found + HEAD <= bytes.len()) else {
            return;
        };
        let length = word(bytes, found + 4).unwrap_or(0) as usize;
        let frame =
            bytes.get(found + HEAD..(found + HEAD).saturating_add(length)).map(|frame| checksum(&[frame]));
        if let (true, Some(sum)) = (frames, frame) {
            bytes[found + 16..found + 20].copy_from_slice(&sum.to_le_bytes());
        }
        if heads {
            let sum = checksum(&[&(found as u64).to_le_bytes(), &bytes[found..found + 20]]);
            bytes[found + 20..found + 24].copy_from_slice(&sum.to_le_bytes());
        }
        at = found + if frame.is_some() { HEAD + length } else { MARK.len() };
    }
}

/// Checks that entries, gaps and the torn tail cover all bytes in order, without overlap.
fn covers(bytes: &[u8], contents: &Contents) -> Verdict {
    let (mut at, mut gaps, mut entries) = (0, contents.gaps.iter().peekable(), contents.entries.iter());
    loop {
        if let Some(gap) = gaps.next_if(|gap| gap.at == at as u64) {
            ensure(gap.bytes > 0, || format!("an empty gap at {at}"))?;
            at += gap.bytes as usize;
        } else if let Some(entry) = entries.next() {
            let found = entry_at(bytes, at);
            let Some((time, frame, length)) = found else { return Err(format!("no entry lies at {at}")) };
            ensure((ServerNanos(time), frame) == (entry.received, &entry.frame), || {
                format!("another entry at {at}")
            })?;
            at += length;
        } else {
            break;
        }
    }
    ensure(gaps.next().is_none(), || "gaps are out of order or overlap".into())?;
    let end = at as u64 + contents.torn;
    ensure(end == bytes.len() as u64, || format!("{end} bytes of {} are accounted for", bytes.len()))
}

/// Checks that the entries can be written and read again.
fn survives(contents: &Contents) -> Verdict {
    let mut bytes = Vec::new();
    for entry in &contents.entries {
        let at = bytes.len() as u64;
        write_entry(&mut bytes, at, entry.received, &entry.frame);
    }
    let again = read(&bytes);
    ensure(again.entries == contents.entries && again.gaps.is_empty() && again.torn == 0, || {
        format!("written again: {again:?}")
    })
}

#[test]
fn damaged_logs_are_accounted_for_byte_by_byte() {
    let corpus = corpus();
    let mut written = BTreeSet::new();
    for (_, bytes) in corpus.entries() {
        for entry in read(bytes).entries {
            written.insert((entry.received, entry.frame));
        }
    }
    assert!(written.len() > 20, "the corpus has only {} entries", written.len());
    corpus.check("log", 12_000, |bytes, choice| {
        let mut bytes = bytes.to_vec();
        let is_repaired = !choice.is_multiple_of(4);
        repair(&mut bytes, choice % 4);
        let contents = read(&bytes);
        covers(&bytes, &contents)?;
        survives(&contents)?;
        for entry in &contents.entries {
            // A frame may hold anything a sender wrote. Decoding must not panic.
            let _batch = wire::codec::decode(&entry.frame);
            let is_known = written.contains(&(entry.received, entry.frame.clone()));
            ensure(is_repaired || is_known, || format!("an entry that was never written: {entry:?}"))?;
        }
        Ok(())
    });
}

/// A frame may hold anything, even an entry. Its head is made for another offset, also if the head before it is damaged.
#[test]
fn an_entry_inside_a_frame_is_never_read() {
    let mut hostile = Vec::new();
    write_entry(&mut hostile, 0, ServerNanos(7), b"PCLB of another rank");
    for others in 0..3 {
        let mut log = Vec::new();
        for frame in std::iter::once(&hostile[..]).chain(std::iter::repeat_n(&b"PCLB good"[..], others)) {
            let at = log.len() as u64;
            write_entry(&mut log, at, ServerNanos(1), frame);
        }
        for at in 0..HEAD {
            let mut spoilt = log.clone();
            spoilt[at] ^= 0x10;
            let contents = read(&spoilt);
            let frames: Vec<_> = contents.entries.iter().map(|entry| entry.frame.as_slice()).collect();
            assert_eq!(frames, vec![&b"PCLB good"[..]; others], "byte {at} damaged, {others} entries follow");
        }
    }
}
