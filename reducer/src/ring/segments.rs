//! The arithmetic of an all-reduce around the ring.

use std::ops::Range;

/// A position in the stream of segments: the number of whole segments, and the number of bytes of the next one.
#[derive(Clone, Copy, Default)]
pub(super) struct Cursor {
    pub(super) step: usize,
    pub(super) bytes: usize,
}

/// The division of an all-reduce's buffer into one segment per rank.
///
/// In step `i` a rank sends segment `rank - i` and receives segment `rank - 1 - i`. It sends in each step the segment
/// that it received in the previous one. The first `ranks - 1` steps add; the other steps copy the finished sums.
#[derive(Clone, Copy)]
pub(super) struct Segments {
    pub(super) floats: usize,
    pub(super) ranks: usize,
    pub(super) rank: usize,
}

impl Segments {
    pub(super) fn steps(self) -> usize {
        2 * (self.ranks - 1)
    }

    pub(super) fn sent_in(self, step: usize) -> Range<usize> {
        self.range((self.rank + 2 * self.ranks - step) % self.ranks)
    }

    pub(super) fn received_in(self, step: usize) -> Range<usize> {
        self.range((self.rank + 2 * self.ranks - 1 - step) % self.ranks)
    }

    fn range(self, segment: usize) -> Range<usize> {
        let (base, extra) = (self.floats / self.ranks, self.floats % self.ranks);
        let start = |segment: usize| segment * base + segment.min(extra);
        start(segment)..start(segment + 1)
    }
}

pub(super) fn bytes_of(range: &Range<usize>) -> usize {
    range.len() * size_of::<f32>()
}

/// Moves `at` past finished segments, including empty ones.
pub(super) fn skip_whole(at: &mut Cursor, segment_bytes: impl Fn(usize) -> usize, steps: usize) {
    while at.step < steps && at.bytes == segment_bytes(at.step) {
        *at = Cursor { step: at.step + 1, bytes: 0 };
    }
}

/// Returns the number of bytes of the current segment that may be sent: all in the first step, and as many as were
/// received in later steps.
pub(super) fn sendable(segments: Segments, sent: Cursor, received: Cursor) -> usize {
    if sent.step == segments.steps() {
        return 0;
    }
    let available = match sent.step.checked_sub(1) {
        Some(before) if received.step == before => received.bytes,
        Some(before) if received.step < before => 0,
        _ => bytes_of(&segments.sent_in(sent.step)),
    };
    available.saturating_sub(sent.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the streams of all ranks in turns of at most `piece` bytes and checks the result of every rank.
    fn check(floats: usize, ranks: usize, piece: usize) {
        let plan = |rank| Segments { floats, ranks, rank };
        let mut data: Vec<Vec<u32>> = (0..ranks).map(|rank| vec![1 << rank; floats]).collect();
        let (mut sent, mut received) = (vec![Cursor::default(); ranks], vec![Cursor::default(); ranks]);
        for turn in 0.. {
            assert!(turn < 10_000, "no progress: {floats} floats, {ranks} ranks, pieces of {piece}");
            for rank in 0..ranks {
                skip_whole(&mut sent[rank], |step| bytes_of(&plan(rank).sent_in(step)), plan(rank).steps());
                let next = (rank + 1) % ranks;
                skip_whole(
                    &mut received[next],
                    |step| bytes_of(&plan(next).received_in(step)),
                    plan(next).steps(),
                );
                let bytes = sendable(plan(rank), sent[rank], received[rank]).min(piece) / 4 * 4;
                if bytes == 0 {
                    continue;
                }
                let segment = plan(rank).sent_in(sent[rank].step);
                assert_eq!(segment, plan(next).received_in(received[next].step));
                let start = segment.start + sent[rank].bytes / 4;
                let piece = data[rank][start..start + bytes / 4].to_vec();
                let adds = sent[rank].step < ranks - 1;
                for (sum, value) in data[next][start..].iter_mut().zip(piece) {
                    *sum = if adds { *sum + value } else { value };
                }
                sent[rank].bytes += bytes;
                received[next].bytes += bytes;
                skip_whole(
                    &mut received[next],
                    |step| bytes_of(&plan(next).received_in(step)),
                    plan(next).steps(),
                );
            }
            if (0..ranks).all(|rank| received[rank].step == plan(rank).steps()) {
                break;
            }
        }
        assert!(data.iter().flatten().all(|sum| *sum == (1 << ranks) - 1), "{floats} floats, {ranks} ranks");
    }

    #[test]
    fn every_element_is_summed_once_and_reaches_all() {
        for ranks in 2..7 {
            for floats in [0, 1, ranks - 1, ranks, ranks + 1, 50, 97] {
                for piece in [4, 12, 1_000] {
                    check(floats, ranks, piece);
                }
            }
        }
    }
}
