//! Queues that give back the memory that they no longer need. One batch may close 65,536 steps, and thousands of runs may each
//! have had one such batch.

use std::collections::VecDeque;

/// The length up to which a queue keeps its memory.
const KEPT_ROOM: usize = 64;

/// Takes the oldest entry. A queue that is much shorter than it was gives memory back.
pub(super) fn pop<T>(queue: &mut VecDeque<T>) -> Option<T> {
    let oldest = queue.pop_front();
    let needed = queue.len().max(KEPT_ROOM);
    if queue.capacity() / 4 > needed {
        queue.shrink_to(2 * needed);
    }
    oldest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_was_long_gives_its_memory_back_and_keeps_its_order() {
        let mut queue: VecDeque<usize> = (0..65_536).collect();
        for expected in 0..65_000 {
            assert_eq!(pop(&mut queue), Some(expected));
        }
        assert!(queue.capacity() <= 4 * queue.len(), "room for {} entries", queue.capacity());
        while pop(&mut queue).is_some() {}
        assert!(queue.capacity() <= 4 * KEPT_ROOM, "room for {} entries", queue.capacity());
    }

    #[test]
    fn a_short_queue_keeps_its_memory() {
        let mut queue: VecDeque<usize> = VecDeque::with_capacity(KEPT_ROOM);
        queue.push_back(1);
        assert_eq!((pop(&mut queue), pop(&mut queue)), (Some(1), None));
        assert!(queue.capacity() >= KEPT_ROOM);
    }
}
