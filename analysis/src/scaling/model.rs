//! Predictions for other world sizes and bucket caps, from what one run shows.
//!
//! The usual step of the run (means over ranks and steps) is replayed with the transfers that the latency-bandwidth model
//! predicts, and the cost of the ranks' unevenness is added.

use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;
use wire::views::scaling::{CapPrediction, Scaling, ScalingPrediction};
use wire::views::{Missing, Report};

use super::fit::{Differences, Fit, Latency, Sample, Unevenness};
use crate::step::StepAnalysis;
use crate::{report, stats, wording};

/// The world sizes to predict.
pub(super) const WORLDS: [u32; 15] =
    [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024, 2_048, 4_096, 8_192, 16_384];
/// The bucket caps to predict, in KiB.
const CAPS_KIB: [u64; 10] = [128, 256, 512, 1_024, 2_048, 4_096, 8_192, 16_384, 25_600, 65_536];
/// The smallest relative gain for which a bucket cap is advised.
const MIN_GAIN: f64 = 0.01;
/// The number of times that steps are drawn again to find out how much their choice matters.
const RESAMPLES: u64 = 40;
/// The largest number of steps of ranks whose differences are drawn again. The choice of more of them matters little, and
/// sorting them takes long.
const MOST_DRAWN_AGAIN: usize = 20_000;
/// The share of the resamples that the band leaves out at each end.
const LEFT_OUT: f64 = 0.025;
/// The smallest relative error that is assumed of the model: what it leaves out even in simulated jobs.
const LEAST_ERROR: f64 = 0.005;

/// The model behind the predictions; times in nanoseconds.
pub struct Model {
    fit: Fit,
    /// The model fitted to steps that were drawn from the same steps.
    resampled: Vec<Fit>,
}

impl Model {
    /// Fits the model of a run.
    ///
    /// # Errors
    /// Returns an error if the run cannot be modeled.
    pub fn from_report(own: &Report, steps: &[&StepAnalysis]) -> Result<Self, Missing> {
        if own.ranks < 2 {
            return Err(Missing::OneRankReducesNothing);
        }
        if let Some(why @ Missing::Unclear { .. }) = own.overlap_ratio.reason() {
            return Err(why.clone());
        }
        let comm = own.comm_model.as_result().map_err(Missing::clone)?;
        let observed: Vec<&StepAnalysis> = steps
            .iter()
            .copied()
            .filter(|step| step.ranks.len() == own.ranks as usize)
            .filter(|step| report::is_observed(step) && !step.is_only_enqueued())
            .collect();
        let samples: Vec<Sample> = observed
            .iter()
            .filter_map(|&step| {
                let replay = step.replay.as_ref().filter(|replay| replay.is_trusted())?;
                Some(Sample { step, replay })
            })
            .collect();
        if samples.len() * 2 <= observed.len() {
            let inaccurate = (observed.len() - samples.len()) as u64;
            return Err(Missing::InaccurateReplay { inaccurate, steps: observed.len() as u64 });
        }
        if let Some(why) = samples.iter().find_map(|sample| sample.replay.unpredictable.clone()) {
            return Err(why);
        }
        let differences = Differences::new(&samples, own.ranks);
        let fit = Fit::new(&samples, own.ranks, comm, differences.clone()).ok_or(Missing::NoAllReduce)?;
        let is_small = samples.len() * own.ranks as usize <= MOST_DRAWN_AGAIN;
        let resampled = (0..RESAMPLES).filter_map(|seed| {
            let drawn = resample(&samples, seed);
            let differences =
                if is_small { Differences::new(&drawn, own.ranks) } else { differences.clone() };
            Fit::new(&drawn, own.ranks, comm, differences)
        });
        Ok(Self { resampled: resampled.collect(), fit })
    }

    /// Adds the predictions to a view.
    pub(super) fn fill(&self, scaling: &mut Scaling) {
        let mut worlds = WORLDS.to_vec();
        worlds.push(self.fit.ranks);
        worlds.sort_unstable();
        worlds.dedup();
        scaling.predictions = worlds.into_iter().map(|ranks| self.predict(ranks)).collect();
        scaling.model_error = Some(self.error());
        scaling.assumptions = wording::assumptions(self.fit.ranks);
        scaling.caps = self.caps();
        scaling.cap_advice = self.advice(&scaling.caps);
    }

    /// Returns (predicted - measured) / measured at the run's own world size.
    #[must_use]
    pub fn error(&self) -> f64 {
        self.fit.step(self.fit.ranks, Latency::Ring, Unevenness::Grows) / self.fit.measured - 1.0
    }

