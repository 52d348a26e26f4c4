//! Prometheus metrics, as defined in docs/metrics.md. Counters and histograms grow as steps close. Gauges are set from
//! snapshots.
//!
//! A gauge describes the present, so a run that is over has no gauges. Otherwise its last values would be taken for the
//! present, and an alert on them would fire forever. `paceline_run_state` says how the run ended, and its counters
//! remain for a last scrape. After [`lifetime::KEEP`] all series of the run are removed. Runs that were over before
//! this server started have no series.

mod devices;
mod hosts;
mod lifetime;
mod own;
mod ranks;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use analysis::step::StepAnalysis;
use prometheus::core::Collector;
use prometheus::{CounterVec, Encoder, GaugeVec, HistogramOpts, HistogramVec, Opts, Registry, TextEncoder};
use wire::batch::DropReason;
use wire::device::DeviceSample;
use wire::ids::RunId;
use wire::live::Part;
use wire::usage::Usage;
use wire::views::{Culprit, Report, RunState, RunSummary, Verdict, VerdictState};

use devices::DeviceMetrics;
use hosts::HostMetrics;
use lifetime::Lifetimes;
pub use own::{LACKS, ServerMetrics};
use ranks::RankGauge;

/// The largest number of ranks of a run with series for all ranks. Larger runs have series for their worst ranks only
/// (docs/metrics.md).
const MAX_RANKS_IN_FULL: usize = 512;
/// The number of worst ranks that have series.
const WORST_RANKS: usize = 64;

/// All metrics of a server.
pub struct Metrics {
    families: Families,
    lifetimes: Lifetimes,
    step_seconds: HistogramVec,
    phase_seconds: CounterVec,
    straggler_wait: CounterVec,
    lateness: RankGauge,
    exposed: CounterVec,
    comm: CounterVec,
    hidden: CounterVec,
    bucket_transfer: HistogramVec,
    bucket_wait: HistogramVec,
    bucket_bytes: CounterVec,
    overlap: GaugeVec,
    efficiency: GaugeVec,
    throughput: GaugeVec,
    mfu: GaugeVec,
    hfu: GaugeVec,
    goodput: GaugeVec,
    badput_seconds: CounterVec,
    straggler_cost: GaugeVec,
    loss: GaugeVec,
    clock_bound: RankGauge,
    dropped: CounterVec,
    last_step: GaugeVec,
    ranks_reporting: GaugeVec,
    ranks_expected: GaugeVec,
    own_overhead: GaugeVec,
    own_overhead_bound: GaugeVec,
    state: GaugeVec,
    hung: GaugeVec,
    rank_hung: RankGauge,
    rank_reporting: RankGauge,
    late_records: GaugeVec,
    unanalyzed_steps: GaugeVec,
    devices: DeviceMetrics,
    hosts: HostMetrics,
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

/// Returns the bounds of 19 histogram buckets: three per decade, over six decades above `from`, in seconds.
fn duration_buckets(from: f64) -> Vec<f64> {
    (0..19).map(|i| from * 10_f64.powf(f64::from(i) / 3.0)).collect()
}

/// The registry, and the names of the registered families.
#[derive(Clone, Default)]
struct Families {
    registry: Registry,
    names: Vec<String>,
}

impl Families {
    /// Registers a family. All names are constants, so a duplicate is a mistake in this file, and every test would
    /// panic.
    fn add<C: Collector + Clone + 'static>(&mut self, family: C) -> C {
        self.names.extend(family.desc().iter().map(|description| description.fq_name.clone()));
        self.registry.register(Box::new(family.clone())).expect("each name is registered once");
        family
    }
}

/// Registers a family with a constant name and constant labels.
macro_rules! family {
    ($families:expr, $type:ident, $name:expr, $help:expr, $labels:expr) => {
        $families.add($type::new(Opts::new($name, $help), &$labels).expect("the name and labels are valid"))
    };
}

