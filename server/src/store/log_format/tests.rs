//! Tests of logs that are cut or damaged at any place.

use proptest::prelude::*;

use super::*;

/// Returns a log of version 2 with these frames, and the offsets at which its entries end.
fn log(frames: &[Vec<u8>]) -> (Vec<u8>, Vec<usize>) {
    let (mut bytes, mut ends) = (Vec::new(), Vec::new());
    for (i, frame) in frames.iter().enumerate() {
        let at = bytes.len() as u64;
        write_entry(&mut bytes, at, ServerNanos(i as i64), frame);
        ends.push(bytes.len());
    }
    (bytes, ends)
}

/// Returns the same log in version 1. Frames must begin with the magic, because version 1 entries have no mark.
fn log_v1(frames: &[Vec<u8>]) -> (Vec<u8>, Vec<usize>) {
    let (mut bytes, mut ends) = (Vec::new(), Vec::new());
    for (i, frame) in frames.iter().enumerate() {
        let time = (i as i64).to_le_bytes();
        let covered = [time.as_slice(), frame].concat();
        bytes.extend_from_slice(&(frame.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&crc32fast::hash(&covered).to_le_bytes());
        bytes.extend_from_slice(&covered);
        ends.push(bytes.len());
    }
    (bytes, ends)
}

fn frames() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let frame = prop::collection::vec(any::<u8>(), 12..40);
    let frame = frame.prop_map(|rest| [FRAME_MAGIC, &rest].concat());
    prop::collection::vec(frame, 1..8)
}

fn read_frames(contents: &Contents) -> Vec<Vec<u8>> {
    contents.entries.iter().map(|entry| entry.frame.clone()).collect()
}

/// Damages a byte of a log whose entries end at `ends`. Returns the index of the entry with the byte, and the content
/// that is read then.
fn spoilt(mut bytes: Vec<u8>, ends: &[usize], at: prop::sample::Index, flip: u8) -> (usize, Contents) {
    let at = at.index(bytes.len());
    bytes[at] ^= flip;
    (ends.iter().filter(|&&end| end <= at).count(), read(&bytes))
}

/// Returns all frames except one.
fn without(mut frames: Vec<Vec<u8>>, entry: usize) -> Vec<Vec<u8>> {
    frames.remove(entry);
    frames
}

proptest! {
    /// A crash cuts a log at any byte: every entry before the cut is read, the rest is torn, and nothing counts as
    /// damage.
    #[test]
    fn a_cut_log_is_read_up_to_the_cut(frames in frames(), cut in any::<prop::sample::Index>(), old: bool) {
        let (mut bytes, ends) = if old { log_v1(&frames) } else { log(&frames) };
        let cut = cut.index(bytes.len() + 1);
        bytes.truncate(cut);
        let whole = ends.iter().filter(|&&end| end <= cut).count();
        let contents = read(&bytes);
        prop_assert_eq!(read_frames(&contents), &frames[..whole]);
        prop_assert_eq!(contents.gaps, vec![]);
        prop_assert_eq!(contents.torn as usize, cut - ends[..whole].last().unwrap_or(&0));
    }

    /// Whichever byte is damaged, only its entry is lost, and the loss is reported.
    #[test]
    fn a_damaged_byte_costs_one_entry_and_is_reported(
        frames in frames(),
        at in any::<prop::sample::Index>(),
        flip in 1_u8..,
    ) {
        let (bytes, ends) = log(&frames);
        let (spoilt, contents) = spoilt(bytes, &ends, at, flip);
        prop_assert_eq!(read_frames(&contents), without(frames, spoilt));
        let begin = if spoilt == 0 { 0 } else { ends[spoilt - 1] };
        let gap = Gap { at: begin as u64, bytes: (ends[spoilt] - begin) as u64 };
        prop_assert_eq!(contents.gaps, vec![gap]);
        prop_assert_eq!(contents.torn, 0);
    }

    /// The same holds for version 1, except that a damaged length in the last entry looks like a torn tail.
    #[test]
    fn a_damaged_byte_in_an_old_log_costs_one_entry(
        frames in frames(),
        at in any::<prop::sample::Index>(),
        flip in 1_u8..,
    ) {
        let (bytes, ends) = log_v1(&frames);
        let (spoilt, contents) = spoilt(bytes, &ends, at, flip);
        prop_assert_eq!(read_frames(&contents), without(frames, spoilt));
        prop_assert!(contents.gaps.len() == 1 || spoilt + 1 == ends.len());
    }
}

#[test]
fn an_entry_at_another_offset_is_damage() {
    let (bytes, ends) = log(&[b"PCLB one".to_vec(), b"PCLB two".to_vec()]);
    let moved = [&bytes[..ends[0]], &bytes[..ends[0]]].concat();
    let contents = read(&moved);
    assert_eq!(contents.entries.len(), 1);
    assert_eq!(contents.gaps, [Gap { at: ends[0] as u64, bytes: ends[0] as u64 }]);
}

#[test]
fn zeros_at_the_end_are_a_torn_tail() {
    let (mut bytes, ends) = log(&[b"PCLB one".to_vec()]);
    bytes.resize(ends[0] + 4_096, 0);
    let contents = read(&bytes);
    assert_eq!((contents.entries.len(), contents.gaps.len(), contents.torn), (1, 0, 4_096));
}
