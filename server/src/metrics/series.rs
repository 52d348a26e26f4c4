//! Which runs have series, how many, and until when.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use prometheus::core::{Collector, MetricVec, MetricVecBuilder};
use wire::ids::RunId;

/// The time after which the remaining series of a run that is over are removed. It covers several scrapes at any usual
/// interval.
pub const KEEP: Duration = Duration::from_secs(900);
/// The largest number of series of all runs together. At 100 bytes per series, a scrape takes 20 MB. A run of 512 ranks
/// has 512 x [`RANK_SERIES`] = 25,600 series. A run of four ranks and eight buckets has about 600.
const MAX_SERIES: usize = 200_000;
/// The number of series per run, in addition to those of its ranks and buckets: the histogram of steps, states, gauges.
const RUN_SERIES: usize = 64;
/// The number of series per rank.
const RANK_SERIES: usize = 50;
/// The number of series per bucket: two histograms.
const BUCKET_SERIES: usize = 2 * 22;
/// The largest number of buckets of a run with their own series. All further buckets share the label
/// [`OTHER_BUCKETS`].
const MAX_BUCKETS: usize = 128;
/// The label of all buckets beyond [`MAX_BUCKETS`].
const OTHER_BUCKETS: &str = "other";

#[derive(Default)]
struct RunSeries {
    ended: Option<Instant>,
    count: usize,
    buckets: BTreeSet<u32>,
    /// The number of steps since the newest one that was observed in full.
    unobserved: u32,
}

#[derive(Default)]
struct Runs {
    known: BTreeMap<RunId, RunSeries>,
    /// The live runs without series, because there would be too many. The hub bounds their number.
    unlisted: BTreeSet<RunId>,
    series: usize,
    /// The runs that are over and lost their series to other runs.
    displaced: Vec<RunId>,
}

impl Runs {
    fn remove(&mut self, run: &RunId) {
        if let Some(known) = self.known.remove(run) {
            self.series -= known.count;
        }
    }

    /// Makes room for a number of series. Forgets runs that are over, in the order in which they ended. Returns false
    /// if there is still not enough room.
    fn make_room(&mut self, series: usize) -> bool {
        while self.series + series > MAX_SERIES {
            let ended = self.known.iter().filter_map(|(run, known)| Some((known.ended?, run.clone())));
            let Some((_, oldest)) = ended.min() else { return false };
            self.remove(&oldest);
            self.displaced.push(oldest);
        }
        true
    }
}

/// The runs that have series, and the times when they ended.
#[derive(Clone, Default)]
pub(super) struct Series {
    runs: Arc<Mutex<Runs>>,
}

