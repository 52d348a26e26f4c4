//! The replays of a window of steps as one answer (METRICS.md, "what-if").

use std::collections::BTreeMap;

use wire::ids::{Bucket, Rank};
use wire::views::what_if::{Fix, Phase, Saving, WhatIf};

use crate::replay::{MOST_ERROR, Replay};
use crate::stats;
use crate::step::StepAnalysis;

/// Ranks listed at most, those that would save most.
const MOST_RANKS: usize = 16;
/// With fewer trusted replays than this share of the steps there is no answer.
const LEAST_TRUSTED: f64 = 0.5;

/// The what-ifs of `steps`; `None` when none of them can be replayed.
#[must_use]
pub fn what_if(steps: &[&StepAnalysis]) -> Option<WhatIf> {
    let replays: Vec<&Replay> = steps.iter().filter_map(|step| step.replay.as_ref()).collect();
    let simulation_error = stats::median(replays.iter().map(|replay| replay.error()))?;
    let trusted: Vec<&Replay> = replays.iter().copied().filter(|replay| replay.is_trusted()).collect();
    let withheld = ((trusted.len() as f64) < LEAST_TRUSTED * steps.len() as f64).then(|| {
        format!(
            "Withheld: replayed with nothing changed, {} of {} steps come out more than {:.0} % off what was \
             measured, or cannot be replayed at all; no saving would mean much.",
            steps.len() - trusted.len(),
            steps.len(),
            MOST_ERROR * 100.0
        )
    });
    let mut answer = WhatIf {
        steps: trusted.len() as u64,
        withheld_steps: (steps.len() - trusted.len()) as u64,
        simulation_error,
        withheld,
        slowdown: None,
        wasted_share: None,
        gpu_hours_per_day: None,
        ranks: Vec::new(),
        phases: Vec::new(),
        buckets: Vec::new(),
    };
    if answer.withheld.is_none() {
        fill(&mut answer, &trusted, steps[0].ranks.len());
    }
    Some(answer)
}

fn fill(answer: &mut WhatIf, replays: &[&Replay], ranks: usize) {
    let sum = |of: fn(&Replay) -> f64| replays.iter().map(|replay| of(replay)).sum::<f64>();
    // Ranks that begin apart make steps overlap; what is saved is saved of the run's time.
    let total = sum(|replay| replay.simulated_nanos - replay.skew_nanos);
    let slowdown = total / sum(|replay| replay.ideal_nanos);
    let wasted = 1.0 - 1.0 / slowdown;
    answer.slowdown = Some(slowdown);
    answer.wasted_share = Some(wasted);
    answer.gpu_hours_per_day = Some(wasted * ranks as f64 * 24.0);
    let saving = |fix: Fix, nanos: f64| Saving {
        fix,
        nanos_per_step: nanos / replays.len() as f64,
        share: nanos / total,
    };
    let of_rank = |rank: usize| {
        let nanos = replays.iter().filter_map(|replay| replay.ranks.get(rank)).copied().map(f64::from);
        saving(Fix::Rank(Rank(rank as u32)), nanos.sum())
    };
    answer.ranks = (0..ranks).map(of_rank).collect();
    answer.ranks.sort_by(|a, b| b.nanos_per_step.total_cmp(&a.nanos_per_step));
    answer.ranks.truncate(MOST_RANKS);
    let of_phase =
        |phase: Phase| saving(Fix::Phase(phase), replays.iter().map(|replay| replay.phase(phase)).sum());
    answer.phases = Phase::ALL.into_iter().map(of_phase).collect();
    let mut buckets: BTreeMap<Bucket, f64> = BTreeMap::new();
    for collective in replays.iter().flat_map(|replay| &replay.collectives) {
        *buckets.entry(collective.bucket).or_default() += f64::from(collective.saving_nanos);
    }
    answer.buckets = buckets.into_iter().map(|(bucket, nanos)| saving(Fix::Bucket(bucket), nanos)).collect();
}
