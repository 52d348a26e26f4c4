//! Assembles collectives from messages. When a rank exchanges a message with every other rank at once, as in an
//! all-to-all, the messages are joined into one collective.

use wire::event::Function;

use crate::infer::collective::{Collective, Ran};
use crate::message::Message;

/// The smallest communicator in which an exchange with all other ranks counts as an all-to-all. With two ranks, it
/// looks the same as an exchange between stages of a pipeline.
const MIN_EXCHANGE: u32 = 3;

/// A finished message; `ran` is `None` if its kernel was not reported.
#[derive(Debug)]
pub(crate) struct FinishedMessage {
    pub(crate) message: Message,
    pub(crate) collective: Collective,
    pub(crate) ran: Option<Ran>,
}

/// Joins messages that ran together, on a communicator of `size` ranks if that is known. Returns one all-to-all, or
/// each message as a collective of its own.
pub(crate) fn together(messages: Vec<FinishedMessage>, size: Option<u32>) -> Vec<Collective> {
    if size.is_some_and(|size| is_exchange(&messages, size))
        && let Some(exchange) = exchange(&messages)
    {
        return vec![exchange];
    }
    let by_itself = |FinishedMessage { message, collective, ran }: FinishedMessage| {
        let communicator = message.link(collective.communicator);
        Some(Collective { communicator, ran: ran?, ..collective })
    };
    messages.into_iter().filter_map(by_itself).collect()
}

/// Returns whether the rank sends one message to, and receives one from, every other rank.
fn is_exchange(messages: &[FinishedMessage], size: u32) -> bool {
    let mut ways: Vec<(u32, u32)> =
        messages.iter().map(|matched| (matched.message.from, matched.message.to)).collect();
    ways.sort_unstable();
    ways.dedup();
    size >= MIN_EXCHANGE && ways.len() == messages.len() && ways.len() == 2 * (size as usize - 1)
}

/// Joins messages into one all-to-all, from the first start to the last end.
fn exchange(messages: &[FinishedMessage]) -> Option<Collective> {
    let first = messages.first()?.collective;
    let sent = messages.iter().filter(|matched| matched.message.is_sent);
    Some(Collective {
        function: Function::AllToAll,
        // The same on all ranks as long as the communicator does nothing else.
        seq: messages.iter().map(|matched| matched.collective.seq).max()?,
        bytes: sent.map(|matched| matched.collective.bytes).sum(),
        ran: messages.iter().filter_map(|matched| matched.ran).reduce(Ran::joined)?,
        is_sent: false,
        ..first
    })
}

#[cfg(test)]
mod tests {
    use wire::clock::MonoNanos;

    use super::*;

    const COMMUNICATOR: u64 = 7;

    /// Builds a message of rank 1, in the first batch.
    fn finished(peer: u32, is_sent: bool, bytes: u64, [begin, end]: [u64; 2]) -> FinishedMessage {
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
            begins: None,
        };
        FinishedMessage {
            message: Message { from, to, seq: 4, batch: 0, is_sent },
            collective,
            ran: Some(ran),
        }
    }

    fn with_all() -> Vec<FinishedMessage> {
        vec![
            finished(0, true, 10, [20, 30]),
            finished(0, false, 100, [20, 50]),
            finished(2, true, 20, [15, 30]),
            finished(2, false, 200, [20, 40]),
        ]
    }

    #[test]
    fn messages_with_every_other_rank_at_once_are_one_all_to_all() {
        let [all_to_all] = together(with_all(), Some(3)).try_into().expect("one collective");
        let expected = Collective {
            function: Function::AllToAll,
            bytes: 30,
            ran: Ran::Gpu { begin: 15, end: 50 },
            ..finished(0, false, 0, [0, 0]).collective
        };
        assert_eq!(all_to_all, expected);
    }

    #[test]
    fn messages_with_some_ranks_or_twice_with_one_rank_stay_separate() {
        let mut twice = with_all();
        twice[3] = finished(2, true, 20, [15, 30]);
        for (messages, size) in
            [(with_all(), Some(4)), (with_all(), None), (twice, Some(3)), (with_all(), Some(2))]
        {
            let found = together(messages, size);
            assert_eq!(found.len(), 4, "size {size:?}");
            assert!(found.iter().all(|joined| joined.function == Function::SendReceive));
        }
    }

    #[test]
    fn both_ranks_number_a_link_alike_and_its_reverse_differently() {
        let link = |from, to, is_sent| Message { from, to, seq: 0, batch: 3, is_sent }.link(COMMUNICATOR);
        assert_eq!(link(1, 2, true), link(1, 2, false));
        assert_ne!(link(1, 2, true), link(2, 1, true));
        assert_ne!(link(1, 2, true), Message { from: 1, to: 2, seq: 0, batch: 3, is_sent: true }.link(8));
    }

    #[test]
    fn a_message_without_a_reported_kernel_is_left_out() {
        let mut some = with_all();
        some[1].ran = None;
        assert_eq!(together(some, None).len(), 3);
        let mut some = with_all();
        some[1].ran = None;
        assert_eq!(together(some, Some(3))[0].ran, Ran::Gpu { begin: 15, end: 40 });
    }
}
