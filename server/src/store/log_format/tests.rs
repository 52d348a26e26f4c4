//! Tests of logs that are cut or damaged at any place.

use proptest::prelude::*;

use super::*;

/// Returns a log with these frames, and the offsets at which its entries end.
fn log(frames: &[Vec<u8>]) -> (Vec<u8>, Vec<usize>) {
    let (mut bytes, mut ends) = (Vec::new(), Vec::new());
    for (i, frame) in frames.iter().enumerate() {
        let at = bytes.len() as u64;
        write_entry(&mut bytes, at, ServerNanos(i as i64), frame);
        ends.push(bytes.len());
    }
    (bytes, ends)
}

fn frames() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::vec(prop::collection::vec(any::<u8>(), 12..40), 1..8)
}

fn read_frames(contents: &Contents) -> Vec<Vec<u8>> {
    contents.entries.iter().map(|entry| entry.frame.clone()).collect()
}

proptest! {
    /// A crash cuts a log at any byte: every entry before the cut is read, the rest is torn, and nothing counts as
    /// damage.
    #[test]
    fn a_cut_log_is_read_up_to_the_cut(frames in frames(), cut in any::<prop::sample::Index>()) {
        let (mut bytes, ends) = log(&frames);
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
        mut frames in frames(),
        at in any::<prop::sample::Index>(),
        flip in 1_u8..,
    ) {
        let (mut bytes, ends) = log(&frames);
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        let spoilt = ends.iter().filter(|&&end| end <= at).count();
        let contents = read(&bytes);
        frames.remove(spoilt);
        prop_assert_eq!(read_frames(&contents), frames);
        let begin = if spoilt == 0 { 0 } else { ends[spoilt - 1] };
        let gap = Gap { at: begin as u64, bytes: (ends[spoilt] - begin) as u64 };
        prop_assert_eq!(contents.gaps, vec![gap]);
        prop_assert_eq!(contents.torn, 0);
    }
}

/// The bytes of a released version never change.
#[test]
fn version_1_is_pinned() {
    let (bytes, _) = log(&[b"PCLB one".to_vec(), b"".to_vec()]);
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        hex,
        "b6504c31080000000000000000000000a872513a8e48e71a50434c42206f6e65b6504c31000000000100000000000000000000007d00e87e"
    );
    assert_eq!(read_frames(&read(&bytes)), [b"PCLB one".to_vec(), b"".to_vec()]);
}

/// A damaged byte of the first mark does not make a log one of another version.
#[test]
fn another_version_is_told_from_damage() {
    let (bytes, ends) = log(&[b"PCLB one".to_vec(), b"PCLB two".to_vec()]);
    assert!(!is_of_other_version(&bytes));
    for other in [b'0', b'2'] {
        let mut log = bytes.clone();
        log[3] = other;
        assert!(!is_of_other_version(&log), "its second entry is of version 1");
        log[ends[0] + 3] = other;
        assert!(is_of_other_version(&log));
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
