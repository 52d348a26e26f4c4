//! Gauges by run and rank. The series of ranks without a value are removed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use prometheus::GaugeVec;

/// A gauge by run and rank.
#[derive(Clone)]
pub(super) struct RankGauge {
    gauge: GaugeVec,
    /// The ranks of each run that have a series.
    set: Arc<Mutex<BTreeMap<String, BTreeSet<usize>>>>,
}

impl RankGauge {
    pub(super) fn new(gauge: GaugeVec) -> Self {
        Self { gauge, set: Arc::default() }
    }

    #[cfg(test)]
    pub(super) fn family(&self) -> &GaugeVec {
        &self.gauge
    }

    /// Sets the gauge of each rank in `values`, and removes the series of all other ranks of the run.
    pub(super) fn set(&self, run: &str, values: impl IntoIterator<Item = (usize, f64)>) {
        let mut now = BTreeSet::new();
        for (rank, value) in values {
            self.gauge.with_label_values(&[run, &rank.to_string()]).set(value);
            now.insert(rank);
        }
        let mut set = self.set.lock().unwrap_or_else(PoisonError::into_inner);
        let previous = if now.is_empty() { set.remove(run) } else { set.insert(run.to_owned(), now.clone()) };
        for rank in previous.into_iter().flatten().filter(|rank| !now.contains(rank)) {
            // The series was set before, but may be gone already if the run has ended since.
            let _gone = self.gauge.remove_label_values(&[run, &rank.to_string()]);
        }
    }

    /// Removes all series of a run.
    pub(super) fn forget(&self, run: &str) {
        self.set(run, []);
    }
}
