//! The reductions of a DDP module's buckets, as PyTorch's reducer keeps them.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};

use pyo3::{PyRef, pyclass, pymethods};

use crate::agent::{Agent, Functions};
use crate::clock::monotonic_nanos;

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
        self.forward_ended.store(monotonic_nanos(), Ordering::Relaxed);
    }

    /// A backward pass begins. `bytes` has the sizes of the buckets, and `parameters` those of each bucket, if known.
    fn begin(&self, group: i64, bytes: Vec<u64>, parameters: Vec<Vec<usize>>) {
        *self.buckets.lock().unwrap_or_else(PoisonError::into_inner) = parameters;
        self.agent.reduces(group, &bytes);
    }

    /// All buckets are reduced. `ready` has the time from the end of the forward pass to the gradient of each parameter,
    /// in nanoseconds.
    fn finish(&self, ready: Vec<i64>) {
        let buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let since = self.forward_ended.load(Ordering::Relaxed);
        let launches = launches(&buckets, &ready);
        self.agent.reduced(&launches.iter().map(|nanos| since + nanos).collect::<Vec<_>>());
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
    fn a_bucket_waits_for_its_gradients_and_for_the_buckets_before_it() {
        assert_eq!(launches(&[vec![2, 3], vec![1], vec![0, 9]], &[30, 10, 5, 20]), [20, 20, 30]);
        assert!(launches(&[], &[1]).is_empty());
    }
}
