//! Combines the replays of a window of steps into one answer (`docs/metrics.md`, "What-if").

use std::collections::BTreeSet;

use wire::ids::{Bucket, Rank};
use wire::views::what_if::{Fix, Phase, Saving, WhatIf};

use crate::cost::Cost;
use crate::replay::{MAX_ERROR, Replay};
use crate::stats;
use crate::step::StepAnalysis;

/// The largest number of ranks that are listed: those that would save most.
const MAX_RANKS: usize = 16;
/// The least share of steps with a trusted replay; below it, the answer is withheld.
const MIN_TRUSTED: f64 = 0.5;

/// Returns the what-ifs of `steps`; `None` if none of them can be replayed.
#[must_use]
pub fn what_if(steps: &[&StepAnalysis]) -> Option<WhatIf> {
    let replays: Vec<&Replay> = steps.iter().filter_map(|step| step.replay.as_ref()).collect();
    let simulation_error = stats::median(replays.iter().map(|replay| replay.error()))?;
    let is_trusted = |step: &&StepAnalysis| step.replay.as_ref().is_some_and(Replay::is_trusted);
    let trusted: Vec<&StepAnalysis> = steps.iter().copied().filter(is_trusted).collect();
    let withheld = ((trusted.len() as f64) < MIN_TRUSTED * steps.len() as f64).then(|| {
        format!(
            "Withheld: with nothing changed, {} of {} steps cannot be replayed within {:.0} % of their measured \
             time, so no saving can be trusted.",
            steps.len() - trusted.len(),
            steps.len(),
            MAX_ERROR * 100.0
        )
    });
    let mut answer = WhatIf {
        steps: trusted.len() as u64,
        withheld_steps: (steps.len() - trusted.len()) as u64,
        simulation_error,
        withheld,
        slowdown: None,
        wasted_share: None,
        ranks: Vec::new(),
        phases: Vec::new(),
        buckets: Vec::new(),
    };
    if answer.withheld.is_none() {
        fill(&mut answer, &trusted, steps[0].ranks.len());
    }
    Some(answer)
}

fn fill(answer: &mut WhatIf, steps: &[&StepAnalysis], ranks: usize) {
    let replays: Vec<&Replay> = steps.iter().filter_map(|step| step.replay.as_ref()).collect();
    let sum = |of: fn(&Replay) -> f64| replays.iter().map(|replay| of(replay)).sum::<f64>();
    // Steps overlap if ranks begin at different times. Savings are of the run's time.
    let slowdown =
        sum(|replay| replay.simulated_nanos - replay.skew_nanos) / sum(|replay| replay.ideal_nanos);
    answer.slowdown = Some(slowdown);
    answer.wasted_share = Some(1.0 - 1.0 / slowdown);
    let saving = |fix: Fix, of: &dyn Fn(&Replay) -> f64| {
        let cost = Cost::new(steps, replays.iter().map(|replay| of(replay)))?;
        Some(Saving { fix, nanos_per_step: cost.nanos, share: cost.share })
    };
    let of_rank = |rank: usize| {
        saving(Fix::Rank(Rank(rank as u32)), &|replay| {
            replay.ranks.get(rank).map_or(0.0, |&nanos| nanos.into())
        })
    };
    answer.ranks = (0..ranks).filter_map(of_rank).collect();
    answer.ranks.sort_by(|a, b| b.nanos_per_step.total_cmp(&a.nanos_per_step));
    answer.ranks.truncate(MAX_RANKS);
    let of_phase = |phase: Phase| saving(Fix::Phase(phase), &|replay| replay.phase(phase));
    answer.phases = Phase::ALL.into_iter().filter_map(of_phase).collect();
    let collectives = || replays.iter().flat_map(|replay| &replay.collectives);
    let buckets: BTreeSet<Bucket> = collectives().map(|collective| collective.bucket).collect();
    let of_bucket = |bucket: Bucket| {
        saving(Fix::Bucket(bucket), &|replay| {
            let own = replay.collectives.iter().filter(|collective| collective.bucket == bucket);
            own.map(|collective| f64::from(collective.saving_nanos)).sum()
        })
    };
    answer.buckets = buckets.into_iter().filter_map(of_bucket).collect();
}
