//! The open ranges of a thread, and the entries that they append to the call log.

use std::cell::RefCell;

use wire::clock::MonoNanos;

use super::payload::PayloadFields;
use super::words::Meaning;
use crate::call_log::{self, Entry, Handle, Kind, LocalRank, Phase};
use crate::marks;
use crate::observer::{self, Communicator, Hook};
use crate::table::Table;

/// The largest depth of nested ranges that are stored. Deeper ranges are only counted, so that each end matches its
/// start.
const MAX_DEPTH: usize = 64;

/// An NVTX domain, by an index of this library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Domain(pub(super) usize);

impl Domain {
    pub(super) const DEFAULT: Self = Self(0);
    /// NCCL's domain.
    pub(super) const NCCL: Self = Self(1);
}

/// The meaning of an open range.
#[derive(Clone, Copy)]
enum OpenRange {
    Nothing,
    Phase(Phase, MonoNanos),
    Call(Handle),
}

/// An open range, with the domain that opened it.
#[derive(Clone, Copy)]
struct Open {
    domain: Domain,
    range: OpenRange,
}

impl Open {
    const NOTHING: Self = Self { domain: Domain::DEFAULT, range: OpenRange::Nothing };
}

struct Stack {
    open: [Open; MAX_DEPTH],
    depth: usize,
}

thread_local! {
    static STACK: RefCell<Stack> =
        const { RefCell::new(Stack { open: [Open::NOTHING; MAX_DEPTH], depth: 0 }) };
}

/// Counts of calls by communicator and function.
static COUNTS: Table = Table::new();

/// Opens a range. Returns the number of ranges that were open before.
pub(super) fn push(domain: Domain, meaning: Meaning, said: PayloadFields) -> usize {
    let at = agent::clock::now();
    let opened = match meaning {
        Meaning::Nothing => OpenRange::Nothing,
        // Other threads prepare input while the main thread computes.
        Meaning::Phase(phase) if is_main_thread() => OpenRange::Phase(phase, at),
        Meaning::Phase(_) => OpenRange::Nothing,
        Meaning::Call(function) => called(function, said, at).map_or(OpenRange::Nothing, OpenRange::Call),
    };
    STACK
        .try_with(|stack| {
            let Ok(mut stack) = stack.try_borrow_mut() else { return 0 };
            let depth = stack.depth;
            let is_inside = |open: &Open| {
                matches!(open.range, OpenRange::Phase(..)) && matches!(opened, OpenRange::Phase(..))
            };
            let opened = if stack.open[..depth.min(MAX_DEPTH)].iter().any(is_inside) {
                OpenRange::Nothing
            } else {
                opened
            };
            if let Some(place) = stack.open.get_mut(depth) {
                *place = Open { domain, range: opened };
            }
            stack.depth += 1;
            depth
        })
        .unwrap_or(0)
}

/// Returns whether this is the main thread, whose thread number is the process number.
fn is_main_thread() -> bool {
    // SAFETY: both functions only return a number.
    unsafe { libc::gettid() == libc::getpid() }
}

fn called(function: call_log::Function, said: PayloadFields, at: MonoNanos) -> Option<Handle> {
    let bytes = said.bytes?;
    let is_reported = observer::begin(Hook::Nvtx, None).is_some() && observer::is_best(Hook::Nvtx);
    if !is_reported {
        return None;
    }
    // Older releases do not report the communicator: all of them count as one.
    let communicator = said.communicator.unwrap_or(0);
    let seq = COUNTS.count(communicator, function)?;
    let handle = Handle::new(Kind::Collective, LocalRank::FIRST);
    let begins = marks::begins(communicator);
    call_log::append(Entry::Enqueued { handle, communicator, function, seq, bytes, channels: 1, begins, at });
    Some(handle)
}

/// Closes the innermost range of a domain. Returns the number of ranges that are still open.
pub(super) fn pop(domain: Domain) -> usize {
    let ended = STACK.try_with(|stack| {
        let mut stack = stack.try_borrow_mut().ok()?;
        let depth = stack.depth.checked_sub(1)?;
        if depth >= MAX_DEPTH {
            stack.depth = depth;
            return Some((OpenRange::Nothing, depth));
        }
        let at = stack.open[..=depth].iter().rposition(|open| open.domain == domain)?;
        let ended = stack.open[at].range;
        stack.open.copy_within(at + 1..=depth, at);
        stack.depth = depth;
        Some((ended, depth))
    });
    let Ok(Some((ended, depth))) = ended else { return 0 };
    let at = agent::clock::now();
    match ended {
        OpenRange::Nothing => {}
        OpenRange::Phase(phase, begin) if observer::is_observed() => {
            call_log::append(Entry::Phase { phase, enqueued: None, begin, end: at, used: 0 });
        }
        OpenRange::Phase(..) => {}
        OpenRange::Call(handle) => call_log::append(Entry::Issued { handle, at }),
    }
    depth
}

/// Registers the new communicator that a range of NCCL reports.
pub(super) fn communicator(said: PayloadFields) {
    if let Some(size) = said.ranks {
        observer::begin(
            Hook::Nvtx,
            Some(Communicator { number: said.communicator.unwrap_or(0), size, rank: None }),
        );
    }
}
