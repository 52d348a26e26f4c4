//! Prometheus metrics, with the names of METRICS.md. Counters and histograms grow as steps close; gauges are
//! set from snapshots.
//!
//! A gauge says how things are *now*, so a run that is over has none: what it last said would be taken for the
//! present, and an alert on it would fire for ever. `paceline_run_state` says what became of it, its counters stay
//! for a last scrape, and [`lifetime::KEEP`] later nothing of it is left. Runs that were over before this server
//! began are not shown at all.

mod devices;
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
use wire::clock::ServerNanos;
use wire::live::Part;
use wire::views::{Culprit, RunState, Verdict, VerdictState};

use crate::state::run::Run;
use crate::state::snapshot::RunSnapshot;
use devices::DeviceMetrics;
use lifetime::Lifetimes;
pub use own::ServerMetrics;
use ranks::RankGauge;

/// A run of more ranks exports per-rank series only for its worst ranks (METRICS.md).
const MOST_RANKS_IN_FULL: usize = 512;
/// That many of them.
const WORST_RANKS: usize = 64;

/// All metrics of a server.
#[derive(Clone)]
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
    straggler_cost: GaugeVec,
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
    unanalysed_steps: GaugeVec,
    devices: DeviceMetrics,
    /// The server's own.
    pub server: ServerMetrics,
}

/// From 100 us to 100 s, three a decade: a step or a bucket of any job.
fn duration_buckets(from: f64) -> Vec<f64> {
    (0..19).map(|i| from * 10_f64.powf(f64::from(i) / 3.0)).collect()
}

/// The registry, and the names of what is in it.
#[derive(Clone, Default)]
struct Families {
    registry: Registry,
    names: Vec<String>,
}

impl Families {
    /// Names are fixed, so a clash is a mistake in this file, which a test of any kind would meet.
    fn add<C: Collector + Clone + 'static>(&mut self, family: C) -> C {
        self.names.extend(family.desc().iter().map(|description| description.fq_name.clone()));
        self.registry.register(Box::new(family.clone())).expect("each name is registered once");
        family
    }
}

