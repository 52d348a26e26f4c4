//! Calls between `ncclGroupStart` and `ncclGroupEnd`. They run when the outermost group of their thread ends.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};

use super::{Numbered, timed};
use crate::host;
use crate::message::Message;

/// The largest number of timed calls per group. Further calls are passed on and not observed.
const MAX_CALLS: usize = 1_024;

struct CallGroup {
    depth: usize,
    pending: Vec<Numbered>,
}

thread_local! {
    static GROUP: RefCell<CallGroup> = const { RefCell::new(CallGroup { depth: 0, pending: Vec::new() }) };
}

fn change_group<T: Default>(change: impl FnOnce(&mut CallGroup) -> T) -> T {
    let changed = GROUP.try_with(|group| group.try_borrow_mut().ok().map(|mut group| change(&mut group)));
    changed.ok().flatten().unwrap_or_default()
}

pub(super) fn is_open() -> bool {
    change_group(|group| group.depth > 0)
}

pub(super) fn start() {
    host::guarded(|| {
        change_group(|group| group.depth += 1);
        Message::begin_batch();
    });
}

/// Holds a call until its group ends.
pub(super) fn add(call: Numbered) {
    change_group(|group| group.pending.extend(Some(call).filter(|_| group.pending.len() < MAX_CALLS)));
}

/// Ends a group. The outermost group runs between events on each stream that its calls use.
pub(super) fn end(original: impl FnOnce() -> c_int) -> c_int {
    let by_stream = host::guarded(|| {
        let calls = change_group(|group| {
            group.depth = group.depth.saturating_sub(1);
            if group.depth == 0 { std::mem::take(&mut group.pending) } else { Vec::new() }
        });
        let mut by_stream: Vec<(*mut c_void, Vec<Numbered>)> = Vec::new();
        for call in calls {
            match by_stream.iter_mut().find(|(known, _)| *known == call.call.stream) {
                Some((_, calls)) => calls.push(call),
                None => by_stream.push((call.call.stream, vec![call])),
            }
        }
        by_stream
    });
    timed(by_stream, original)
}
