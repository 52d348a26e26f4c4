//! Collectives inside `ncclGroupStart` and `ncclGroupEnd`: they run when the outermost group of their thread ends.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};

use super::events;
use crate::host;
use crate::trail::Handle;

/// Collectives of one group that are timed; more are called and not observed.
const MOST_CALLS: usize = 1_024;

/// A collective that waits for the end of its group, and its stream.
type Pending = (Handle, *mut c_void);

struct Group {
    depth: usize,
    pending: Vec<Pending>,
}

thread_local! {
    static GROUP: RefCell<Group> = const { RefCell::new(Group { depth: 0, pending: Vec::new() }) };
}

fn with<T: Default>(change: impl FnOnce(&mut Group) -> T) -> T {
    let changed = GROUP.try_with(|group| group.try_borrow_mut().ok().map(|mut group| change(&mut group)));
    changed.ok().flatten().unwrap_or_default()
}

pub(super) fn is_open() -> bool {
    with(|group| group.depth > 0)
}

pub(super) fn start() {
    host::guarded(|| with(|group| group.depth += 1));
}

pub(super) fn add(pending: Option<Pending>) {
    with(|group| group.pending.extend(pending.filter(|_| group.pending.len() < MOST_CALLS)));
}

/// Ends a group; the outermost is put between events on each stream that it has collectives for.
pub(super) fn end(original: impl FnOnce() -> c_int) -> c_int {
    let pending = host::guarded(|| {
        with(|group| {
            group.depth = group.depth.saturating_sub(1);
            if group.depth == 0 { std::mem::take(&mut group.pending) } else { Vec::new() }
        })
    });
    let timed = host::guarded(|| {
        let mut streams: Vec<(*mut c_void, Vec<Handle>)> = Vec::new();
        for (handle, stream) in pending {
            match streams.iter_mut().find(|(known, _)| *known == stream) {
                Some((_, handles)) => handles.push(handle),
                None => streams.push((stream, vec![handle])),
            }
        }
        let begun =
            streams.into_iter().map(|(stream, handles)| Some((events::before(stream)?, stream, handles)));
        begun.flatten().collect::<Vec<_>>()
    });
    let result = original();
    host::guarded(|| timed.into_iter().for_each(|(before, stream, handles)| before.end(stream, &handles)));
    result
}
