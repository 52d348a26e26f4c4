//! Sends and receives: each is told by both its ranks, and joined by what both know, who sends, who receives, and the
//! how manieth it is between the two. Where a rank exchanges something with every other at once, which is how an
//! all-to-all is made of them, that is one collective.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use wire::event::Function;

use crate::collect::{Collective, Ran};
use crate::table::{Table, mixed};

/// Below this, all others are one neighbour, with whom the stages of a pipeline exchange as well.
const LEAST_EXCHANGE: u32 = 3;

/// What one rank says of values that it sends to another, or receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who sends, by its rank in the communicator.
    pub from: u32,
    /// Who receives.
    pub to: u32,
    /// The how manieth from the one to the other, from 0 on.
    pub seq: u32,
    /// Messages of one communicator with equal numbers, one after the other, run together.
    pub batch: u16,
    /// Told by the one who sends.
    pub is_sent: bool,
}

/// Messages by their way and end: those of some sixty communicators of 64 ranks.
static COUNTS: Table<8_192> = Table::new();

thread_local! {
    static BATCH: Cell<u16> = const { Cell::new(0) };
}

impl Message {
    /// What this thread numbers from now on runs together, and apart from what it numbered before.
    pub(crate) fn begin_batch() {
        BATCH.set(BATCH.get().wrapping_add(1));
    }

    /// Numbers a message. Whoever counts only what is recorded is out of step with the other end once something is
    /// not. `None` for one to oneself, which is a copy, and where there are too many ways to count.
    pub(crate) fn next(communicator: u64, (from, to): (u32, u32), is_sent: bool) -> Option<Self> {
        let message = Self { from, to, seq: 0, batch: BATCH.get(), is_sent };
        let count = COUNTS.of(message.way(communicator) ^ u64::from(is_sent)).filter(|_| from != to)?;
        Some(Self { seq: count.fetch_add(1, Ordering::Relaxed) as u32, ..message })
    }

    /// The number that both ranks know the way from the one to the other by: no other pair has it, whatever its
    /// communicator.
    #[must_use]
    pub fn way(&self, communicator: u64) -> u64 {
        mixed(communicator ^ mixed((u64::from(self.from) << 32) | u64::from(self.to)))
    }
}

/// A message that is over; `ran` is `None` where nothing was told of its kernel.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) message: Message,
    pub(crate) collective: Collective,
    pub(crate) ran: Option<Ran>,
}

/// What was told of messages that ran together, of a communicator with so many ranks, if that is known: one
/// all-to-all, or each by itself.
pub(crate) fn together(messages: Vec<Told>, size: Option<u32>) -> Vec<Collective> {
    if size.is_some_and(|size| is_exchange(&messages, size))
        && let Some(exchange) = exchange(&messages)
    {
        return vec![exchange];
    }
    let by_itself = |Told { message, collective, ran }: Told| {
        let communicator = message.way(collective.communicator);
        Some(Collective { communicator, ran: ran?, ..collective })
    };
    messages.into_iter().filter_map(by_itself).collect()
}

/// One message to, and one from, each of the others.
fn is_exchange(messages: &[Told], size: u32) -> bool {
    let mut ways: Vec<(u32, u32)> =
        messages.iter().map(|told| (told.message.from, told.message.to)).collect();
    ways.sort_unstable();
    ways.dedup();
    size >= LEAST_EXCHANGE && ways.len() == messages.len() && ways.len() == 2 * (size as usize - 1)
}

/// From the first begin to the last end.
fn exchange(messages: &[Told]) -> Option<Collective> {
    let first = messages.first()?.collective;
    let sent = messages.iter().filter(|told| told.message.is_sent);
    Some(Collective {
        function: Function::AllToAll,
        // Equal on all ranks as long as a communicator does nothing else.
        seq: messages.iter().map(|told| told.collective.seq).max()?,
        bytes: sent.map(|told| told.collective.bytes).sum(),
        ran: messages.iter().filter_map(|told| told.ran).reduce(Ran::joined)?,
        is_sent: false,
        ..first
    })
}

#[cfg(test)]
mod tests {
    use wire::clock::MonoNanos;

    use super::*;

    const COMMUNICATOR: u64 = 7;

    /// Of rank 1, in the first batch.
    fn told(peer: u32, is_sent: bool, bytes: u64, [begin, end]: [u64; 2]) -> Told {
        let (from, to) = if is_sent { (1, peer) } else { (peer, 1) };
        let ran = Ran::Gpu { begin, end };
        let collective = Collective {
            communicator: COMMUNICATOR,
            function: Function::SendReceive,
            seq: 4,
            bytes,
            launch: MonoNanos(1),
            ran,
            is_sent,
            begins: false,
        };
        Told { message: Message { from, to, seq: 4, batch: 0, is_sent }, collective, ran: Some(ran) }
    }

    fn with_all() -> Vec<Told> {
        vec![
            told(0, true, 10, [20, 30]),
            told(0, false, 100, [20, 50]),
            told(2, true, 20, [15, 30]),
            told(2, false, 200, [20, 40]),
        ]
    }

    #[test]
    fn with_every_other_rank_at_once_it_is_an_all_to_all() {
        let [one] = together(with_all(), Some(3)).try_into().expect("one collective");
        let expected = Collective {
            function: Function::AllToAll,
            bytes: 30,
            ran: Ran::Gpu { begin: 15, end: 50 },
            ..told(0, false, 0, [0, 0]).collective
        };
        assert_eq!(one, expected);
    }

    #[test]
    fn with_some_ranks_or_with_one_several_times_each_message_is_by_itself() {
        let mut twice = with_all();
        twice[3] = told(2, true, 20, [15, 30]);
        for (messages, size) in
            [(with_all(), Some(4)), (with_all(), None), (twice, Some(3)), (with_all(), Some(2))]
        {
            let found = together(messages, size);
            assert_eq!(found.len(), 4, "of {size:?}");
            assert!(found.iter().all(|one| one.function == Function::SendReceive));
        }
    }

    #[test]
    fn both_ranks_know_a_way_by_one_number_and_the_way_back_by_another() {
        let of = |from, to, is_sent| Message { from, to, seq: 0, batch: 3, is_sent }.way(COMMUNICATOR);
        assert_eq!(of(1, 2, true), of(1, 2, false));
        assert_ne!(of(1, 2, true), of(2, 1, true));
        assert_ne!(of(1, 2, true), Message { from: 1, to: 2, seq: 0, batch: 3, is_sent: true }.way(8));
    }

    #[test]
    fn a_message_of_whose_kernel_nothing_was_told_is_left_out() {
        let mut some = with_all();
        some[1].ran = None;
        assert_eq!(together(some, None).len(), 3);
        let mut some = with_all();
        some[1].ran = None;
        assert_eq!(together(some, Some(3))[0].ran, Ran::Gpu { begin: 15, end: 40 });
    }
}