impl Series {
    fn change_runs<T>(&self, change: impl FnOnce(&mut Runs) -> T) -> T {
        change(&mut self.runs.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Admits a live run in which `ranks` ranks have series. Returns false if there is no room for its series.
    pub(super) fn admits(&self, run: &RunId, ranks: usize) -> bool {
        self.change_runs(|runs| {
            if let Some(known) = runs.known.get_mut(run) {
                known.ended = None;
                return true;
            }
            let series = RUN_SERIES + ranks * RANK_SERIES;
            if !runs.make_room(series) {
                runs.unlisted.insert(run.clone());
                return false;
            }
            runs.unlisted.remove(run);
            runs.series += series;
            runs.known.insert(run.clone(), RunSeries { count: series, ..RunSeries::default() });
            true
        })
    }

    /// Returns the label of a bucket: its index, or [`OTHER_BUCKETS`] if there is no room for more series.
    pub(super) fn bucket_label(&self, run: &RunId, bucket: u32) -> String {
        let has_room = self.change_runs(|runs| {
            let Some(known) = runs.known.get(run) else { return false };
            if known.buckets.contains(&bucket) {
                return true;
            }
            if known.buckets.len() >= MAX_BUCKETS || runs.series + BUCKET_SERIES > MAX_SERIES {
                return false;
            }
            runs.series += BUCKET_SERIES;
            if let Some(known) = runs.known.get_mut(run) {
                known.count += BUCKET_SERIES;
                known.buckets.insert(bucket);
            }
            true
        });
        if has_room { bucket.to_string() } else { OTHER_BUCKETS.to_owned() }
    }

    /// Counts a step. Returns the number of steps that it stands for, if it was observed in full: itself and those since
    /// the one before it.
    pub(super) fn step(&self, run: &RunId, is_observed_in_full: bool) -> Option<u32> {
        self.change_runs(|runs| {
            let known = runs.known.get_mut(run)?;
            known.unobserved = known.unobserved.saturating_add(1);
            is_observed_in_full.then(|| std::mem::take(&mut known.unobserved))
        })
    }

    /// Records that a run is over. Returns false if the run has no series.
    pub(super) fn ended(&self, run: &RunId, now: Instant) -> bool {
        self.change_runs(|runs| {
            runs.unlisted.remove(run);
            runs.known.get_mut(run).map(|known| known.ended = known.ended.or(Some(now))).is_some()
        })
    }

    /// Returns the number of live runs without series.
    pub(super) fn runs_without_series(&self) -> usize {
        self.change_runs(|runs| runs.unlisted.len())
    }

    /// Removes and returns the runs that ended longer than [`KEEP`] ago or lost their series to other runs.
    pub(super) fn take_expired(&self, now: Instant) -> BTreeSet<String> {
        self.change_runs(|runs| {
            let is_over = |known: &RunSeries| known.ended.is_some_and(|at| now.duration_since(at) >= KEEP);
            let expired: Vec<RunId> =
                runs.known.iter().filter(|(_, known)| is_over(known)).map(|(run, _)| run.clone()).collect();
            expired.iter().for_each(|run| runs.remove(run));
            let displaced = std::mem::take(&mut runs.displaced);
            let gone = expired.into_iter().chain(displaced).filter(|run| !runs.known.contains_key(run));
            gone.map(|run| run.to_string()).collect()
        })
    }
}

/// Removes all series of these runs from a family.
pub(super) fn forget<B: MetricVecBuilder>(family: &MetricVec<B>, runs: &BTreeSet<String>)
where
    MetricVec<B>: Collector,
{
    for metrics in family.collect() {
        for metric in metrics.get_metric() {
            let labels: HashMap<&str, &str> =
                metric.get_label().iter().map(|pair| (pair.name(), pair.value())).collect();
            if labels.get("run").is_some_and(|run| runs.contains(*run)) {
                // A concurrent scrape may have removed the series already.
                let _gone = family.remove(&labels);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: usize) -> RunId {
        RunId::new(format!("r{number}")).expect("the run id is valid")
    }

    #[test]
    fn runs_beyond_the_limit_have_no_series_until_another_run_ends() {
        let series = Series::default();
        let run_series = RUN_SERIES + 100 * RANK_SERIES;
        let admitted = (0..100).filter(|&run| series.admits(&id(run), 100)).count();
        assert_eq!(
            (admitted, series.runs_without_series()),
            (MAX_SERIES / run_series, 100 - MAX_SERIES / run_series)
        );
        assert!(series.ended(&id(0), Instant::now()));
        assert!(series.admits(&id(99), 100), "the run that ended makes room");
        assert_eq!(series.take_expired(Instant::now()), BTreeSet::from(["r0".to_owned()]));
    }

    #[test]
    fn buckets_beyond_the_limit_share_a_label() {
        let series = Series::default();
        assert!(series.admits(&id(0), 1));
        let labels: BTreeSet<String> =
            (0..60_000).map(|bucket| series.bucket_label(&id(0), bucket)).collect();
        assert_eq!(labels.len(), MAX_BUCKETS + 1);
        assert_eq!(series.bucket_label(&id(0), 7), "7");
        assert_eq!(series.bucket_label(&id(0), 50_000), OTHER_BUCKETS);
    }
}
