//! The door of PyTorch, for collectives that gloo carries.
//!
//! Nothing in such a process can be asked by a library. But PyTorch calls whoever asks for it before and after it issues a
//! collective, from Python; so `paceline attach` puts a `sitecustomize` (`doors/python`) before the job's own, which asks,
//! and calls these functions. They are called with the interpreter's lock held, so that none waits for another (without
//! such a lock, in a free-threaded Python, for no longer than it takes to append an entry).

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use wire::clock::MonoNanos;

use crate::host;
use crate::marks;
use crate::observer::{self, Communicator, Door};
use crate::sampling;
use crate::table::Table;
use crate::trail::{self, Entry, Function, Handle, Kind, Phase, Seat};

/// Collectives under way in one group: while there are so many, of others only the issue is told.
const MOST_UNDER_WAY: usize = 1_024;
/// Groups that are told apart at one time.
const MOST_GROUPS: usize = 256;
/// What a group is called that is not observed, since there are too many.
const TOO_MANY: i64 = -2;

/// A process group.
struct Group {
    number: u64,
    seat: Seat,
    /// Oldest first.
    under_way: VecDeque<UnderWay>,
    /// When the newest was done of which that was told.
    free: MonoNanos,
}

/// A collective that was issued and of which it is not told yet when it ran.
#[derive(Clone, Copy)]
struct UnderWay {
    collective: Handle,
    issued: MonoNanos,
    ended: Option<MonoNanos>,
}

/// By name; those that are no more leave theirs to others.
static GROUPS: Mutex<Vec<Option<Group>>> = Mutex::new(Vec::new());
/// Collectives by group and function.
static COUNTS: Table = Table::new();

fn groups() -> MutexGuard<'static, Vec<Option<Group>>> {
    GROUPS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn named(groups: &mut [Option<Group>], name: i64) -> Option<&mut Group> {
    groups.get_mut(usize::try_from(name).ok()?)?.as_mut()
}

impl Group {
    /// Tells when the oldest ran that are done: one after the other, in the order in which they were issued. gloo runs two
    /// at a time, which share their way; the second has it for itself from the end of the first on.
    fn tell(&mut self, mut tell: impl FnMut(Entry)) {
        while let Some(UnderWay { collective, issued, ended: Some(ended) }) = self.under_way.front().copied()
        {
            let channel = Handle::new(Kind::Channel, self.seat);
            let began = issued.max(self.free);
            self.free = ended.max(began);
            tell(Entry::Began { handle: channel, parent: collective, gpu: None, at: began });
            tell(Entry::Ended { handle: channel, gpu: None, at: self.free });
            self.under_way.pop_front();
        }
    }
}

/// A process group was made: of `size` ranks, of which this is `rank`; `number` is the same on all of them. What the group
/// is called in what follows; negative where it is not observed.
#[unsafe(no_mangle)]
pub extern "C" fn paceline_pytorch_group(number: u64, size: u32, rank: u32) -> i64 {
    let joined = || {
        let communicator = Communicator { number, size, rank: Some(rank) };
        let seat = observer::begin(Door::PyTorch, Some(communicator))?;
        let mut groups = groups();
        let name = groups.iter().position(Option::is_none).unwrap_or(groups.len());
        if name == MOST_GROUPS {
            return Some(TOO_MANY);
        }
        if name == groups.len() {
            groups.push(None);
        }
        groups[name] = Some(Group { number, seat, under_way: VecDeque::new(), free: MonoNanos(0) });
        Some(name as i64)
    };
    host::guarded(|| Some(joined().unwrap_or(-1))).unwrap_or(-1)
}

/// A process group is no more.
#[unsafe(no_mangle)]
pub extern "C" fn paceline_pytorch_left(group: i64) {
    host::guarded(|| {
        let mut groups = groups();
        if let Some(place) = usize::try_from(group).ok().and_then(|name| groups.get_mut(name)) {
            *place = None;
        }
    });
}

