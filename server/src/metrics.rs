//! Prometheus metrics, as defined in docs/metrics.md. Counters and histograms grow as steps close. Gauges are set from
//! snapshots.
//!
//! A gauge describes the present, so a run that is over has no gauges. Otherwise its last values would be taken for the
//! present, and an alert on them would fire forever. `paceline_run_state` says how the run ended, and its counters
//! remain for a last scrape. After [`series::KEEP`] all series of the run are removed. Runs that were over before
//! this server started have no series.

//! Each family is a row of a table: [`table`], [`devices`], [`hosts`].

mod devices;
mod families;
mod family;
mod hosts;
mod own;
mod ranks;
mod row;
mod series;
mod table;

use std::sync::Arc;
use std::time::Instant;

use analysis::step::StepAnalysis;
use wire::batch::DropReason;
use wire::device::DeviceSample;
use wire::ids::RunId;
use wire::usage::Usage;
use wire::views::{Report, RunSummary};

use families::Families;
use family::RankInStep;
pub use own::{LACKS, ServerMetrics};
use row::Row;
use series::Series;

/// The largest number of ranks of a run with series for all ranks. Larger runs have series for their worst ranks only
/// (docs/metrics.md).
const MAX_RANKS_IN_FULL: usize = 512;
/// The number of worst ranks that have series.
const WORST_RANKS: usize = 64;

/// All metrics of a server.
pub struct Metrics {
    families: Families,
    series: Series,
    rows: Vec<Row>,
    /// The metrics of the server itself.
    pub server: ServerMetrics,
}

/// The values that the gauges of a run are set to.
pub struct RunValues<'a> {
    /// The run's summary.
    pub summary: &'a RunSummary,
    /// The run's report, if there is one yet.
    pub report: Option<&'a Report>,
    /// The newest analyzed step.
    pub newest: Option<&'a StepAnalysis>,
    /// Whether the run is over.
    pub is_over: bool,
    /// The records that arrived after their step had closed, or that were too many for one step.
    pub late_records: u64,
    /// The steps that were not analyzed.
    pub unanalyzed_steps: u64,
    /// Whether the server receives data from each rank that has not left, by rank.
    pub reporting: Vec<(usize, bool)>,
    /// The error bound of each aligned clock in nanoseconds, by rank.
    pub clock_bounds: Vec<(usize, u64)>,
    /// The records that each rank dropped, by reason.
    pub drops: Vec<(usize, DropReason, u64)>,
    /// The newest sample of each device, by rank.
    pub devices: Vec<(usize, &'a DeviceSample)>,
    /// The newest sample of each host, by rank.
    pub hosts: Vec<(usize, Vec<(Usage, f32)>)>,
}

impl RunValues<'_> {
    /// Returns whether all ranks have series.
    fn is_in_full(&self) -> bool {
        is_in_full(self.summary.ranks_expected as usize)
    }

    /// Returns the largest number of ranks that have series.
    fn most_ranks(&self) -> usize {
        if self.is_in_full() { MAX_RANKS_IN_FULL } else { WORST_RANKS }
    }
}

fn is_in_full(ranks: usize) -> bool {
    ranks <= MAX_RANKS_IN_FULL
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Returns a new set of metrics.
    ///
    /// # Panics
    /// Panics if a name in a table is invalid or occurs twice. Every test of the metrics would detect it.
    #[must_use]
    pub fn new() -> Self {
        let mut families = Families::default();
        let tables = [table::FAMILIES, devices::FAMILIES, hosts::FAMILIES];
        let rows = tables.into_iter().flatten().map(|family| Row::register(family, &mut families)).collect();
        let server = ServerMetrics::new(&mut families);
        Self { families, series: Series::default(), rows, server }
    }

    /// Adds closed steps of a run to counters and histograms.
    pub fn observe_steps(&self, run: &RunId, ranks: u32, steps: &[Arc<StepAnalysis>]) {
        if steps.is_empty() || !self.admits(run, ranks) {
            return;
        }
        let id = run.as_str();
        for step in steps.iter().filter(|step| step.complete && !step.shadow) {
            self.rows.iter().for_each(|row| row.observe_step(id, step));
            let Some(stands_for) = self.series.step(run, step.is_observed_in_full()) else { continue };
            if is_in_full(step.ranks.len()) {
                self.observe_ranks(id, step, f64::from(stands_for));
            }
            for collective in &step.collectives {
                let bucket = self.series.bucket_label(run, collective.bucket.0);
                self.rows.iter().for_each(|row| row.observe_collective(id, &bucket, collective));
            }
        }
    }

    fn admits(&self, run: &RunId, ranks: u32) -> bool {
        let ranks = ranks as usize;
        self.series.admits(run, if is_in_full(ranks) { ranks } else { WORST_RANKS })
    }

    fn observe_ranks(&self, id: &str, step: &StepAnalysis, stands_for: f64) {
        let is_overlap_known = step.is_overlap_known();
        for (number, rank) in step.present() {
            let (label, rank) = (number.to_string(), RankInStep { rank, is_overlap_known });
            self.rows.iter().for_each(|row| row.observe_rank(id, &label, &rank, stands_for));
        }
    }

    /// Sets the gauges of a run, or removes them if the run is over.
    pub fn observe_run(&self, run: &RunValues<'_>) {
        let (id, state) = (run.summary.run.as_str(), run.summary.state);
        if run.is_over {
            if self.series.ended(&run.summary.run, Instant::now()) {
                self.rows.iter().for_each(|row| row.forget_present(id));
                self.rows.iter().for_each(|row| row.set_state(id, state));
            }
        } else if self.admits(&run.summary.run, run.summary.ranks_expected) {
            self.rows.iter().for_each(|row| row.set(id, run));
        }
    }

    /// Returns all metrics in Prometheus text format.
    ///
    /// # Errors
    /// Returns an error if a family cannot be written, which indicates a bug in the tables.
    pub fn encode(&self) -> Result<String, prometheus::Error> {
        self.forget_ended(Instant::now());
        self.server.without_series.set(self.series.runs_without_series() as i64);
        self.families.encode()
    }

    /// Returns the names of all families, including those without series.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.families.names
    }

    /// Removes all series of runs that ended longer than [`series::KEEP`] ago. Called at each scrape, because series
    /// are only visible at a scrape.
    fn forget_ended(&self, now: Instant) {
        let gone = self.series.take_expired(now);
        if !gone.is_empty() {
            self.rows.iter().for_each(|row| row.forget(&gone));
        }
    }
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

#[cfg(test)]
mod tests;
