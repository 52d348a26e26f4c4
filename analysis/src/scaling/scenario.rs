//! What-ifs of the latency-bandwidth model: another network, other buckets, other numbers of ranks.

use wire::batch::MAX_RANKS;
use wire::views::scaling::{Predicted, Scenario, ScenarioPrediction};
use wire::views::{Missing, Report};

use super::fit::{Fit, Latency, Unevenness};
use super::model::Model;
use crate::step::StepAnalysis;
use crate::wording;

/// The largest factor of bandwidth and latency, and the largest compression ratio.
const MOST: f64 = 1_000.0;
/// The share of a change of transfers that is added to each end of a band: how far real transfers were from the model, over networks
/// of a known bandwidth (`benches/README.md`, "what-if").
const OF_CHANGE: f64 = 0.1;
/// The largest bucket cap, in MiB.
const MAX_CAP_MIB: f64 = 65_536.0;

/// The reason why a scenario has no prediction.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum NotPredicted {
    /// A value is out of its range.
    #[error("{name} is {value}: it must be {range}")]
    OutOfRange {
        /// The name of the value.
        name: &'static str,
        value: f64,
        /// The range, as a phrase.
        range: String,
    },
    /// The run cannot be modeled.
    #[error("{0}")]
    Missing(Missing),
    /// The times at which gradients become ready are known for one bucket only.
    #[error("a bucket cap is predicted from a run with at least two buckets, and this run has one")]
    OneBucket,
}

/// Predicts the step of a run with the changes of `scenario`. `own` is the report of the run, and `steps` are its stored steps.
///
/// # Errors
/// Returns an error if a value is out of its range, or if the run cannot be modeled.
pub fn predict(
    own: &Report,
    steps: &[&StepAnalysis],
    scenario: Scenario,
) -> Result<ScenarioPrediction, NotPredicted> {
    check(&scenario)?;
    let model = Model::from_report(own, steps).map_err(NotPredicted::Missing)?;
    let ranks = scenario.ranks.unwrap_or(own.ranks);
    let step_nanos = step(&model, &scenario).ok_or(NotPredicted::OneBucket)?;
    let batch = own.batch.value().map(|batch| batch * f64::from(ranks));
    let now_nanos = model.fit().step(own.ranks, Latency::Ring, Unevenness::Grows);
    Ok(ScenarioPrediction {
        scenario,
        ranks,
        step_nanos,
        now_nanos,
        throughput: batch.map(|batch| inverse(batch * 1e9, &step_nanos)),
        efficiency: inverse(model.fit().profile.alone(), &step_nanos),
        sentence: wording::scenario::sentence(&step_nanos, now_nanos),
        assumptions: wording::scenario::assumptions(&scenario, own.ranks),
    })
}

/// Returns the step time with its band, in nanoseconds; `None` if a bucket cap cannot be predicted.
fn step(model: &Model, scenario: &Scenario) -> Option<Predicted> {
    let fit = model.fit();
    let value = fit.changed_step(scenario, Latency::Ring, Unevenness::Grows)?;
    let changed_step =
        |fit: &Fit, latency, unevenness| fit.changed_step(scenario, latency, unevenness).unwrap_or(value);
    let (mut low, mut high) = model.band(
        |fit| changed_step(fit, Latency::Tree, Unevenness::Stays),
        |fit| changed_step(fit, Latency::Ring, Unevenness::GrowsMost),
    );
    if scenario.cap_mib.is_some() {
        // A fit to few bucket sizes says little about the latency. Without latency, many small buckets cost as much as a few large
        // ones.
        let without_latency = changed_step(&fit.proportional(), Latency::Ring, Unevenness::Grows);
        (low, high) = (low.min(without_latency), high.max(without_latency));
    }
    let error = match scenario.ranks {
        // The step of one rank does not use the communication model.
        Some(1) => 1.0,
        _ => 1.0 + model.band_error() + cap_error(fit, scenario),
    };
    let margin = OF_CHANGE * changed_transfers(fit, scenario, value);
    let low = (low.min(value) / error - margin).max(fit.profile.alone().min(value));
    Some(Predicted { value, low, high: high.max(value) * error + margin })
}

