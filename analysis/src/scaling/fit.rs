//! What the steps of a run say about its step on other numbers of ranks.

use wire::views::AlphaBeta;

use super::growth::Deviations;
use super::profile::Profile;
use crate::replay::Replay;
use crate::step::StepAnalysis;
use crate::{comm_model, stats};

/// A step that the model is fitted to.
#[derive(Clone, Copy)]
pub(super) struct Sample<'a> {
    pub(super) step: &'a StepAnalysis,
    pub(super) replay: &'a Replay,
}

impl Sample<'_> {
    /// The time that the step adds to the run.
    fn added(&self) -> f64 {
        self.replay.measured_nanos - self.replay.skew_nanos
    }

    /// What the ranks' unevenness costs.
    fn uneven(&self) -> f64 {
        self.replay.even_nanos.into()
    }
}

/// How the latency of an all-reduce grows with the number of ranks.
#[derive(Clone, Copy)]
pub(super) enum Latency {
    /// With the number of ranks less 1.
    Ring,
    /// With its logarithm.
    Tree,
}

impl Latency {
    fn hops(self, ranks: u32) -> f64 {
        match self {
            Self::Ring => f64::from(ranks) - 1.0,
            Self::Tree => f64::from(ranks).log2(),
        }
    }
}

/// How the ranks' unevenness grows with their number.
#[derive(Clone, Copy)]
pub(super) enum Unevenness {
    /// Like the slowest of as many draws from what was observed.
    Grows,
    /// As much as what was observed allows.
    GrowsMost,
    /// Not at all.
    Stays,
}

/// The model, fitted to some steps; times in nanoseconds.
#[derive(Clone)]
pub(super) struct Fit {
    pub(super) profile: Profile,
    pub(super) comm: AlphaBeta,
    pub(super) ranks: u32,
    /// The mean time that a step adds to the run.
    pub(super) measured: f64,
    /// The cost of steady differences between the ranks.
    pub(super) steady: f64,
    /// The cost of differences that change from step to step.
    pub(super) turns: f64,
    pub(super) deviations: Deviations,
}

/// How the ranks' work differs.
#[derive(Clone)]
pub(super) struct Differences {
    /// How much longer the work of the slowest rank is than the mean over ranks.
    steady: f64,
    deviations: Deviations,
}

impl Differences {
    pub(super) fn new(samples: &[Sample], ranks: u32) -> Self {
        let works = works(samples, ranks);
        Self { steady: steady(&works), deviations: Deviations::new(&works) }
    }
}

impl Fit {
    /// Fits the model; `None` if the steps have no all-reduce. `whole` is the communication model of the report, which
    /// also holds if these steps have buckets of one size only.
    pub(super) fn new(
        samples: &[Sample],
        ranks: u32,
        whole: &AlphaBeta,
        differences: Differences,
    ) -> Option<Self> {
        let replays: Vec<&Replay> = samples.iter().map(|sample| sample.replay).collect();
        let profile = Profile::new(&replays)?;
        let comm = comm_model::fit(&profile.transfers()).unwrap_or_else(|| whole.clone());
        let measured = stats::mean(samples.iter().map(Sample::added))?;
        let uneven = stats::mean(samples.iter().map(Sample::uneven))?.max(0.0);
        let steady = differences.steady.clamp(0.0, uneven);
        let deviations = differences.deviations;
        Some(Self { profile, comm, ranks, measured, steady, turns: uneven - steady, deviations })
    }

    /// Returns the predicted step time on `ranks` ranks.
    pub(super) fn step(&self, ranks: u32, latency: Latency, unevenness: Unevenness) -> f64 {
        if ranks == 1 {
            return self.profile.alone();
        }
        let (hops, volume) = self.growth(ranks, latency);
        let (alpha, beta) = (self.comm.alpha_seconds * 1e9, self.comm.beta_seconds_per_byte * 1e9);
        let even = self.profile.step(|bytes| alpha * (hops - 1.0) + beta * (volume - 1.0) * bytes);
        even + self.steady + self.turns_on(ranks, unevenness)
    }

    /// Returns the fit with transfers that are proportional to their sizes.
    pub(super) fn proportional(&self) -> Self {
        let transfers = self.profile.transfers();
        let (bytes, seconds) =
            transfers.iter().fold((0.0, 0.0), |(bytes, seconds), of| (bytes + of.0 as f64, seconds + of.1));
        let beta = if bytes > 0.0 { seconds / bytes } else { 0.0 };
        let comm = AlphaBeta { alpha_seconds: 0.0, beta_seconds_per_byte: beta, ..self.comm.clone() };
        Self { comm, ..self.clone() }
    }

    /// Returns how many times as long the latency of an all-reduce, and how many times as large its volume per rank, is on
    /// `ranks` ranks.
    pub(super) fn growth(&self, ranks: u32, latency: Latency) -> (f64, f64) {
        let share = |ranks: u32| (f64::from(ranks) - 1.0) / f64::from(ranks);
        (latency.hops(ranks) / latency.hops(self.ranks), share(ranks) / share(self.ranks))
    }

    /// Returns the cost, on `ranks` ranks, of differences that change from step to step.
    pub(super) fn turns_on(&self, ranks: u32, unevenness: Unevenness) -> f64 {
        match unevenness {
            Unevenness::Grows => self.deviations.grown(self.turns, self.ranks, ranks),
            Unevenness::GrowsMost => self.deviations.grown_most(self.turns, self.ranks, ranks),
            Unevenness::Stays => self.deviations.grown(self.turns, self.ranks, ranks).min(self.turns),
        }
    }

    /// Returns the efficiency against one rank; at most 1.
    pub(super) fn efficiency(&self, ranks: u32, latency: Latency, unevenness: Unevenness) -> f64 {
        (self.profile.alone() / self.step(ranks, latency, unevenness)).min(1.0)
    }
}

/// Returns how much longer the work of the slowest rank is than the mean over ranks, less what chance alone would show: the
/// expected maximum (Blom, 1958) of the means' standard errors.
fn steady(works: &[Vec<f64>]) -> f64 {
    let means: Vec<f64> = works.iter().filter_map(|works| stats::mean(works.iter().copied())).collect();
    let longest = means.iter().copied().fold(0.0, f64::max);
    let found = longest - stats::mean(means).unwrap_or(longest);
    let error = |works: &Vec<f64>| Some(stats::deviation(works)? / (works.len() as f64).sqrt());
    let chance = stats::mean(works.iter().filter_map(error)).unwrap_or(0.0) * expected_maximum(works.len());
    (found.powi(2) - chance.powi(2)).max(0.0).sqrt()
}

/// Returns the expected maximum of standard normal draws (Blom, 1958).
fn expected_maximum(draws: usize) -> f64 {
    let n = draws as f64;
    if draws < 2 { 0.0 } else { stats::normal_quantile((n - 0.375) / (n + 0.25)) }
}

/// Returns the local work of each rank in each step.
fn works(samples: &[Sample], ranks: u32) -> Vec<Vec<f64>> {
    let mut works = vec![Vec::new(); ranks as usize];
    for (rank, analysis) in samples.iter().flat_map(|sample| sample.step.present()) {
        if let Some(works) = works.get_mut(rank) {
            works.push(analysis.own_nanos() as f64);
        }
    }
    works
}