/// A collective was issued at `at` (`CLOCK_MONOTONIC`), with `bytes` of this rank's; `function` is a [`Function`]'s number.
/// The caller has spent `spent` nanoseconds on observing it so far. Returns its name for [`paceline_pytorch_ended`], or 0
/// where its end is not observed.
#[unsafe(no_mangle)]
pub extern "C" fn paceline_pytorch_issued(group: i64, function: u8, bytes: u64, at: i64, spent: u64) -> u64 {
    host::guarded(|| {
        sampling::spend(spent);
        if !observer::is_best(Door::PyTorch) {
            return 0;
        }
        let mut groups = groups();
        let Some(group) = named(&mut groups, group) else { return 0 };
        let function = Function::from_code(function);
        let Some(seq) = COUNTS.count(group.number, function) else { return 0 };
        let collective = Handle::new(Kind::Collective, group.seat);
        let (communicator, at) = (group.number, MonoNanos(at));
        trail::append(Entry::Enqueued {
            handle: collective,
            communicator,
            function,
            seq,
            bytes,
            channels: 1,
            begins: marks::begins(communicator),
            at,
        });
        let is_observed = sampling::observes(group.seat, communicator, function, seq);
        if !is_observed || group.under_way.len() == MOST_UNDER_WAY {
            trail::append(Entry::Issued { handle: collective, at: agent::clock::now() });
            return 0;
        }
        group.under_way.push_back(UnderWay { collective, issued: at, ended: None });
        collective.to_bits()
    })
}

/// A collective is done.
#[unsafe(no_mangle)]
pub extern "C" fn paceline_pytorch_ended(group: i64, collective: u64, at: i64, spent: u64) {
    host::guarded(|| {
        sampling::spend(spent);
        let mut groups = groups();
        let Some(group) = named(&mut groups, group) else { return };
        let ended = group.under_way.iter_mut().find(|one| one.collective.to_bits() == collective);
        if let Some(ended) = ended {
            ended.ended = Some(MonoNanos(at));
            group.tell(trail::append);
        }
    });
}

/// An optimizer updated its parameters.
#[unsafe(no_mangle)]
pub extern "C" fn paceline_pytorch_updated() {
    host::guarded(marks::updated);
}

/// The main thread waited for a batch of a data loader.
#[unsafe(no_mangle)]
pub extern "C" fn paceline_pytorch_input(begin: i64, end: i64) {
    host::guarded(|| {
        if observer::is_observed() {
            trail::append(Entry::Phase { phase: Phase::Input, begin: MonoNanos(begin), end: MonoNanos(end) });
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collectives_are_told_of_in_their_order_and_one_after_the_other() {
        let under_way = |issued: i64, ended: Option<i64>| UnderWay {
            collective: Handle::new(Kind::Collective, Seat::FIRST),
            issued: MonoNanos(issued),
            ended: ended.map(MonoNanos),
        };
        let mut group = Group {
            number: 1,
            seat: Seat::FIRST,
            under_way: [under_way(1, None), under_way(2, Some(5)), under_way(9, Some(12))].into(),
            free: MonoNanos(0),
        };
        let mut told: Vec<i64> = Vec::new();
        let mut tell = |entry| match entry {
            Entry::Began { at, .. } | Entry::Ended { at, .. } => told.push(at.0),
            other => panic!("{other:?}"),
        };
        group.tell(&mut tell);
        assert_eq!(group.under_way.len(), 3, "the oldest runs still");
        group.under_way[0].ended = Some(MonoNanos(7));
        group.tell(tell);
        assert_eq!(told, [1, 7, 7, 7, 9, 12]);
    }

    #[test]
    fn what_is_no_group_is_not_told_of() {
        assert_eq!(paceline_pytorch_issued(-1, 4, 100, 0, 0), 0);
        assert_eq!(paceline_pytorch_issued(99, 4, 100, 0, 0), 0);
        paceline_pytorch_ended(99, 17, 0, 0);
    }
}
