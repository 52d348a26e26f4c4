//! Efficiency at other world sizes: measured by other runs of the job, and predicted from what one run shows.

use wire::ids::RunId;
use wire::views::scaling::{Scaling, ScalingPoint};
use wire::views::{BaselineRun, Report, RunSummary, ScalingRule};

use crate::baseline::{self, Work};
use crate::step::StepAnalysis;

mod fit;
mod growth;
mod model;
mod profile;
mod scenario;

pub use model::Model;
pub use scenario::{NotPredicted, predict};

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
    let Some(base_work) = points.iter().find(|point| point.run == base.run).and_then(work) else {
        return false;
    };
    let follows = |point: &ScalingPoint| {
        point.run == base.run || work(point).is_some_and(|work| work.follows(base.rule, base_work))
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

#[cfg(test)]
mod tests;
