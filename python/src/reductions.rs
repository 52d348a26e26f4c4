//! The reductions of a DDP module's buckets, as PyTorch's reducer keeps them.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::{PyRef, pyclass, pymethods};

use crate::agent::{Agent, Functions};
use crate::clock::monotonic_nanos;

/// The code of an all-reduce in `wire::event::Function`.
const ALL_REDUCE: u8 = 4;

/// The backward pass whose buckets PyTorch's record functions report. The hooks of the process group leave them alone.
static PASS: Mutex<Pass> = Mutex::new(Pass { group: None, bytes: Vec::new(), next: 0, is_mixed: false });

/// The collectives of a backward pass.
struct Pass {
    /// The agent's index of the process group that reduces the buckets; `None` outside a pass.
    group: Option<i64>,
    /// The sizes of the buckets.
    bytes: Vec<u64>,
    /// The bucket that is reduced next.
    next: usize,
    /// Whether a pass had collectives that record functions do not tell apart from those of buckets.
    is_mixed: bool,
}

fn pass() -> MutexGuard<'static, Pass> {
    PASS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pass {
    /// Begins a pass. Returns false if an earlier one was mixed.
    fn begin(&mut self, group: i64, bytes: &[u64]) -> bool {
        if !self.is_mixed {
            (self.group, self.bytes, self.next) = (Some(group), bytes.to_vec(), 0);
        }
        !self.is_mixed
    }

    fn finish(&mut self) {
        self.group = None;
    }

    /// Takes note of a collective of a process group. Returns whether record functions report it.
    fn has(&mut self, group: i64, function: u8, bytes: u64) -> bool {
        let Some(reducing) = self.group else { return false };
        let is_bucket = group == reducing && function == ALL_REDUCE;
        // The map of unused parameters is reduced after the buckets.
        let is_expected = is_bucket && self.bytes.get(self.next).is_none_or(|&expected| expected == bytes);
        self.next += usize::from(is_bucket);
        // Record functions name the function and not the group. And within the group, the order of reports is that of issue
        // only among all-reduces.
        self.is_mixed |= !is_expected && (group == reducing || function == ALL_REDUCE);
        group == reducing
    }
}

/// Returns whether record functions report a collective of a process group, of `bytes` bytes, in place of its hooks.
pub fn reports(group: i64, function: u8, bytes: u64) -> bool {
    pass().has(group, function, bytes)
}

/// The reductions of one DDP module.
#[pyclass(frozen, module = "paceline._native")]
pub struct Reductions {
    agent: Functions,
    /// When the forward pass ended (`CLOCK_MONOTONIC`). The reducer counts from then.
    forward_ended: AtomicI64,
    /// The parameters of each bucket, as indices of the reducer's.
    buckets: Mutex<Vec<Vec<usize>>>,
}

#[pymethods]
impl Reductions {
    #[new]
    fn new(agent: PyRef<'_, Agent>) -> Self {
        Self { agent: agent.functions(), forward_ended: AtomicI64::new(0), buckets: Mutex::default() }
    }

    /// The forward pass has ended, and the reducer begins to count time.
    fn forward_ended(&self) {
        // An exception may have left the pass before.
        pass().finish();
        self.forward_ended.store(monotonic_nanos(), Ordering::Relaxed);
    }

    /// A backward pass begins. `bytes` has the sizes of the buckets, and `parameters` those of each bucket, if known.
    /// Returns false if the buckets cannot be told apart from other collectives of such passes.
    fn begin(&self, group: i64, bytes: Vec<u64>, parameters: Vec<Vec<usize>>) -> bool {
        if !pass().begin(group, &bytes) {
            return false;
        }
        *self.buckets.lock().unwrap_or_else(PoisonError::into_inner) = parameters;
        self.agent.reduces(group, &bytes);
        true
    }

    /// All buckets are reduced. `ready` has the time from the end of the forward pass to the gradient of each parameter,
    /// in nanoseconds.
    fn finish(&self, ready: Vec<i64>) {
        pass().finish();
        let buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let forward_end = self.forward_ended.load(Ordering::Relaxed);
        let launches = launches(&buckets, &ready);
        self.agent.reduced(&launches.iter().map(|nanos| forward_end + nanos).collect::<Vec<_>>());
    }
}

/// Returns when each bucket is handed over: once it and all buckets before it have their gradients.
fn launches(buckets: &[Vec<usize>], ready: &[i64]) -> Vec<i64> {
    let mut latest = 0;
    let launch = |bucket: &Vec<usize>| {
        let own = bucket.iter().filter_map(|&parameter| ready.get(parameter)).max();
        latest = latest.max(own.copied().unwrap_or(0));
        latest
    };
    buckets.iter().map(launch).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_buckets_of_a_pass_are_left_to_record_functions() {
        const BROADCAST: u8 = 0;
        let begun = || {
            let mut pass = Pass { group: None, bytes: Vec::new(), next: 0, is_mixed: false };
            assert!(!pass.has(1, ALL_REDUCE, 5), "no pass");
            assert!(pass.begin(1, &[5, 6]));
            assert!(pass.has(1, ALL_REDUCE, 5));
            pass
        };
        let mut alone = begun();
        // The second bucket, the map of unused parameters, and a collective that is not an all-reduce in another group.
        assert!(alone.has(1, ALL_REDUCE, 6) && alone.has(1, ALL_REDUCE, 99) && !alone.has(2, BROADCAST, 5));
        alone.finish();
        assert!(!alone.has(2, ALL_REDUCE, 5) && alone.begin(1, &[5]));
        for (group, function, bytes) in [(2, ALL_REDUCE, 6), (1, BROADCAST, 6), (1, ALL_REDUCE, 7)] {
            let mut mixed = begun();
            assert_eq!(mixed.has(group, function, bytes), group == 1);
            assert!(!mixed.begin(1, &[5]), "{group} {function} {bytes}");
        }
    }

    #[test]
    fn a_bucket_waits_for_its_gradients_and_for_the_buckets_before_it() {
        assert_eq!(launches(&[vec![2, 3], vec![1], vec![0, 9]], &[30, 10, 5, 20]), [20, 20, 30]);
        assert!(launches(&[], &[1]).is_empty());
    }
}