/// Registers one family of a fixed, valid name and label set.
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
    /// A fresh set.
    ///
    /// # Panics
    /// Never with the fixed names below; a test makes one.
    #[must_use]
    pub fn new() -> Self {
        let mut r = Families::default();
        Self {
            step_seconds: histogram(
                &mut r,
                "paceline_step_seconds",
                "Step time over all ranks.",
                &["run"],
                1e-3,
            ),
            bucket_transfer: histogram(
                &mut r,
                "paceline_bucket_transfer_seconds",
                "Transfer of one bucket's all-reduce, the median over ranks.",
                &["run", "bucket"],
                1e-5,
            ),
            bucket_wait: histogram(
                &mut r,
                "paceline_bucket_wait_seconds",
                "Wait for the last rank in one bucket's all-reduce, the mean over ranks.",
                &["run", "bucket"],
                1e-5,
            ),
            phase_seconds: family!(
                r,
                CounterVec,
                "paceline_phase_seconds_total",
                "Step ledger: time of a rank by phase; the phases sum to its step time.",
                ["run", "rank", "phase"]
            ),
            straggler_wait: family!(
                r,
                CounterVec,
                "paceline_straggler_wait_seconds_total",
                "Time the other ranks waited, on average, in collectives that this rank started last.",
                ["run", "rank"]
            ),
            lateness: RankGauge::new(family!(
                r,
                GaugeVec,
                "paceline_rank_lateness_seconds",
                "Start of a rank's collectives less the median rank's, in the newest step.",
                ["run", "rank"]
            )),
            exposed: family!(
                r,
                CounterVec,
                "paceline_exposed_comm_seconds_total",
                "Communication that no compute hides.",
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
                "Time inside collectives behind compute.",
                ["run", "rank"]
            ),
            bucket_bytes: family!(
                r,
                CounterVec,
                "paceline_bucket_bytes_total",
                "Gradient bytes reduced, counted once for all ranks.",
                ["run"]
            ),
            overlap: family!(
                r,
                GaugeVec,
                "paceline_overlap_ratio",
                "Share of communication that compute hides.",
                ["run"]
            ),
            efficiency: family!(
                r,
                GaugeVec,
                "paceline_scaling_efficiency_ratio",
                "Scaling efficiency; implied needs no baseline run.",
                ["run", "kind"]
            ),
            throughput: family!(
                r,
                GaugeVec,
                "paceline_throughput_samples_per_second",
                "Samples per second over all ranks.",
                ["run"]
            ),
            straggler_cost: family!(
                r,
                GaugeVec,
                "paceline_straggler_cost_ratio",
                "Share of the step time that fixing this rank would save.",
                ["run", "rank", "cause"]
            ),
            clock_bound: RankGauge::new(family!(
                r,
                GaugeVec,
                "paceline_clock_error_bound_seconds",
                "Largest error of a rank's aligned times.",
                ["run", "rank"]
            )),
            dropped: family!(
                r,
                CounterVec,
                "paceline_records_dropped_total",
                "Records a rank lost since its process began, as its agent counts them.",
                ["run", "rank", "reason"]
            ),
            last_step: family!(
                r,
                GaugeVec,
                "paceline_last_step_timestamp_seconds",
                "When the newest step ended, Unix time.",
                ["run"]
            ),
            ranks_reporting: family!(
                r,
                GaugeVec,
                "paceline_ranks_reporting",
                "Ranks heard from in the last ten seconds.",
                ["run"]
            ),
            ranks_expected: family!(r, GaugeVec, "paceline_ranks_expected", "Ranks the run has.", ["run"]),
            own_overhead: family!(
                r,
                GaugeVec,
                "paceline_own_overhead_ratio",
                "What recording costs the job, from shadow steps; noise may make it negative.",
                ["run"]
            ),
            own_overhead_bound: family!(
                r,
                GaugeVec,
                "paceline_own_overhead_bound_ratio",
                "Ends of the 95 % interval of paceline_own_overhead_ratio.",
                ["run", "bound"]
            ),
            state: family!(
                r,
                GaugeVec,
                "paceline_run_state",
                "1 for the state the run is in, 0 for the others.",
                ["run", "state"]
            ),
            rank_hung: RankGauge::new(family!(
                r,
                GaugeVec,
                "paceline_rank_hung",
                "1 for each rank that a hung run waits for.",
                ["run", "rank"]
            )),
            rank_reporting: RankGauge::new(family!(
                r,
                GaugeVec,
                "paceline_rank_reporting",
                "1 where a rank was heard from in the last ten seconds, else 0; none once it said goodbye.",
                ["run", "rank"]
            )),
            hung: family!(
                r,
                GaugeVec,
                "paceline_run_hung",
                "1 while no step completes for max(10 x median step, 10 s).",
                ["run"]
            ),
            late_records: family!(
                r,
                GaugeVec,
                "paceline_late_records",
                "Records that came after their step had closed without them.",
                ["run"]
            ),
            unanalysed_steps: family!(
                r,
                GaugeVec,
                "paceline_unanalysed_steps",
                "Steps that no figure includes: too few ranks sent them, or they came faster than they are analysed.",
                ["run"]
            ),
            devices: DeviceMetrics::new(&mut r),
            server: ServerMetrics::new(&mut r),
            lifetimes: Lifetimes::default(),
            families: r,
        }
    }

    /// Adds closed steps of a run.
    pub fn observe_steps(&self, run: &Run, steps: &[Arc<StepAnalysis>]) {
        if steps.is_empty() {
            return;
        }
        if !self.admits(run) {
            return;
        }
        let id = run.id().as_str();
        for step in steps.iter().filter(|step| step.complete && !step.shadow) {
            self.step_seconds.with_label_values(&[id]).observe(seconds(step.step_nanos()));
            let bytes: u64 = step.collectives.iter().map(|collective| collective.bytes).sum();
            self.bucket_bytes.with_label_values(&[id]).inc_by(bytes as f64);
            if step.ranks.len() <= MOST_RANKS_IN_FULL {
                self.observe_ranks(id, step);
            }
            for collective in &step.collectives {
                let bucket = self.lifetimes.bucket_label(run.id(), collective.bucket.0);
                let transfer = collective.transfer_nanos.unwrap_or(collective.transfer_clock_free_nanos);
                let wait = collective.wait_nanos.unwrap_or(collective.wait_clock_free_nanos);
                self.bucket_transfer.with_label_values(&[id, &bucket]).observe(transfer / 1e9);
                self.bucket_wait.with_label_values(&[id, &bucket]).observe(wait / 1e9);
            }
        }
    }

    fn admits(&self, run: &Run) -> bool {
        let ranks = run.world_size() as usize;
        self.lifetimes.admits(run.id(), if ranks <= MOST_RANKS_IN_FULL { ranks } else { WORST_RANKS })
    }

    fn observe_ranks(&self, id: &str, step: &StepAnalysis) {
        for (rank, analysis) in step.present() {
            let rank = rank.to_string();
            for part in Part::ALL {
                let phase = part.name().replace(' ', "_");
                let labels = [id, &rank, &phase];
                self.phase_seconds.with_label_values(&labels).inc_by(seconds(analysis.part(part)));
            }
            let caused = analysis.caused_wait_nanos.max(0.0) / 1e9;
            self.straggler_wait.with_label_values(&[id, &rank]).inc_by(caused);
            let exposed = |kind: &str, part: Part| {
                self.exposed.with_label_values(&[id, &rank, kind]).inc_by(seconds(analysis.part(part)));
            };
            exposed("wait", Part::ExposedWait);
            exposed("transfer", Part::ExposedTransfer);
            self.comm.with_label_values(&[id, &rank]).inc_by(seconds(analysis.comm_nanos));
            self.hidden.with_label_values(&[id, &rank]).inc_by(seconds(analysis.hidden_nanos));
        }
    }

    /// Sets the gauges of a run; of one that is over, takes them away.
    pub fn observe_run(&self, run: &Run, shown: &RunSnapshot, now: ServerNanos) {
        let id = run.id().as_str();
        if run.is_over(now) {
            if self.lifetimes.ended(run.id(), Instant::now()) {
                let this = BTreeSet::from([id.to_owned()]);
                self.run_gauges().into_iter().for_each(|gauge| lifetime::forget(gauge, &this));
                self.rank_gauges().for_each(|gauge| gauge.forget(id));
                self.set_state(id, shown.summary.state);
            }
            return;
        }
        if !self.admits(run) {
            return;
        }
        self.set_state(id, shown.summary.state);
        self.set_run_gauges(id, run, shown);
        self.set_straggler_costs(id, shown);
        self.set_rank_gauges(id, run, shown, now);
    }

    fn set_state(&self, id: &str, is: RunState) {
        use RunState::{Completed, Failed, Hung, Running, Starting};
        for state in [Starting, Running, Hung, Completed, Failed] {
            let value = f64::from(u8::from(state == is));
            self.state.with_label_values(&[id, state.name()]).set(value);
        }
    }

    fn set_run_gauges(&self, id: &str, run: &Run, shown: &RunSnapshot) {
        let summary = &shown.summary;
        let Some(report) = &shown.report else { return };
        let set = |gauge: &GaugeVec, value: Option<f64>| match value {
            Some(value) => gauge.with_label_values(&[id]).set(value),
            // A figure that is not there has no series; it was never set, which is no error.
            None => drop(gauge.remove_label_values(&[id])),
        };
        set(&self.overlap, report.overlap_ratio);
        set(&self.throughput, report.throughput);
        set(&self.own_overhead, report.own_overhead_ratio);
        set(&self.ranks_expected, Some(f64::from(summary.ranks_expected)));
        set(&self.ranks_reporting, Some(f64::from(summary.ranks_reporting)));
        set(&self.hung, Some(f64::from(u8::from(summary.state == RunState::Hung))));
        set(&self.late_records, Some(run.late_records() as f64));
        set(&self.unanalysed_steps, Some(run.unanalysed_steps() as f64));
        let newest = shown.steps.last();
        set(&self.last_step, newest.and_then(|step| Some(step.window?.1.0 as f64 / 1e9)));
        for (kind, value) in
            [("implied", report.scaling_efficiency.implied), ("measured", report.scaling_efficiency.measured)]
        {
            match value {
                Some(value) => self.efficiency.with_label_values(&[id, kind]).set(value),
                None => drop(self.efficiency.remove_label_values(&[id, kind])),
            }
        }
        if let Some(own) = report.own_overhead {
            self.own_overhead_bound.with_label_values(&[id, "low"]).set(own.low);
            self.own_overhead_bound.with_label_values(&[id, "high"]).set(own.high);
        }
    }

    /// The verdicts against ranks. One that is resolved or gone is set to 0, so that an alert on it resolves.
    fn set_straggler_costs(&self, id: &str, shown: &RunSnapshot) {
        for family in prometheus::core::Collector::collect(&self.straggler_cost) {
            for metric in family.get_metric() {
                let label = |name: &str| {
                    let pair = metric.get_label().iter().find(|pair| pair.name() == name);
                    pair.map(|pair| pair.value().to_owned()).unwrap_or_default()
                };
                if label("run") == id {
                    self.straggler_cost.with_label_values(&[id, &label("rank"), &label("cause")]).set(0.0);
                }
            }
        }
        let is_there = |verdict: &&Verdict| verdict.state != VerdictState::Resolved;
        for verdict in shown.report.iter().flat_map(|report| &report.verdicts).filter(is_there) {
            for rank in verdict.culprit.iter().flat_map(Culprit::ranks) {
                let labels = [id, &rank.to_string(), verdict.cause.name()];
                self.straggler_cost.with_label_values(&labels).set(verdict.cost_share);
            }
        }
    }

    fn set_rank_gauges(&self, id: &str, run: &Run, shown: &RunSnapshot, now: ServerNanos) {
        let ranks = run.world_size();
        if let Some(step) = shown.steps.last() {
            let mut late: Vec<(usize, f64)> = step
                .present()
                .filter_map(|(rank, analysis)| Some((rank, analysis.lateness_nanos? / 1e9)))
                .collect();
            if late.len() > MOST_RANKS_IN_FULL {
                late.sort_by(|a, b| b.1.total_cmp(&a.1));
                late.truncate(WORST_RANKS);
            }
            self.lateness.set(id, late);
        }
        let in_full = ranks as usize <= MOST_RANKS_IN_FULL;
        let most = if in_full { MOST_RANKS_IN_FULL } else { WORST_RANKS };
        let reporting = run.reporting(now).filter(|&(_, reports)| in_full || !reports);
        let reporting = reporting.map(|(rank, reports)| (rank, f64::from(u8::from(reports))));
        self.rank_reporting.set(id, reporting.take(most));
        let hung = shown.summary.hang.iter().flat_map(|hang| &hang.ranks).map(|rank| (rank.0 as usize, 1.0));
        self.rank_hung.set(id, hung.take(most));
        let bounds = run.clock_bounds().take(most);
        self.clock_bound.set(id, bounds.map(|(rank, bound)| (rank, seconds(bound))));
        self.devices.observe(id, run, most);
        if in_full {
            // A counter that begins above 0 would hide its first losses from `increase`.
            for (rank, reason) in (0..ranks).flat_map(|rank| DropReason::ALL.map(|reason| (rank, reason))) {
                self.dropped.with_label_values(&[id, &rank.to_string(), reason.name()]);
            }
        }
        for (rank, reason, count) in run.drop_counts().into_iter().take(most) {
            let counter = self.dropped.with_label_values(&[id, &rank.to_string(), reason.name()]);
            // The agent counts; a restarted agent counts from zero, a counter never goes back.
            counter.inc_by((count as f64 - counter.get()).max(0.0));
        }
    }

    /// The text exposition format.
    ///
    /// # Errors
    /// When a family cannot be written, which means a bug in the names above.
    pub fn encode(&self) -> Result<String, prometheus::Error> {
        self.forget_ended(Instant::now());
        self.server.without_series.set(self.lifetimes.without() as i64);
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.families.registry.gather(), &mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Names of all families, whether or not they have a series yet.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.families.names
    }

    /// Runs that ended long enough ago leave nothing behind. Done at a scrape: without one nobody would see it.
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

    /// Gauges of whole runs but the state, which outlives them, and of culprits.
    fn run_gauges(&self) -> [&GaugeVec; 12] {
        [
            &self.overlap,
            &self.efficiency,
            &self.throughput,
            &self.straggler_cost,
            &self.last_step,
            &self.ranks_reporting,
            &self.ranks_expected,
            &self.own_overhead,
            &self.own_overhead_bound,
            &self.hung,
            &self.late_records,
            &self.unanalysed_steps,
        ]
    }

    /// Gauges of ranks.
    fn rank_gauges(&self) -> impl Iterator<Item = &RankGauge> {
        let own = [&self.lateness, &self.clock_bound, &self.rank_hung, &self.rank_reporting];
        own.into_iter().chain(self.devices.gauges())
    }

    /// All gauges but the state.
    #[cfg(test)]
    fn gauges(&self) -> Vec<&GaugeVec> {
        let ranks = self.rank_gauges().map(RankGauge::family);
        self.run_gauges().into_iter().chain(ranks).collect()
    }

    fn counters(&self) -> [&CounterVec; 7] {
        [
            &self.phase_seconds,
            &self.straggler_wait,
            &self.exposed,
            &self.comm,
            &self.hidden,
            &self.bucket_bytes,
            &self.dropped,
        ]
    }

    fn histograms(&self) -> [&HistogramVec; 3] {
        [&self.step_seconds, &self.bucket_transfer, &self.bucket_wait]
    }
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

#[cfg(test)]
mod tests;
