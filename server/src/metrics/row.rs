//! The series of one family.

use std::collections::BTreeSet;

use analysis::step::{CollectiveAnalysis, StepAnalysis};
use prometheus::core::Collector;
use prometheus::{CounterVec, GaugeVec, HistogramOpts, HistogramVec, Opts};
use wire::views::RunState;

use super::families::{Families, duration_buckets};
use super::family::{Family, RankInStep, Values};
use super::ranks::RankGauge;
use super::series::forget;
use super::{RunValues, seconds};

/// A registered family.
pub(super) struct Row {
    pub(super) family: &'static Family,
    pub(super) metric: Metric,
}

pub(super) enum Metric {
    Counter(CounterVec),
    Gauge(GaugeVec),
    Ranks(RankGauge),
    Histogram(HistogramVec),
}

impl Row {
    pub(super) fn register(family: &'static Family, families: &mut Families) -> Self {
        const VALID: &str = "the name and labels are valid";
        let labels = [&["run"], family.labels].concat();
        let opts = Opts::new(family.name, family.help);
        let metric = match family.values {
            Values::StepTime { from, .. } | Values::BucketTime { from, .. } => {
                let opts = HistogramOpts::from(opts).buckets(duration_buckets(from));
                Metric::Histogram(families.add(HistogramVec::new(opts, &labels).expect(VALID)))
            }
            Values::StepCount(_) | Values::RankTime(_) | Values::Total(_) => {
                Metric::Counter(families.add(CounterVec::new(opts, &labels).expect(VALID)))
            }
            Values::Gauge(_) | Values::Costs(_) | Values::State => {
                Metric::Gauge(families.add(GaugeVec::new(opts, &labels).expect(VALID)))
            }
            Values::Ranks(_) | Values::Device { .. } | Values::Host(_) => {
                Metric::Ranks(RankGauge::new(families.add(GaugeVec::new(opts, &labels).expect(VALID))))
            }
        };
        Self { family, metric }
    }

    /// Adds a complete step.
    pub(super) fn observe_step(&self, run: &str, step: &StepAnalysis) {
        match (&self.family.values, &self.metric) {
            (Values::StepTime { value, .. }, Metric::Histogram(histogram)) => {
                histogram.with_label_values(&[run]).observe(value(step));
            }
            (Values::StepCount(value), Metric::Counter(counter)) => {
                counter.with_label_values(&[run]).inc_by(value(step));
            }
            _ => {}
        }
    }

    /// Adds the times of a rank in a step, as often as the number of steps that it stands for.
    pub(super) fn observe_rank(&self, run: &str, rank: &str, step: &RankInStep<'_>, stands_for: f64) {
        if let (Values::RankTime(times), Metric::Counter(counter)) = (&self.family.values, &self.metric) {
            times(step, &mut |labels, nanos| {
                let counter = counter.with_label_values(&[&[run, rank], labels].concat());
                counter.inc_by(stands_for * seconds(nanos));
            });
        }
    }

    /// Adds a collective of a step.
    pub(super) fn observe_collective(&self, run: &str, bucket: &str, collective: &CollectiveAnalysis) {
        if let (Values::BucketTime { nanos, .. }, Metric::Histogram(histogram)) =
            (&self.family.values, &self.metric)
        {
            histogram.with_label_values(&[run, bucket]).observe(nanos(collective) / 1e9);
        }
    }

    /// Sets what is set from a snapshot.
    pub(super) fn set(&self, id: &str, run: &RunValues<'_>) {
        match (&self.family.values, &self.metric) {
            (Values::Gauge(values), Metric::Gauge(gauge)) => {
                if let Some(report) = run.report {
                    values(run, report, &mut |labels, value| set_or_remove(gauge, id, labels, value));
                }
            }
            (Values::Total(values), Metric::Counter(counter)) => {
                values(run, &mut |labels, value| {
                    let counter = counter.with_label_values(&[&[id], labels].concat());
                    counter.inc_by((value - counter.get()).max(0.0));
                });
            }
            (Values::Costs(_), Metric::Gauge(gauge)) => self.set_costs(gauge, id, run),
            (Values::State, _) => self.set_state(id, run.summary.state),
            (_, Metric::Ranks(gauge)) => self.set_ranks(gauge, id, run),
            _ => {}
        }
    }

