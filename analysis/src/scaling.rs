//! Predictions for other world sizes and bucket caps, from what one run shows.
//!
//! The usual step of the run (means over ranks, medians of transfers) is replayed with the transfers that the
//! latency-bandwidth model predicts, and the cost of the ranks' unevenness is added.

use wire::ids::RunId;
use wire::views::scaling::{CapPrediction, Scaling, ScalingPoint, ScalingPrediction};
use wire::views::{AlphaBeta, BaselineRun, Missing, RankLedger, Report, RunSummary, ScalingRule};

use crate::baseline::{self, Work};
use crate::replay::Replay;
use crate::step::StepAnalysis;
use crate::{report, stats, wording};

mod profile;

use profile::Profile;

/// The world sizes to predict.
const WORLDS: [u32; 15] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024, 2_048, 4_096, 8_192, 16_384];
/// The bucket caps to predict, in KiB.
const CAPS_KIB: [u64; 10] = [128, 256, 512, 1_024, 2_048, 4_096, 8_192, 16_384, 25_600, 65_536];
/// The smallest relative gain for which a bucket cap is advised.
const MIN_GAIN: f64 = 0.01;
/// The factor on the growth of the unevenness at the lower end of the band, where it grows faster than under a normal
/// distribution.
const HEAVY_TAIL: f64 = 1.5;

/// The reason why a chosen run cannot be the baseline.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum NotABaseline {
    /// The run is not among the points.
    #[error("{run} is not a run named {name} with a throughput; choose one of the runs that this view lists")]
    NotAPoint {
        /// The chosen run.
        run: RunId,
        /// The name of the job.
        name: String,
    },
    /// The runs do not do the same work per rank.
    #[error(
        "{run} cannot be the baseline of {own}: they have neither the same batch per rank nor the same total batch, or \
         a batch is not known"
    )]
    OtherBatch {
        /// The chosen run.
        run: RunId,
        /// The run that was to be measured against it.
        own: RunId,
    },
}

/// Returns the content of the Scaling view of a run. `own` is the report of the run, `steps` are its stored steps, and
/// `runs` are candidates for points; only runs of the same name are used. `baseline` is the run to measure against;
/// `None` means the usual one.
///
/// # Errors
/// Returns an error if `baseline` is not a run of this name with the same batch per rank or the same total batch.
pub fn scaling(
    own: &Report,
    steps: &[&StepAnalysis],
    runs: impl Iterator<Item = RunSummary>,
    baseline: Option<&RunId>,
) -> Result<Scaling, NotABaseline> {
    let mut scaling = Scaling {
        run: own.run.clone(),
        name: own.name.clone(),
        ranks: own.ranks,
        sample_unit: own.sample_unit.clone(),
        baseline: None,
        rule: None,
        points: points(runs.filter(|run| run.name == own.name)),
        comm_model: own.comm_model.known().cloned(),
        predictions: Vec::new(),
        model_error: None,
        assumptions: Vec::new(),
        caps: Vec::new(),
        cap_advice: None,
        missing: None,
    };
    let base = match baseline {
        Some(run) => Some(chosen(run, &scaling.points, own)?),
        None => usual(own, &scaling.points),
    };
    if let Some(base) = base
        && measure(&mut scaling.points, &base)
    {
        scaling.rule = Some(base.rule);
        scaling.baseline = Some(base.run);
    }
    match Model::from_report(own, steps) {
        Ok(model) => model.fill(&mut scaling),
        Err(reason) => scaling.missing = Some(reason),
    }
    Ok(scaling)
}

fn points(runs: impl Iterator<Item = RunSummary>) -> Vec<ScalingPoint> {
    let point = |run: RunSummary| {
        Some(ScalingPoint {
            ranks: run.ranks_expected,
            throughput: run.throughput?,
            batch: run.batch,
            step_nanos: run.step_time_nanos? as f64,
            measured: None,
            implied: run.efficiency_implied,
            started_unix_millis: run.started_unix_millis,
            has_verdict: run.worst.is_some(),
            run: run.run,
        })
    };
    let mut points: Vec<ScalingPoint> = runs.filter_map(point).collect();
    points.sort_by_key(|point| (point.ranks, std::cmp::Reverse(point.started_unix_millis)));
    points
}

/// Returns this run's baseline, or this run if no run on fewer ranks can be it. Then most of the other runs tell the rule.
fn usual(own: &Report, points: &[ScalingPoint]) -> Option<BaselineRun> {
    let itself = || {
        // Runs on as many ranks with the same batch follow both rules.
        let others = points.iter().filter(|point| point.ranks != own.ranks);
        let rules = others.filter_map(|point| rule(point, own));
        let (weak, strong): (Vec<_>, Vec<_>) = rules.partition(|rule| *rule == ScalingRule::Weak);
        Some(BaselineRun {
            run: own.run.clone(),
            ranks: own.ranks,
            throughput: own.throughput.value()?,
            has_verdict: !own.verdicts.is_empty(),
            rule: if strong.len() > weak.len() { ScalingRule::Strong } else { ScalingRule::Weak },
        })
    };
    own.baseline.clone().or_else(itself)
}

