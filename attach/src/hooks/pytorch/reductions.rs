//! The reductions of a DDP module's buckets, which gloo runs. PyTorch's record functions report when each one runs, and
//! the Python package reports the rest: the module's process group, the size of its buckets, and when they were ready.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use wire::clock::MonoNanos;

use crate::call_log::{self, Entry, Function, Handle};
use crate::hooks::pytorch;

/// The largest number of reductions whose backward pass is over and whose end is not reported yet.
const MAX_LATE: usize = 256;

/// The reductions of the newest backward pass, and those of earlier ones whose end is not reported yet.
#[derive(Debug)]
struct Passes {
    newest: Option<Pass>,
    /// gloo's thread reports an end after it has woken the job, which may then have begun the next pass.
    late: VecDeque<Reduction>,
}

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
    /// Whether the module has all its gradients.
    is_over: bool,
}

/// The reduction of one bucket.
#[derive(Clone, Copy, Debug)]
struct Reduction {
    group: i64,
    /// The address of its record function.
    function: usize,
    collective: Option<Handle>,
    began: MonoNanos,
    ended: Option<MonoNanos>,
}

impl Reduction {
    /// Records the end, if it is known. Returns whether it is.
    fn record(&self) -> bool {
        if let (Some(ended), Some(collective)) = (self.ended, self.collective) {
            pytorch::end(self.group, collective, ended);
        }
        self.ended.is_some()
    }
}

static PASSES: Mutex<Passes> = Mutex::new(Passes { newest: None, late: VecDeque::new() });

fn passes() -> MutexGuard<'static, Passes> {
    PASSES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Passes {
    /// Records the ends of the newest pass that are known, and keeps the other reductions.
    fn settle(&mut self) {
        let buckets = self.newest.as_mut().map(|pass| std::mem::take(&mut pass.buckets)).unwrap_or_default();
        self.late.extend(buckets.into_iter().filter(|bucket| !bucket.record()));
        while self.late.len() > MAX_LATE {
            let lost = self.late.pop_front();
            if let Some(Reduction { group, collective: Some(collective), .. }) = lost {
                pytorch::lose(group, collective);
            }
        }
    }
}

/// Begins a backward pass whose buckets, of the given sizes, are reduced by a group.
pub(super) fn begin(group: i64, bytes: Vec<u64>) {
    let mut passes = passes();
    // An exception may have left the pass before.
    passes.settle();
    passes.newest = Some(Pass { group, bytes, ..Pass::default() });
}

/// Ends the backward pass: all buckets are reduced. `launches` has the time when each was handed to gloo, if known.
pub(super) fn finish(launches: &[i64]) {
    let mut passes = passes();
    let Some(pass) = passes.newest.as_mut() else { return };
    pass.is_over = true;
    for (bucket, &at) in pass.buckets.iter().zip(launches) {
        if let Some(handle) = bucket.collective {
            call_log::append(Entry::Launched { handle, at: MonoNanos(at).min(bucket.began) });
        }
    }
    passes.settle();
}

/// gloo began an all-reduce.
pub(super) fn began(function: usize) {
    let began = agent::clock::now();
    let mut passes = passes();
    let Some(pass) = passes.newest.as_mut().filter(|pass| !pass.is_over) else { return };
    let Some(&bytes) = pass.bytes.get(pass.buckets.len()) else { return };
    let group = pass.group;
    let collective = pytorch::issue(group, Function::AllReduce, bytes, began);
    pass.buckets.push(Reduction { group, function, collective, began, ended: None });
}

/// gloo ended a collective.
pub(super) fn ended(function: usize) {
    let at = agent::clock::now();
    let mut passes = passes();
    let is_it = |bucket: &Reduction| bucket.function == function && bucket.ended.is_none();
    if let Some(late) = passes.late.iter().position(is_it) {
        if let Some(bucket) = passes.late.remove(late) {
            Reduction { ended: Some(at), ..bucket }.record();
        }
        return;
    }
    let buckets = passes.newest.iter_mut().flat_map(|pass| &mut pass.buckets);
    if let Some(bucket) = buckets.into_iter().find(|bucket| is_it(bucket)) {
        bucket.ended = Some(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_buckets_of_a_pass_are_kept_and_an_end_may_follow_the_pass() {
        let open = || {
            let passes = passes();
            let newest = passes.newest.iter().flat_map(|pass| &pass.buckets);
            (newest.map(|reduction| reduction.function).collect::<Vec<_>>(), passes.late.len())
        };
        began(1);
        assert_eq!(open(), (vec![], 0), "no module reduces");
        begin(-1, vec![100, 200]);
        for function in [1, 2, 3] {
            began(function);
        }
        assert_eq!(open(), (vec![1, 2], 0), "the third reduces no bucket");
        for function in [1, 1, 3] {
            ended(function);
        }
        finish(&[0, 0]);
        assert_eq!(open(), (vec![], 1), "the end of the second is not known");
        began(4);
        assert_eq!(open(), (vec![], 1), "the pass is over");
        begin(-1, vec![100]);
        // The memory of a function that ended is used again.
        began(1);
        ended(2);
        assert_eq!(open(), (vec![1], 0));
        for _ in 0..2 * MAX_LATE {
            begin(-1, vec![100]);
            began(5);
        }
        assert_eq!(open().1, MAX_LATE);
    }
}
