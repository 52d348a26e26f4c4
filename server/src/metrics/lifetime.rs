//! How long a run has series, and how many.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use prometheus::core::{Collector, MetricVec, MetricVecBuilder};
use wire::ids::RunId;

/// What is left of a run that is over goes so long after: several scrapes of any usual interval.
pub const KEEP: Duration = Duration::from_secs(900);
/// Series that all runs together have: 100 bytes each make 20 MB a scrape. A run of 512 ranks has
/// 512 x [`RANK_SERIES`] = 25,600; one of four ranks and eight buckets some 600.
const MOST_SERIES: usize = 200_000;
/// Series of a run, beside those of its ranks and buckets: the histogram of steps, states, gauges.
const RUN_SERIES: usize = 64;
/// Series of a rank.
const RANK_SERIES: usize = 50;
/// Series of a bucket: two histograms.
const BUCKET_SERIES: usize = 2 * 22;
/// Buckets of a run that have series of their own; the others share one label, [`OTHER_BUCKETS`].
const MOST_BUCKETS: usize = 128;
/// The label of buckets beyond the bound.
const OTHER_BUCKETS: &str = "other";

#[derive(Default)]
struct Lifetime {
    ended: Option<Instant>,
    series: usize,
    buckets: BTreeSet<u32>,
}

#[derive(Default)]
struct Runs {
    known: BTreeMap<RunId, Lifetime>,
    /// Live runs for which there is no room. At most as many as the hub holds runs.
    without: BTreeSet<RunId>,
    series: usize,
    /// Runs whose series made room for others.
    displaced: Vec<RunId>,
}

impl Runs {
    fn remove(&mut self, run: &RunId) {
        if let Some(lifetime) = self.known.remove(run) {
            self.series -= lifetime.series;
        }
    }

    /// Makes room by forgetting runs that are over, the one that ended first before the others.
    fn make_room(&mut self, series: usize) -> bool {
        while self.series + series > MOST_SERIES {
            let ended = self.known.iter().filter_map(|(run, lifetime)| Some((lifetime.ended?, run.clone())));
            let Some((_, oldest)) = ended.min() else { return false };
            self.remove(&oldest);
            self.displaced.push(oldest);
        }
        true
    }
}

/// The runs that have series, and when those of them ended that are over.
#[derive(Clone, Default)]
pub(super) struct Lifetimes {
    runs: Arc<Mutex<Runs>>,
}

impl Lifetimes {
    fn with<T>(&self, change: impl FnOnce(&mut Runs) -> T) -> T {
        change(&mut self.runs.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A live run of so many ranks with series of their own. False when there is no room for it.
    pub(super) fn admits(&self, run: &RunId, ranks: usize) -> bool {
        self.with(|runs| {
            if let Some(known) = runs.known.get_mut(run) {
                known.ended = None;
                return true;
            }
            let series = RUN_SERIES + ranks * RANK_SERIES;
            if !runs.make_room(series) {
                runs.without.insert(run.clone());
                return false;
            }
            runs.without.remove(run);
            runs.series += series;
            runs.known.insert(run.clone(), Lifetime { series, ..Lifetime::default() });
            true
        })
    }

    /// The label of a bucket: its number, as far as there is room.
    pub(super) fn bucket_label(&self, run: &RunId, bucket: u32) -> String {
        let has_room = self.with(|runs| {
            let Some(known) = runs.known.get(run) else { return false };
            if known.buckets.contains(&bucket) {
                return true;
            }
            if known.buckets.len() >= MOST_BUCKETS || runs.series + BUCKET_SERIES > MOST_SERIES {
                return false;
            }
            runs.series += BUCKET_SERIES;
            if let Some(known) = runs.known.get_mut(run) {
                known.series += BUCKET_SERIES;
                known.buckets.insert(bucket);
            }
            true
        });
        if has_room { bucket.to_string() } else { OTHER_BUCKETS.to_owned() }
    }

    /// A run is over. False for one that has no series: it gets none.
    pub(super) fn ended(&self, run: &RunId, now: Instant) -> bool {
        self.with(|runs| {
            runs.without.remove(run);
            runs.known.get_mut(run).map(|known| known.ended = known.ended.or(Some(now))).is_some()
        })
    }

    /// Live runs for which there is no room.
    pub(super) fn without(&self) -> usize {
        self.with(|runs| runs.without.len())
    }

    /// Runs that ended longer ago than [`KEEP`], or made room for others; they are forgotten here.
    pub(super) fn take_expired(&self, now: Instant) -> BTreeSet<String> {
        self.with(|runs| {
            let is_over =
                |lifetime: &Lifetime| lifetime.ended.is_some_and(|at| now.duration_since(at) >= KEEP);
            let expired: Vec<RunId> =
                runs.known.iter().filter(|(_, known)| is_over(known)).map(|(run, _)| run.clone()).collect();
            expired.iter().for_each(|run| runs.remove(run));
            let displaced = std::mem::take(&mut runs.displaced);
            let gone = expired.into_iter().chain(displaced).filter(|run| !runs.known.contains_key(run));
            gone.map(|run| run.to_string()).collect()
        })
    }
}

/// Removes every series of some runs.
pub(super) fn forget<B: MetricVecBuilder>(family: &MetricVec<B>, runs: &BTreeSet<String>)
where
    MetricVec<B>: Collector,
{
    for metrics in family.collect() {
        for metric in metrics.get_metric() {
            let labels: HashMap<&str, &str> =
                metric.get_label().iter().map(|pair| (pair.name(), pair.value())).collect();
            if labels.get("run").is_some_and(|run| runs.contains(*run)) {
                // Another scrape may have been first.
                let _gone = family.remove(&labels);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: usize) -> RunId {
        RunId::new(format!("r{number}")).expect("it is a run id")
    }

    #[test]
    fn runs_beyond_the_bound_have_no_series_until_one_ends() {
        let lifetimes = Lifetimes::default();
        let one = RUN_SERIES + 100 * RANK_SERIES;
        let admitted = (0..100).filter(|&run| lifetimes.admits(&id(run), 100)).count();
        assert_eq!((admitted, lifetimes.without()), (MOST_SERIES / one, 100 - MOST_SERIES / one));
        assert!(lifetimes.ended(&id(0), Instant::now()));
        assert!(lifetimes.admits(&id(99), 100), "the one that ended makes room");
        assert_eq!(lifetimes.take_expired(Instant::now()), BTreeSet::from(["r0".to_owned()]));
    }

    #[test]
    fn buckets_beyond_the_bound_share_a_label() {
        let lifetimes = Lifetimes::default();
        assert!(lifetimes.admits(&id(0), 1));
        let labels: BTreeSet<String> =
            (0..60_000).map(|bucket| lifetimes.bucket_label(&id(0), bucket)).collect();
        assert_eq!(labels.len(), MOST_BUCKETS + 1);
        assert_eq!(lifetimes.bucket_label(&id(0), 7), "7");
        assert_eq!(lifetimes.bucket_label(&id(0), 50_000), OTHER_BUCKETS);
    }
}