fn chosen(run: &RunId, points: &[ScalingPoint], own: &Report) -> Result<BaselineRun, NotABaseline> {
    let point = points.iter().find(|point| point.run == *run);
    let point = point.ok_or_else(|| NotABaseline::NotAPoint { run: run.clone(), name: own.name.clone() })?;
    let other_batch = || NotABaseline::OtherBatch { run: run.clone(), own: own.run.clone() };
    if point.run == own.run {
        return usual(&Report { baseline: None, ..own.clone() }, points).ok_or_else(other_batch);
    }
    let rule = rule(point, own).ok_or_else(other_batch)?;
    let (ranks, throughput, has_verdict) = (point.ranks, point.throughput, point.has_verdict);
    Ok(BaselineRun { run: run.clone(), ranks, throughput, has_verdict, rule })
}

fn work(point: &ScalingPoint) -> Option<Work> {
    Some(Work { batch: point.batch?, ranks: point.ranks })
}

fn rule(point: &ScalingPoint, own: &Report) -> Option<ScalingRule> {
    work(point)?.rule(Work { batch: own.batch.value()?, ranks: own.ranks })
}

/// Computes the measured efficiency of every run that has the baseline's batch per rank or total batch, by the rule of the
/// baseline. Returns whether there is such a run besides the baseline; without one, nothing is measured.
fn measure(points: &mut [ScalingPoint], base: &BaselineRun) -> bool {
    let Some(of_base) = points.iter().find(|point| point.run == base.run).and_then(work) else {
        return false;
    };
    let follows = |point: &ScalingPoint| {
        point.run == base.run || work(point).is_some_and(|work| work.follows(base.rule, of_base))
    };
    if !points.iter().any(|point| point.run != base.run && follows(point)) {
        return false;
    }
    for point in points.iter_mut().filter(|point| follows(point)) {
        point.measured =
            Some(baseline::efficiency((point.throughput, point.ranks), (base.throughput, base.ranks)));
    }
    true
}

