//! The spool: batches that the server has not acknowledged, oldest first, within a limit.

use std::collections::VecDeque;

use wire::batch::Note;
use wire::event::EventKind;

/// An encoded batch, with the data that would be lost with it.
pub(crate) struct Frame {
    pub(crate) bytes: Vec<u8>,
    /// The receipt that the server's answer must contain ([`wire::batch::Batch::receipt`]).
    pub(crate) receipt: String,
    pub(crate) events: [u64; EventKind::ALL.len()],
    pub(crate) notes: Vec<Note>,
}

/// The queue of batches.
pub(crate) struct Spool {
    frames: VecDeque<Frame>,
    bytes: usize,
    bound: usize,
}

impl Spool {
    pub(crate) fn new(bound: usize) -> Self {
        Self { frames: VecDeque::new(), bytes: 0, bound }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Adds the newest frame and returns the oldest frames that no longer fit. New records are worth more than old
    /// ones.
    pub(crate) fn push(&mut self, frame: Frame) -> Vec<Frame> {
        self.bytes += frame.bytes.len();
        self.frames.push_back(frame);
        let mut lost = Vec::new();
        while self.bytes > self.bound && self.frames.len() > 1 {
            lost.extend(self.pop());
        }
        lost
    }

    /// Returns the number of records in the spool.
    pub(crate) fn records(&self) -> u64 {
        self.frames.iter().flat_map(|frame| frame.events).sum()
    }

    /// Returns the encoded batches, oldest first.
    pub(crate) fn frames(&self) -> impl DoubleEndedIterator<Item = &[u8]> + Clone {
        self.frames.iter().map(|frame| frame.bytes.as_slice())
    }

    pub(crate) fn front(&self) -> Option<&Frame> {
        self.frames.front()
    }

    pub(crate) fn pop(&mut self) -> Option<Frame> {
        let frame = self.frames.pop_front()?;
        self.bytes -= frame.bytes.len();
        Some(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(size: usize, tag: u64) -> Frame {
        Frame { bytes: vec![0; size], receipt: String::new(), events: [tag, 0, 0, 0], notes: Vec::new() }
    }

    #[test]
    fn the_oldest_frame_is_dropped_first_and_returned_for_counting() {
        let mut spool = Spool::new(100);
        assert!(spool.push(frame(60, 1)).is_empty());
        let lost = spool.push(frame(60, 2));
        assert_eq!(lost.iter().map(|frame| frame.events[0]).collect::<Vec<_>>(), [1]);
        assert_eq!((spool.front().unwrap().events[0], spool.records()), (2, 2));
        assert!(spool.push(frame(40, 3)).is_empty(), "a full spool is within its limit");
        // A single frame larger than the limit is still sent.
        assert_eq!(spool.push(frame(500, 4)).len(), 2);
        assert_eq!(spool.pop().unwrap().events[0], 4);
        assert!(spool.is_empty());
    }
}