fn histogram(families: &mut Families, name: &str, help: &str, labels: &[&str], from: f64) -> HistogramVec {
    let opts = HistogramOpts::new(name, help).buckets(duration_buckets(from));
    families.add(HistogramVec::new(opts, labels).expect("the name and labels are valid"))
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
    /// Panics if a name below is invalid or occurs twice. Every test of the metrics would detect it.
    #[must_use]
    pub fn new() -> Self {
        let mut r = Families::default();
        Self {
            step_seconds: histogram(
                &mut r,
                "paceline_step_seconds",
                "Step time, from the first rank's begin to the last rank's end.",
                &["run"],
                1e-3,
            ),
            bucket_transfer: histogram(
                &mut r,
                "paceline_bucket_transfer_seconds",
                "Transfer time of a bucket's collective, median over ranks.",
                &["run", "bucket"],
                1e-5,
            ),
            bucket_wait: histogram(
                &mut r,
                "paceline_bucket_wait_seconds",
                "Wait for the last rank in a bucket's collective, mean over ranks.",
                &["run", "bucket"],
                1e-5,
            ),
            phase_seconds: family!(
                r,
                CounterVec,
                "paceline_phase_seconds_total",
                "Time of a rank by part of its step ledger. The parts sum to the rank's step time.",
                ["run", "rank", "phase"]
            ),
            straggler_wait: family!(
                r,
                CounterVec,
                "paceline_straggler_wait_seconds_total",
                "Caused wait: how long after the rank before it this rank started, summed over its collectives.",
                ["run", "rank"]
            ),
            lateness: RankGauge::new(family!(
                r,
                GaugeVec,
                "paceline_rank_lateness_seconds",
                "Start of a rank's collectives minus that of the median rank, mean over those of the newest step.",
                ["run", "rank"]
            )),
            exposed: family!(
                r,
                CounterVec,
                "paceline_exposed_comm_seconds_total",
                "Time inside collectives while the rank does not compute, split into wait and transfer.",
                ["run", "rank", "kind"]
            ),
            comm: family!(
                r,
                CounterVec,
                "paceline_comm_seconds_total",
                "Time inside collectives.",
                ["run", "rank"]
            ),
            hidden: family!(
                r,
                CounterVec,
                "paceline_hidden_comm_seconds_total",
                "Time inside collectives while the rank computes.",
                ["run", "rank"]
            ),
            bucket_bytes: family!(
                r,
                CounterVec,
                "paceline_bucket_bytes_total",
                "Payload of all collectives, in bytes, counted once for all ranks.",
                ["run"]
            ),
            overlap: family!(
                r,
                GaugeVec,
                "paceline_overlap_ratio",
                "Share of communication during which the rank computes.",
                ["run"]
            ),
            efficiency: family!(
                r,
                GaugeVec,
                "paceline_scaling_efficiency_ratio",
                "Scaling efficiency: measured against a baseline run, or implied as compute / step.",
                ["run", "kind"]
            ),
            throughput: family!(
                r,
                GaugeVec,
                "paceline_throughput_samples_per_second",
                "Samples per second over all ranks.",
                ["run"]
            ),
            mfu: family!(
                r,
                GaugeVec,
                "paceline_mfu_ratio",
                "Model FLOPs utilization: operations of the samples per second, as a share of the devices' peak.",
                ["run"]
            ),
            hfu: family!(
                r,
                GaugeVec,
                "paceline_hfu_ratio",
                "Hardware FLOPs utilization: as paceline_mfu_ratio, with recomputation.",
                ["run"]
            ),
            goodput: family!(
                r,
                GaugeVec,
                "paceline_goodput_ratio",
                "Share of the wall time of all ranks that is steps that advance the job.",
                ["run"]
            ),
            badput_seconds: family!(
                r,
                CounterVec,
                "paceline_badput_seconds_total",
                "Time of all ranks that is not goodput, by what it went to.",
                ["run", "kind"]
            ),
            straggler_cost: family!(
                r,
                GaugeVec,
                "paceline_straggler_cost_ratio",
                "Share of the step time that fixing this rank would save, by the verdict on it.",
                ["run", "rank", "cause"]
            ),
            loss: family!(
                r,
                GaugeVec,
                "paceline_loss_ratio",
                "Share of the time that all ranks lose, or that training pauses, by the verdict on it.",
                ["run", "cause"]
            ),
            clock_bound: RankGauge::new(family!(
                r,
                GaugeVec,
                "paceline_clock_error_bound_seconds",
                "Error bound of a rank's aligned times.",
                ["run", "rank"]
            )),
            dropped: family!(
                r,
                CounterVec,
                "paceline_records_dropped_total",
                "Records that a rank's agent dropped since the process began, by reason.",
                ["run", "rank", "reason"]
            ),
            last_step: family!(
                r,
                GaugeVec,
                "paceline_last_step_timestamp_seconds",
                "Time when the newest step ended, as Unix time.",
                ["run"]
            ),
            ranks_reporting: family!(
                r,
                GaugeVec,
                "paceline_ranks_reporting",
                "Number of ranks that were heard from in the last ten seconds.",
                ["run"]
            ),
            ranks_expected: family!(
                r,
                GaugeVec,
                "paceline_ranks_expected",
                "Number of ranks of the run.",
                ["run"]
            ),
            own_overhead: family!(
                r,
                GaugeVec,
                "paceline_own_overhead_ratio",
                "Cost of recording as a share of the step, measured by shadow steps. Noise may make it negative.",
                ["run"]
            ),
            own_overhead_bound: family!(
                r,
                GaugeVec,
                "paceline_own_overhead_bound_ratio",
                "Bounds of the 95 % interval of paceline_own_overhead_ratio.",
                ["run", "bound"]
            ),
            state: family!(
                r,
                GaugeVec,
                "paceline_run_state",
                "1 for the state of the run, 0 for all other states.",
                ["run", "state"]
            ),
            rank_hung: RankGauge::new(family!(
                r,
                GaugeVec,
                "paceline_rank_hung",
                "1 for each rank that a hung run is waiting for.",
                ["run", "rank"]
            )),
            rank_reporting: RankGauge::new(family!(
                r,
                GaugeVec,
                "paceline_rank_reporting",
                "1 if a rank was heard from in the last ten seconds, 0 if not. Absent once the rank has ended.",
                ["run", "rank"]
            )),
            hung: family!(
                r,
                GaugeVec,
                "paceline_run_hung",
                "1 if no step has completed for max(10 x median step, 10 s), 0 otherwise.",
                ["run"]
            ),
            late_records: family!(
                r,
                GaugeVec,
                "paceline_late_records",
                "Records that are in no figure: they arrived after their step was closed, or a step had too many.",
                ["run"]
            ),
            unanalyzed_steps: family!(
                r,
                GaugeVec,
                "paceline_unanalyzed_steps",
                "Steps that are in no figure: too few ranks sent them, or they arrived faster than they are analyzed.",
                ["run"]
            ),
            devices: DeviceMetrics::new(&mut r),
            hosts: HostMetrics::new(&mut r),
            server: ServerMetrics::new(&mut r),
            lifetimes: Lifetimes::default(),
            families: r,
        }
    }

    /// Adds closed steps of a run to counters and histograms.
    pub fn observe_steps(&self, run: &RunId, ranks: u32, steps: &[Arc<StepAnalysis>]) {
        if steps.is_empty() || !self.admits(run, ranks) {
            return;
        }
        let id = run.as_str();
        for step in steps.iter().filter(|step| step.complete && !step.shadow) {
            self.step_seconds.with_label_values(&[id]).observe(seconds(step.step_nanos()));
            let bytes: u64 = step.collectives.iter().map(|collective| collective.bytes).sum();
            self.bucket_bytes.with_label_values(&[id]).inc_by(bytes as f64);
            let Some(stands_for) = self.lifetimes.step(run, step.is_observed_in_full()) else { continue };
            if step.ranks.len() <= MAX_RANKS_IN_FULL {
                self.observe_ranks(id, step, f64::from(stands_for));
            }
            for collective in &step.collectives {
                let bucket = self.lifetimes.bucket_label(run, collective.bucket.0);
                let transfer = collective.transfer_nanos.unwrap_or(collective.transfer_clock_free_nanos);
                let wait = collective.wait_nanos.unwrap_or(collective.wait_clock_free_nanos);
                self.bucket_transfer.with_label_values(&[id, &bucket]).observe(transfer / 1e9);
                self.bucket_wait.with_label_values(&[id, &bucket]).observe(wait / 1e9);
            }
        }
    }

    fn admits(&self, run: &RunId, ranks: u32) -> bool {
        let ranks = ranks as usize;
        self.lifetimes.admits(run, if ranks <= MAX_RANKS_IN_FULL { ranks } else { WORST_RANKS })
    }

    /// Adds the times of a step to the counters of its ranks, as often as the number of steps that it stands for.
    fn observe_ranks(&self, id: &str, step: &StepAnalysis, stands_for: f64) {
        let scaled = |nanos: u64| stands_for * seconds(nanos);
        let is_overlap_known = step.is_overlap_known();
        for (rank, analysis) in step.present() {
            let rank = rank.to_string();
            for part in Part::of_run(analysis.part(Part::Idle) > 0) {
                let phase = part.name().replace(' ', "_");
                let labels = [id, &rank, &phase];
                self.phase_seconds.with_label_values(&labels).inc_by(scaled(analysis.part(part)));
            }
            let caused = scaled(analysis.caused_wait_nanos);
            self.straggler_wait.with_label_values(&[id, &rank]).inc_by(caused);
            self.comm.with_label_values(&[id, &rank]).inc_by(scaled(analysis.comm_nanos));
            // What is only assumed is not counted: a missing figure has no series.
            if !is_overlap_known {
                continue;
            }
            let exposed = |kind: &str, part: Part| {
                self.exposed.with_label_values(&[id, &rank, kind]).inc_by(scaled(analysis.part(part)));
            };
            exposed("wait", Part::ExposedWait);
            exposed("transfer", Part::ExposedTransfer);
            self.hidden.with_label_values(&[id, &rank]).inc_by(scaled(analysis.hidden_nanos));
        }
    }

    /// Sets the gauges of a run, or removes them if the run is over.
    pub fn observe_run(&self, run: &RunValues<'_>) {
        let id = run.summary.run.as_str();
        if run.is_over {
            if self.lifetimes.ended(&run.summary.run, Instant::now()) {
                let this = BTreeSet::from([id.to_owned()]);
                self.run_gauges().into_iter().for_each(|gauge| lifetime::forget(gauge, &this));
                self.rank_gauges().for_each(|gauge| gauge.forget(id));
                self.set_state(id, run.summary.state);
            }
            return;
        }
        if !self.admits(&run.summary.run, run.summary.ranks_expected) {
            return;
        }
        self.set_state(id, run.summary.state);
        self.set_run_gauges(id, run);
        self.set_costs(id, run.report);
        self.set_rank_gauges(id, run);
    }

    fn set_state(&self, id: &str, is: RunState) {
        use RunState::{Completed, Failed, Hung, Running, Starting};
        for state in [Starting, Running, Hung, Completed, Failed] {
            let value = f64::from(u8::from(state == is));
            self.state.with_label_values(&[id, state.name()]).set(value);
        }
    }

    fn set_run_gauges(&self, id: &str, run: &RunValues<'_>) {
        let summary = run.summary;
        let Some(report) = run.report else { return };
        let set = |gauge: &GaugeVec, value: Option<f64>| match value {
            Some(value) => gauge.with_label_values(&[id]).set(value),
            // A missing figure has no series. Removing a series that was never set fails, which is harmless.
            None => drop(gauge.remove_label_values(&[id])),
        };
        set(&self.overlap, report.overlap_ratio.value());
        set(&self.throughput, report.throughput.value());
        set(&self.mfu, report.flops_utilization.model.value());
        set(&self.hfu, report.flops_utilization.hardware.value());
        set(&self.goodput, report.goodput.known().map(|goodput| goodput.ratio));
        for (of, nanos) in report.goodput.known().into_iter().flat_map(|goodput| &goodput.uses) {
            if !of.is_productive() {
                let counter = self.badput_seconds.with_label_values(&[id, of.name()]);
                // A counter does not shrink. What ends a run is recovery once the run is restarted.
                counter.inc_by((seconds(*nanos) - counter.get()).max(0.0));
            }
        }
        set(&self.own_overhead, report.own_overhead.known().map(|own| own.ratio));
        set(&self.ranks_expected, Some(f64::from(summary.ranks_expected)));
        set(&self.ranks_reporting, Some(f64::from(summary.ranks_reporting)));
        set(&self.hung, Some(f64::from(u8::from(summary.state == RunState::Hung))));
        set(&self.late_records, Some(run.late_records as f64));
        set(&self.unanalyzed_steps, Some(run.unanalyzed_steps as f64));
        set(&self.last_step, run.newest.and_then(|step| Some(step.window?.1.0 as f64 / 1e9)));
        let efficiency = &report.scaling_efficiency;
        for (kind, figure) in [("implied", &efficiency.implied), ("measured", &efficiency.measured)] {
            match figure.value() {
                Some(value) => self.efficiency.with_label_values(&[id, kind]).set(value),
                None => drop(self.efficiency.remove_label_values(&[id, kind])),
            }
        }
        if let Some(own) = report.own_overhead.known() {
            self.own_overhead_bound.with_label_values(&[id, "low"]).set(own.low);
            self.own_overhead_bound.with_label_values(&[id, "high"]).set(own.high);
        }
    }

    /// Sets the cost of each verdict: on a rank, or else on all ranks and of pauses, which are not a fault of the rank that has them.
    /// The cost of a verdict that is resolved or has disappeared becomes 0, so alerts on it resolve.
    fn set_costs(&self, id: &str, report: Option<&Report>) {
        set_to_zero(&self.straggler_cost, id, &["run", "rank", "cause"]);
        set_to_zero(&self.loss, id, &["run", "cause"]);
        let is_there = |verdict: &&Verdict| verdict.state != VerdictState::Resolved;
        let ranks = report.map_or(1, |report| report.ranks);
        for verdict in report.iter().flat_map(|report| &report.verdicts).filter(is_there) {
            let (named, cause) = (verdict.culprit.as_ref().map_or(&[][..], Culprit::ranks), verdict.cause);
            let share = verdict.share_of_time(ranks);
            if named.is_empty() || cause.is_pause() {
                self.loss.with_label_values(&[id, cause.name()]).add(share);
                continue;
            }
            for rank in named {
                self.straggler_cost.with_label_values(&[id, &rank.to_string(), cause.name()]).set(share);
            }
        }
    }

    fn set_rank_gauges(&self, id: &str, run: &RunValues<'_>) {
        let ranks = run.summary.ranks_expected;
        if let Some(step) = run.newest {
            let mut late: Vec<(usize, f64)> = step
                .present()
                .filter_map(|(rank, analysis)| Some((rank, analysis.lateness_nanos? / 1e9)))
                .collect();
            if late.len() > MAX_RANKS_IN_FULL {
                late.sort_by(|a, b| b.1.total_cmp(&a.1));
                late.truncate(WORST_RANKS);
            }
            self.lateness.set(id, late);
        }
        let in_full = ranks as usize <= MAX_RANKS_IN_FULL;
        let most = if in_full { MAX_RANKS_IN_FULL } else { WORST_RANKS };
        let reporting = run.reporting.iter().filter(|&&(_, reports)| in_full || !reports);
        let reporting = reporting.map(|&(rank, reports)| (rank, f64::from(u8::from(reports))));
        self.rank_reporting.set(id, reporting.take(most));
        let hung = run.summary.hang.iter().flat_map(|hang| &hang.ranks).map(|rank| (rank.0 as usize, 1.0));
        self.rank_hung.set(id, hung.take(most));
        let bounds = run.clock_bounds.iter().take(most);
        self.clock_bound.set(id, bounds.map(|&(rank, bound)| (rank, seconds(bound))));
        self.devices.observe(id, &run.devices[..run.devices.len().min(most)]);
        self.hosts.observe(id, &run.hosts[..run.hosts.len().min(most)]);
        if in_full {
            // Counters begin at 0. Otherwise `increase` would not see the first losses.
            for (rank, reason) in (0..ranks).flat_map(|rank| DropReason::ALL.map(|reason| (rank, reason))) {
                self.dropped.with_label_values(&[id, &rank.to_string(), reason.name()]);
            }
        }
        for &(rank, reason, count) in run.drops.iter().take(most) {
            let counter = self.dropped.with_label_values(&[id, &rank.to_string(), reason.name()]);
            // The agent counts, and a restarted agent counts from zero. A counter never decreases.
            counter.inc_by((count as f64 - counter.get()).max(0.0));
        }
    }

    /// Returns all metrics in Prometheus text format.
    ///
    /// # Errors
    /// Returns an error if a family cannot be written, which indicates a bug in the names above.
    pub fn encode(&self) -> Result<String, prometheus::Error> {
        self.forget_ended(Instant::now());
        self.server.without_series.set(self.lifetimes.without() as i64);
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.families.registry.gather(), &mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Returns the names of all families, including those without series.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.families.names
    }

    /// Removes all series of runs that ended longer than [`lifetime::KEEP`] ago. Called at each scrape, because series
    /// are only visible at a scrape.
    fn forget_ended(&self, now: Instant) {
        let gone = self.lifetimes.take_expired(now);
        if gone.is_empty() {
            return;
        }
        self.run_gauges().into_iter().chain([&self.state]).for_each(|gauge| lifetime::forget(gauge, &gone));
        self.rank_gauges().for_each(|gauge| gone.iter().for_each(|run| gauge.forget(run)));
        self.counters().into_iter().for_each(|counter| lifetime::forget(counter, &gone));
        self.histograms().into_iter().for_each(|histogram| lifetime::forget(histogram, &gone));
    }

    /// Returns the gauges of runs and of culprits, except the state, which remains when the others are removed.
    fn run_gauges(&self) -> [&GaugeVec; 16] {
        [
            &self.overlap,
            &self.efficiency,
            &self.throughput,
            &self.mfu,
            &self.hfu,
            &self.goodput,
            &self.straggler_cost,
            &self.loss,
            &self.last_step,
            &self.ranks_reporting,
            &self.ranks_expected,
            &self.own_overhead,
            &self.own_overhead_bound,
            &self.hung,
            &self.late_records,
            &self.unanalyzed_steps,
        ]
    }

    /// Returns the gauges of ranks.
    fn rank_gauges(&self) -> impl Iterator<Item = &RankGauge> {
        let own = [&self.lateness, &self.clock_bound, &self.rank_hung, &self.rank_reporting];
        own.into_iter().chain(self.devices.gauges()).chain(self.hosts.gauges())
    }

    /// Returns all gauges except the state.
    #[cfg(test)]
    fn gauges(&self) -> Vec<&GaugeVec> {
        let ranks = self.rank_gauges().map(RankGauge::family);
        self.run_gauges().into_iter().chain(ranks).collect()
    }

    fn counters(&self) -> [&CounterVec; 8] {
        [
            &self.phase_seconds,
            &self.straggler_wait,
            &self.exposed,
            &self.comm,
            &self.hidden,
            &self.bucket_bytes,
            &self.dropped,
            &self.badput_seconds,
        ]
    }

    fn histograms(&self) -> [&HistogramVec; 3] {
        [&self.step_seconds, &self.bucket_transfer, &self.bucket_wait]
    }
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// Sets a run's gauges to 0. `labels` are the names of their labels.
fn set_to_zero(gauges: &GaugeVec, id: &str, labels: &[&str]) {
    for family in prometheus::core::Collector::collect(gauges) {
        for metric in family.get_metric() {
            let value = |name: &&str| {
                let pair = metric.get_label().iter().find(|pair| pair.name() == *name);
                pair.map(|pair| pair.value().to_owned()).unwrap_or_default()
            };
            let values: Vec<String> = labels.iter().map(value).collect();
            if values.first().is_some_and(|run| run == id) {
                gauges.with_label_values(&values).set(0.0);
            }
        }
    }
}

#[cfg(test)]
mod tests;
