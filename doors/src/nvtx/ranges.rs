//! Ranges that are open on a thread, and what they leave behind when they end.

use std::cell::RefCell;

use wire::clock::MonoNanos;

use super::payload::Said;
use super::words::Meaning;
use crate::marks;
use crate::observer::{self, Communicator, Door};
use crate::table::Table;
use crate::trail::{self, Entry, Handle, Kind, Phase, Seat};

/// Ranges inside each other that are kept; deeper ones are counted, so that each end finds its own.
const MOST_DEEP: usize = 64;

/// A domain, by a number of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Domain(pub(super) usize);

impl Domain {
    /// Ranges without one.
    pub(super) const DEFAULT: Self = Self(0);
    /// NCCL's.
    pub(super) const NCCL: Self = Self(1);
}

/// What a range is while it is open.
#[derive(Clone, Copy)]
enum Open {
    Nothing,
    Phase(Phase, MonoNanos),
    Call(Handle),
}

struct Stack {
    open: [(Domain, Open); MOST_DEEP],
    depth: usize,
}

thread_local! {
    static STACK: RefCell<Stack> =
        const { RefCell::new(Stack { open: [(Domain::DEFAULT, Open::Nothing); MOST_DEEP], depth: 0 }) };
}

/// Calls by communicator.
static COUNTS: Table = Table::new();

/// A range begins; how many were open before.
pub(super) fn push(domain: Domain, meaning: Meaning, said: Said) -> usize {
    let at = agent::clock::now();
    let opened = match meaning {
        Meaning::Nothing => Open::Nothing,
        // Other threads prepare input while the main one computes.
        Meaning::Phase(phase) if is_main_thread() => Open::Phase(phase, at),
        Meaning::Phase(_) => Open::Nothing,
        Meaning::Call(function) => called(function, said, at).map_or(Open::Nothing, Open::Call),
    };
    STACK
        .try_with(|stack| {
            let Ok(mut stack) = stack.try_borrow_mut() else { return 0 };
            let depth = stack.depth;
            let is_inside = |open: &(Domain, Open)| {
                matches!(open.1, Open::Phase(..)) && matches!(opened, Open::Phase(..))
            };
            let opened =
                if stack.open[..depth.min(MOST_DEEP)].iter().any(is_inside) { Open::Nothing } else { opened };
            if let Some(place) = stack.open.get_mut(depth) {
                *place = (domain, opened);
            }
            stack.depth += 1;
            depth
        })
        .unwrap_or(0)
}

/// The kernel numbers a process by its first thread.
fn is_main_thread() -> bool {
    // SAFETY: both only answer.
    unsafe { libc::gettid() == libc::getpid() }
}

fn called(function: trail::Function, said: Said, at: MonoNanos) -> Option<Handle> {
    let bytes = said.bytes?;
    let is_told = observer::begin(Door::Nvtx, None).is_some() && observer::is_best(Door::Nvtx);
    if !is_told {
        return None;
    }
    // Older releases do not say on which communicator: all count as one.
    let communicator = said.communicator.unwrap_or(0);
    let seq = COUNTS.count(communicator, function)?;
    let handle = Handle::new(Kind::Collective, Seat::FIRST);
    let begins = marks::begins(communicator);
    trail::append(Entry::Enqueued { handle, communicator, function, seq, bytes, channels: 1, begins, at });
    Some(handle)
}

/// The innermost range of a domain ends; how many are open now.
pub(super) fn pop(domain: Domain) -> usize {
    let ended = STACK.try_with(|stack| {
        let mut stack = stack.try_borrow_mut().ok()?;
        let depth = stack.depth.checked_sub(1)?;
        if depth >= MOST_DEEP {
            stack.depth = depth;
            return Some((Open::Nothing, depth));
        }
        let at = stack.open[..=depth].iter().rposition(|(of, _)| *of == domain)?;
        let (_, ended) = stack.open[at];
        stack.open.copy_within(at + 1..=depth, at);
        stack.depth = depth;
        Some((ended, depth))
    });
    let Ok(Some((ended, depth))) = ended else { return 0 };
    let at = agent::clock::now();
    match ended {
        Open::Nothing => {}
        Open::Phase(phase, begin) if observer::is_observed() => {
            trail::append(Entry::Phase { phase, begin, end: at });
        }
        Open::Phase(..) => {}
        Open::Call(handle) => trail::append(Entry::Issued { handle, at }),
    }
    depth
}

/// A range of NCCL's told of a communicator: one was made.
pub(super) fn communicator(said: Said) {
    if let Some(size) = said.ranks {
        observer::begin(
            Door::Nvtx,
            Some(Communicator { number: said.communicator.unwrap_or(0), size, rank: None }),
        );
    }
}