    /// Predicts the step on `ranks` ranks with the batch per rank unchanged. The efficiency is weak scaling against one
    /// rank: the predicted step of one rank over the predicted step. It is 1 on one rank and never above 1.
    #[must_use]
    pub fn predict(&self, ranks: u32) -> ScalingPrediction {
        let efficiency = self.efficiency(ranks);
        let (low, high) = self.band(
            |fit| fit.efficiency(ranks, Latency::Ring, Unevenness::GrowsMost),
            |fit| fit.efficiency(ranks, Latency::Tree, Unevenness::Stays),
        );
        // The prediction for one rank does not use the communication model, so the model's error does not widen its
        // band.
        let error = if ranks == 1 { 0.0 } else { self.band_error() };
        ScalingPrediction {
            ranks,
            step_nanos: self.fit.step(ranks, Latency::Ring, Unevenness::Grows),
            efficiency,
            efficiency_low: low.min(efficiency) / (1.0 + error),
            efficiency_high: (high.max(efficiency) * (1.0 + error)).min(1.0),
        }
    }

    /// Returns the model as it is fitted to all steps.
    pub(super) fn fit(&self) -> &Fit {
        &self.fit
    }

    /// Returns the relative error of the model by which a band is wider at each end.
    pub(super) fn band_error(&self) -> f64 {
        self.error().abs().max(LEAST_ERROR)
    }

    /// Returns the ends of a band over all fits: of the smallest figure that the assumptions allow, and of the largest one.
    pub(super) fn band(&self, least: impl Fn(&Fit) -> f64, most: impl Fn(&Fit) -> f64) -> (f64, f64) {
        (stats::quantile(&self.drawn(least), LEFT_OUT), stats::quantile(&self.drawn(most), 1.0 - LEFT_OUT))
    }

    /// Returns the predicted weak-scaling efficiency on `ranks` ranks, against one rank; at most 1.
    #[must_use]
    pub fn efficiency(&self, ranks: u32) -> f64 {
        self.fit.efficiency(ranks, Latency::Ring, Unevenness::Grows)
    }

    /// Returns a figure of all fits, ascending.
    fn drawn(&self, figure: impl Fn(&Fit) -> f64) -> Vec<f64> {
        let mut figures: Vec<f64> = self.resampled.iter().chain([&self.fit]).map(figure).collect();
        figures.sort_by(f64::total_cmp);
        figures
    }

    pub(super) fn caps(&self) -> Vec<CapPrediction> {
        let Fit { profile, comm, steady, turns, .. } = &self.fit;
        let total = profile.bytes();
        let caps = CAPS_KIB.iter().map(|kib| kib * 1_024);
        let smallest_whole = caps.clone().find(|cap| *cap >= total).unwrap_or(u64::MAX);
        let (alpha, beta) = (comm.alpha_seconds * 1e9, comm.beta_seconds_per_byte * 1e9);
        caps.filter(|cap| *cap <= smallest_whole)
            .filter_map(|cap_bytes| {
                let step = profile.with_cap(cap_bytes, |bytes| alpha + beta * bytes)?;
                let exposed_nanos = (step - profile.alone()).max(0.0);
                Some(CapPrediction { cap_bytes, step_nanos: step + steady + turns, exposed_nanos })
            })
            .collect()
    }

    pub(super) fn advice(&self, caps: &[CapPrediction]) -> Option<String> {
        let now = self.fit.step(self.fit.ranks, Latency::Ring, Unevenness::Grows);
        let best = caps.iter().min_by(|a, b| a.step_nanos.total_cmp(&b.step_nanos))?;
        let gain = 1.0 - best.step_nanos / now;
        (gain >= MIN_GAIN).then(|| wording::cap_advice(best, now))
    }
}

/// Draws as many samples as there are, in blocks of neighboring steps, because slow steps often follow each other (moving
/// block bootstrap; Künsch, 1989). The blocks have the cube root of the number of samples (Hall et al., 1995).
fn resample<'a>(samples: &[Sample<'a>], seed: u64) -> Vec<Sample<'a>> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let block = (samples.len() as f64).cbrt().ceil().max(1.0) as usize;
    let mut drawn = Vec::with_capacity(samples.len() + block);
    while drawn.len() < samples.len() {
        let at = random.random_range(0..=samples.len().saturating_sub(block));
        drawn.extend_from_slice(&samples[at..(at + block).min(samples.len())]);
    }
    drawn.truncate(samples.len());
    drawn
}

#[cfg(test)]
pub(super) mod tests;