/// Returns `work` / step time, with the band of the step time.
fn inverse(work: f64, step: &Predicted) -> Predicted {
    Predicted { value: work / step.value, low: work / step.high, high: work / step.low }
}

/// Returns the exposed time of transfers that is not as observed, in nanoseconds: what another network changes, or all of it with
/// other buckets. `step` is the predicted step.
fn changed_transfers(fit: &Fit, scenario: &Scenario, step: f64) -> f64 {
    let ranks = scenario.ranks.unwrap_or(fit.ranks);
    let exposed =
        |step: f64| step - fit.profile.alone() - fit.steady - fit.turns_on(ranks, Unevenness::Grows);
    let on_these_links = fit.step(ranks, Latency::Ring, Unevenness::Grows);
    match scenario.cap_mib {
        _ if ranks == 1 => 0.0,
        Some(_) => exposed(step).max(exposed(on_these_links)).max(0.0),
        None => (step - on_these_links).abs(),
    }
}

/// Returns the relative error that another bucket cap adds: how far the step with all buckets of the largest present size,
/// and transfers from the model, is from the step with the buckets as they are.
fn cap_error(fit: &Fit, scenario: &Scenario) -> f64 {
    if scenario.cap_mib.is_none() {
        return 0.0;
    }
    let [with_cap, as_it_is] = [Some(fit.profile.largest()), None].map(|cap_bytes| {
        let cap_mib = cap_bytes.map(|bytes| bytes / f64::from(1 << 20));
        fit.changed_step(&Scenario { cap_mib, ..Scenario::default() }, Latency::Ring, Unevenness::Grows)
    });
    with_cap.zip(as_it_is).map_or(0.0, |(with_cap, as_it_is)| (with_cap / as_it_is - 1.0).abs())
}

impl Fit {
    /// Returns the step time with the changes of `scenario`; `None` if a bucket cap cannot be predicted.
    pub(super) fn changed_step(
        &self,
        scenario: &Scenario,
        latency: Latency,
        unevenness: Unevenness,
    ) -> Option<f64> {
        let ranks = scenario.ranks.unwrap_or(self.ranks);
        if ranks == 1 {
            return Some(self.profile.alone());
        }
        let (alpha, beta) = (self.comm.alpha_seconds * 1e9, self.comm.beta_seconds_per_byte * 1e9);
        let (hops, volume) = self.growth(ranks, latency);
        // The slowest link of a ring holds up all of it.
        let per_byte = beta * volume / (scenario.bandwidth * scenario.link * scenario.compression);
        let transfer = |bytes: f64| alpha * hops * scenario.latency + per_byte * bytes;
        let even = match scenario.cap_mib {
            Some(mib) => self.profile.with_cap((mib * f64::from(1 << 20)).max(1.0) as u64, transfer)?,
            None => self.profile.step(|bytes| transfer(bytes) - alpha - beta * bytes),
        };
        Some(even + self.steady + self.turns_on(ranks, unevenness))
    }
}

fn check(scenario: &Scenario) -> Result<(), NotPredicted> {
    let Scenario { ranks, bandwidth, link, latency, compression, cap_mib } = *scenario;
    let check_range = |name, value: f64, (least, most): (f64, f64)| {
        if value >= least && value <= most {
            return Ok(());
        }
        Err(NotPredicted::OutOfRange { name, value, range: format!("from {least} to {most}") })
    };
    check_range("ranks", f64::from(ranks.unwrap_or(1)), (1.0, f64::from(MAX_RANKS)))?;
    check_range("bandwidth", bandwidth, (1.0 / MOST, MOST))?;
    check_range("link", link, (1.0 / MOST, 1.0))?;
    check_range("latency", latency, (0.0, MOST))?;
    check_range("compression", compression, (1.0, MOST))?;
    check_range("the bucket cap in MiB", cap_mib.unwrap_or(1.0), (1.0 / MOST, MAX_CAP_MIB))
}

#[cfg(test)]
mod tests;
