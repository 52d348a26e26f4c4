//! How an all-reduce runs around the ring: pure arithmetic.

use std::ops::Range;

/// A place in the stream of segments: so many whole ones, and so many bytes of the one after.
#[derive(Clone, Copy, Default)]
pub(super) struct Cursor {
    pub(super) step: usize,
    pub(super) bytes: usize,
}

/// How an all-reduce cuts its buffer: one segment a rank.
///
/// In step `i` a rank sends segment `rank - i` and receives segment `rank - 1 - i`: what it received in one
/// step is what it sends in the next. The first `ranks - 1` steps add, the others copy the finished sums.
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
        let (each, extra) = (self.floats / self.ranks, self.floats % self.ranks);
        let start = |segment: usize| segment * each + segment.min(extra);
        start(segment)..start(segment + 1)
    }
}

pub(super) fn bytes_of(range: &Range<usize>) -> usize {
    range.len() * size_of::<f32>()
}

/// Moves `at` over segments that are done, empty ones among them.
pub(super) fn skip_whole(at: &mut Cursor, segment_bytes: impl Fn(usize) -> usize, steps: usize) {
    while at.step < steps && at.bytes == segment_bytes(at.step) {
        *at = Cursor { step: at.step + 1, bytes: 0 };
    }
}

/// How many bytes of the current segment may be sent: in the first step all, later what was received of it.
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

    /// Runs the stream of all ranks in turns of at most `piece` bytes and checks who ends up with what.
    fn check(floats: usize, ranks: usize, piece: usize) {
        let plan = |rank| Segments { floats, ranks, rank };
        let mut data: Vec<Vec<u32>> = (0..ranks).map(|rank| vec![1 << rank; floats]).collect();
        let (mut sent, mut received) = (vec![Cursor::default(); ranks], vec![Cursor::default(); ranks]);
        for turn in 0.. {
            assert!(turn < 10_000, "it stands still: {floats} floats, {ranks} ranks, pieces of {piece}");
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
                for (into, value) in data[next][start..].iter_mut().zip(piece) {
                    *into = if adds { *into + value } else { value };
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
