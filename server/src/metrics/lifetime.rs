//! How long a run has series.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use prometheus::core::{Collector, MetricVec, MetricVecBuilder};
use wire::ids::RunId;

/// What is left of a run that is over goes so long after: several scrapes of any usual interval.
pub const KEEP: Duration = Duration::from_secs(900);

/// When each run that has series ended; `None` for those that live. At most as many as the hub holds runs.
#[derive(Clone, Default)]
pub(super) struct Lifetimes {
    runs: Arc<Mutex<BTreeMap<RunId, Option<Instant>>>>,
}

impl Lifetimes {
    fn with<T>(&self, change: impl FnOnce(&mut BTreeMap<RunId, Option<Instant>>) -> T) -> T {
        change(&mut self.runs.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A run lives: it has series, or is about to.
    pub(super) fn seen(&self, run: &RunId) {
        self.with(|runs| {
            if !matches!(runs.get(run), Some(None)) {
                runs.insert(run.clone(), None);
            }
        });
    }

    /// A run is over. False for one that was never seen alive: it has no series and gets none.
    pub(super) fn ended(&self, run: &RunId, now: Instant) -> bool {
        self.with(|runs| runs.get_mut(run).map(|ended| *ended = ended.or(Some(now))).is_some())
    }

    /// Runs that ended longer ago than [`KEEP`]; they are forgotten here.
    pub(super) fn take_expired(&self, now: Instant) -> Vec<RunId> {
        self.with(|runs| {
            let is_over = |ended: &Option<Instant>| ended.is_some_and(|at| now.duration_since(at) >= KEEP);
            let expired: Vec<RunId> =
                runs.iter().filter(|(_, ended)| is_over(ended)).map(|(run, _)| run.clone()).collect();
            runs.retain(|_, ended| !is_over(ended));
            expired
        })
    }
}

/// Removes every series of a run.
pub(super) fn forget<B: MetricVecBuilder>(family: &MetricVec<B>, run: &str)
where
    MetricVec<B>: Collector,
{
    for metrics in family.collect() {
        for metric in metrics.get_metric() {
            let labels: HashMap<&str, &str> =
                metric.get_label().iter().map(|pair| (pair.name(), pair.value())).collect();
            if labels.get("run") == Some(&run) {
                // Another scrape may have been first.
                let _gone = family.remove(&labels);
            }
        }
    }
}
