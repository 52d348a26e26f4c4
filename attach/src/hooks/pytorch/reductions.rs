//! The reductions of a DDP module's buckets, which gloo runs. PyTorch's record functions report when each one runs, and
//! the Python package reports the rest: the module's process group, the size of its buckets, and when they were ready.

use std::sync::{Mutex, MutexGuard, PoisonError};

use wire::clock::MonoNanos;

use crate::call_log::{self, Entry, Function, Handle};
use crate::hooks::pytorch;

/// The reductions of one backward pass.
///
/// gloo has two threads, which take buckets from one queue, so the order in which they begin is that of the buckets. Two
/// that begin within microseconds of each other may be swapped.
#[derive(Debug, Default)]
struct Pass {
    group: i64,
    /// The sizes of the buckets. Further collectives are none of buckets: the map of unused parameters is reduced last.
    bytes: Vec<u64>,
    buckets: Vec<Reduction>,
    /// Whether the module has all its gradients. gloo may report the last end slightly later.
    is_over: bool,
}

/// The reduction of one bucket.
#[derive(Clone, Copy, Debug)]
struct Reduction {
    /// The address of its record function.
    function: usize,
    collective: Option<Handle>,
    began: MonoNanos,
    ended: Option<MonoNanos>,
    /// Whether its end was recorded.
    is_recorded: bool,
}

static PASS: Mutex<Option<Pass>> = Mutex::new(None);

fn pass() -> MutexGuard<'static, Option<Pass>> {
    PASS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pass {
    /// Records the ends that are known.
    fn record(&mut self) {
        for bucket in &mut self.buckets {
            if let (Some(ended), false) = (bucket.ended, bucket.is_recorded) {
                bucket.is_recorded = true;
                if let Some(collective) = bucket.collective {
                    pytorch::end(self.group, collective, ended);
                }
            }
        }
    }
}

/// Begins a backward pass whose buckets, of the given sizes, are reduced by a group.
pub(super) fn begin(group: i64, bytes: Vec<u64>) {
    let mut pass = pass();
    // A pass that an exception left.
    if let Some(left) = pass.as_mut() {
        left.record();
    }
    *pass = Some(Pass { group, bytes, ..Pass::default() });
}

/// Ends the backward pass: all buckets are reduced. `launches` has the time when each was handed to gloo, if known.
pub(super) fn finish(launches: &[i64]) {
    let mut pass = pass();
    let Some(pass) = pass.as_mut() else { return };
    pass.is_over = true;
    for (bucket, &at) in pass.buckets.iter().zip(launches) {
        if let Some(handle) = bucket.collective {
            call_log::append(Entry::Launched { handle, at: MonoNanos(at).min(bucket.began) });
        }
    }
    pass.record();
}

/// gloo began an all-reduce.
pub(super) fn began(function: usize) {
    let began = agent::clock::now();
    let mut pass = pass();
    let Some(pass) = pass.as_mut().filter(|pass| !pass.is_over) else { return };
    let Some(&bytes) = pass.bytes.get(pass.buckets.len()) else { return };
    let collective = pytorch::issue(pass.group, Function::AllReduce, bytes, began);
    pass.buckets.push(Reduction { function, collective, began, ended: None, is_recorded: false });
}

/// gloo ended a collective.
pub(super) fn ended(function: usize) {
    let at = agent::clock::now();
    let mut pass = pass();
    let Some(pass) = pass.as_mut() else { return };
    let is_it = |bucket: &&mut Reduction| bucket.function == function && bucket.ended.is_none();
    if let Some(bucket) = pass.buckets.iter_mut().find(is_it) {
        bucket.ended = Some(at);
        if pass.is_over {
            pass.record();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_buckets_of_a_pass_are_recorded_and_the_last_end_may_follow_the_pass() {
        let ends = || pass().as_ref().map(|pass| pass.buckets.iter().map(|one| one.is_recorded).collect());
        began(1);
        assert_eq!(ends(), None::<Vec<bool>>, "no module reduces");
        begin(-1, vec![100, 200]);
        for function in [1, 2, 3] {
            began(function);
        }
        ended(1);
        ended(1);
        ended(3);
        assert_eq!(ends(), Some(vec![false, false]), "the third reduces no bucket");
        finish(&[0, 0]);
        assert_eq!(ends(), Some(vec![true, false]));
        ended(2);
        assert_eq!(ends(), Some(vec![true, true]));
        began(4);
        assert_eq!(ends(), Some(vec![true, true]), "the pass is over");
    }
}