/// The model behind the predictions; times in nanoseconds.
pub struct Model {
    profile: Profile,
    comm: AlphaBeta,
    ranks: u32,
    /// The mean step time.
    measured: f64,
    /// The cost of steady differences between the ranks.
    steady: f64,
    /// The cost of differences that change from step to step.
    turns: f64,
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
        let comm = own.comm_model.as_result().map_err(Missing::clone)?.clone();
        let observed = || steps.iter().filter(|step| report::is_observed(step) && !step.is_only_enqueued());
        let replays: Vec<&Replay> =
            observed().filter_map(|step| step.replay.as_ref()).filter(|replay| replay.is_trusted()).collect();
        let steps = observed().count();
        if replays.len() * 2 <= steps {
            let inaccurate = (steps - replays.len()) as u64;
            return Err(Missing::InaccurateReplay { inaccurate, steps: steps as u64 });
        }
        if let Some(why) = replays.iter().find_map(|replay| replay.unpredictable.clone()) {
            return Err(why);
        }
        let profile = Profile::new(&replays).ok_or(Missing::NoAllReduce)?;
        let mean =
            |of: fn(&Replay) -> f64| stats::trimmed_mean(replays.iter().map(|replay| of(replay)), 0.02);
        let measured = mean(|replay| replay.measured_nanos - replay.skew_nanos).unwrap_or(0.0);
        let uneven = mean(|replay| replay.simulated_nanos - replay.skew_nanos - replay.ideal_nanos);
        let uneven = uneven.unwrap_or(0.0).max(0.0);
        let own_work = |rank: &RankLedger| rank.own_nanos() as f64 / own.steps.max(1) as f64;
        let longest = own.ledger.iter().map(own_work).fold(0.0, f64::max);
        let steady = longest - stats::mean(own.ledger.iter().map(own_work)).unwrap_or(0.0);
        let steady = steady.clamp(0.0, uneven);
        Ok(Self { profile, comm, ranks: own.ranks, measured, steady, turns: uneven - steady })
    }

    fn fill(&self, scaling: &mut Scaling) {
        let mut worlds = WORLDS.to_vec();
        worlds.push(self.ranks);
        worlds.sort_unstable();
        worlds.dedup();
        scaling.predictions = worlds.into_iter().map(|ranks| self.predict(ranks)).collect();
        scaling.model_error = Some(self.error());
        scaling.assumptions = wording::assumptions(self.ranks);
        scaling.caps = self.caps();
        scaling.cap_advice = self.advice(&scaling.caps);
    }

    /// Returns (predicted - measured) / measured at the run's own world size.
    #[must_use]
    pub fn error(&self) -> f64 {
        self.step(self.ranks, Latency::Ring, 1.0) / self.measured - 1.0
    }

    /// Predicts the step on `ranks` ranks with the batch per rank unchanged. The efficiency is weak scaling against one
    /// rank: the predicted step of one rank over the predicted step. It is 1 on one rank and never above 1.
    #[must_use]
    pub fn predict(&self, ranks: u32) -> ScalingPrediction {
        let step_nanos = self.step(ranks, Latency::Ring, 1.0);
        let slowest = self.step(ranks, Latency::Ring, HEAVY_TAIL);
        let fastest = self.step(ranks, Latency::Tree, 0.0);
        let alone = self.step(1, Latency::Ring, 1.0);
        // The prediction for one rank does not use the communication model, so the model's error does not widen its
        // band.
        let off = if ranks == 1 { 0.0 } else { self.error().abs() };
        ScalingPrediction {
            ranks,
            step_nanos,
            efficiency: self.efficiency(ranks),
            efficiency_low: alone / slowest.max(step_nanos) / (1.0 + off),
            efficiency_high: (alone / fastest.min(step_nanos) * (1.0 + off)).min(1.0),
        }
    }

    /// Returns the predicted weak-scaling efficiency on `ranks` ranks, against one rank; at most 1.
    #[must_use]
    pub fn efficiency(&self, ranks: u32) -> f64 {
        (self.step(1, Latency::Ring, 1.0) / self.step(ranks, Latency::Ring, 1.0)).min(1.0)
    }

    /// Returns the predicted step time. `growth` scales the growth of the changing unevenness beyond the measured world
    /// size.
    fn step(&self, ranks: u32, latency: Latency, growth: f64) -> f64 {
        let hops = latency.hops(ranks) / latency.hops(self.ranks);
        let share = |ranks: u32| (f64::from(ranks) - 1.0) / f64::from(ranks);
        let volume = share(ranks) / share(self.ranks);
        let (alpha, beta) = (self.comm.alpha_seconds * 1e9, self.comm.beta_seconds_per_byte * 1e9);
        let even = if ranks == 1 {
            self.profile.alone()
        } else {
            self.profile.step(|bytes| alpha * (hops - 1.0) + beta * (volume - 1.0) * bytes)
        };
        let grown = expected_maximum(ranks) / expected_maximum(self.ranks);
        let steady = if ranks == 1 { 0.0 } else { self.steady };
        even + steady + self.turns * (grown + (grown - 1.0).max(0.0) * (growth - 1.0))
    }

    fn caps(&self) -> Vec<CapPrediction> {
        let total = self.profile.bytes();
        let caps = CAPS_KIB.iter().map(|kib| kib * 1_024);
        let smallest_whole = caps.clone().find(|cap| *cap >= total).unwrap_or(u64::MAX);
        let (alpha, beta) = (self.comm.alpha_seconds * 1e9, self.comm.beta_seconds_per_byte * 1e9);
        caps.filter(|cap| *cap <= smallest_whole)
            .filter_map(|cap_bytes| {
                let step = self.profile.with_cap(cap_bytes, |bytes| alpha + beta * bytes)?;
                let exposed_nanos = (step - self.profile.alone()).max(0.0);
                Some(CapPrediction { cap_bytes, step_nanos: step + self.steady + self.turns, exposed_nanos })
            })
            .collect()
    }

    fn advice(&self, caps: &[CapPrediction]) -> Option<String> {
        let now = self.step(self.ranks, Latency::Ring, 1.0);
        let best = caps.iter().min_by(|a, b| a.step_nanos.total_cmp(&b.step_nanos))?;
        let gain = 1.0 - best.step_nanos / now;
        (gain >= MIN_GAIN).then(|| wording::cap_advice(best, now))
    }
}

#[derive(Clone, Copy)]
enum Latency {
    Ring,
    Tree,
}

impl Latency {
    /// Returns the number of hops that latency is proportional to.
    fn hops(self, ranks: u32) -> f64 {
        match self {
            Self::Ring => f64::from(ranks) - 1.0,
            Self::Tree => f64::from(ranks).log2(),
        }
    }
}

/// Returns the expected maximum of `draws` standard normal draws (Blom 1958): the quantile of (n - 0.375) / (n + 0.25).
fn expected_maximum(draws: u32) -> f64 {
    let n = f64::from(draws);
    if draws < 2 { 0.0 } else { stats::normal_quantile((n - 0.375) / (n + 0.25)) }
}

#[cfg(test)]
mod tests;