    fn set_costs(&self, gauge: &GaugeVec, id: &str, run: &RunValues<'_>) {
        let Values::Costs(costs) = self.family.values else { return };
        set_to_zero(gauge, id, &[&["run"], self.family.labels].concat());
        for (labels, share) in run.report.map(costs).unwrap_or_default() {
            let labels: Vec<&str> = std::iter::once(id).chain(labels.iter().map(String::as_str)).collect();
            gauge.with_label_values(&labels).set(share);
        }
    }

    fn set_ranks(&self, gauge: &RankGauge, id: &str, run: &RunValues<'_>) {
        match &self.family.values {
            Values::Ranks(values) => values(run).into_iter().for_each(|values| gauge.set(id, values)),
            Values::Device { figure, factor } => {
                let devices = run.devices.iter().take(run.most_ranks());
                let value = |sample: &wire::device::DeviceSample| Some(sample.get(*figure)? as f64 * factor);
                gauge.set(id, devices.filter_map(|(rank, sample)| Some((*rank, value(sample)?))));
            }
            Values::Host(usage) => {
                let hosts = run.hosts.iter().take(run.most_ranks());
                gauge.set(
                    id,
                    hosts.filter_map(|(rank, sample)| {
                        let (_, value) = sample.iter().find(|(measure, _)| measure == usage)?;
                        Some((*rank, f64::from(*value)))
                    }),
                );
            }
            _ => {}
        }
    }

    /// Sets the state of a run, if this is the family of states.
    pub(super) fn set_state(&self, id: &str, state: RunState) {
        use RunState::{Completed, Failed, Hung, Running, Starting};
        if let (Values::State, Metric::Gauge(gauge)) = (&self.family.values, &self.metric) {
            for other in [Starting, Running, Hung, Completed, Failed] {
                gauge.with_label_values(&[id, other.name()]).set(f64::from(u8::from(other == state)));
            }
        }
    }

    /// Removes what describes the present of a run, because it is over. Its state remains.
    pub(super) fn forget_present(&self, id: &str) {
        match (&self.family.values, &self.metric) {
            (Values::State, _) => {}
            (_, Metric::Gauge(gauge)) => forget(gauge, &BTreeSet::from([id.to_owned()])),
            (_, Metric::Ranks(gauge)) => gauge.forget(id),
            (_, Metric::Counter(_) | Metric::Histogram(_)) => {}
        }
    }

    /// Removes all series of these runs.
    pub(super) fn forget(&self, runs: &BTreeSet<String>) {
        match &self.metric {
            Metric::Counter(counter) => forget(counter, runs),
            Metric::Gauge(gauge) => forget(gauge, runs),
            Metric::Ranks(gauge) => runs.iter().for_each(|run| gauge.forget(run)),
            Metric::Histogram(histogram) => forget(histogram, runs),
        }
    }
}

fn set_or_remove(gauge: &GaugeVec, id: &str, labels: &[&str], value: Option<f64>) {
    let labels = [&[id], labels].concat();
    match value {
        Some(value) => gauge.with_label_values(&labels).set(value),
        // Removing a series that was never set fails, which is harmless.
        None => drop(gauge.remove_label_values(&labels)),
    }
}

/// Sets a run's gauges to 0. `labels` are the names of their labels.
fn set_to_zero(gauge: &GaugeVec, id: &str, labels: &[&str]) {
    for family in gauge.collect() {
        for metric in family.get_metric() {
            let value = |name: &&str| {
                let pair = metric.get_label().iter().find(|pair| pair.name() == *name);
                pair.map(|pair| pair.value().to_owned()).unwrap_or_default()
            };
            let values: Vec<String> = labels.iter().map(value).collect();
            if values.first().is_some_and(|run| run == id) {
                gauge.with_label_values(&values).set(0.0);
            }
        }
    }
}
