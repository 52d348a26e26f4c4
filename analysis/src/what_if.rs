//! Combines the replays of a window of steps into one answer (`docs/metrics.md`, "What-if").

use std::collections::BTreeSet;

use wire::ids::{Bucket, Rank};
use wire::views::Missing;
use wire::views::what_if::{Fix, Phase, Saving, WhatIf};

use crate::cost::Cost;
use crate::replay::Replay;
use crate::stats;
use crate::step::StepAnalysis;

/// The largest number of ranks that are listed: those that would save most.
pub(crate) const MAX_RANKS: usize = 16;
/// The least share of steps with a trusted replay; below it, the answer is withheld.
const MIN_TRUSTED: f64 = 0.5;
/// The largest share of a step that can be wasted: a slowdown is finite.
const MAX_WASTED: f64 = 0.999;
/// Even ranks must save at least this share of the step, a slowdown of 1.01, before it is said which part of it the slowest ranks hold.
const MIN_EVEN_SHARE: f64 = 0.01;

/// Returns the what-ifs of `steps`, which must not be empty.
///
/// # Errors
/// Returns an error if none of the steps can be replayed, or if most of them cannot be replayed accurately.
pub fn what_if(steps: &[&StepAnalysis]) -> Result<WhatIf, Missing> {
    let replays: Vec<&Replay> = steps.iter().filter_map(|step| step.replay.as_ref()).collect();
    let simulation_error =
        stats::median(replays.iter().map(|replay| replay.error())).ok_or(Missing::NotReplayed)?;
    let is_trusted = |step: &&StepAnalysis| step.replay.as_ref().is_some_and(Replay::is_trusted);
    let trusted: Vec<&StepAnalysis> = steps.iter().copied().filter(is_trusted).collect();
    let inaccurate = (steps.len() - trusted.len()) as u64;
    if (trusted.len() as f64) < MIN_TRUSTED * steps.len() as f64 {
        return Err(Missing::InaccurateReplay { inaccurate, steps: steps.len() as u64 });
    }
    let replays: Vec<&Replay> = trusted.iter().filter_map(|step| step.replay.as_ref()).collect();
    let savings = Savings { steps: &trusted, replays: &replays };
    let share = |saving: fn(&Replay) -> f32| {
        savings.cost(|replay| saving(replay).into()).map_or(0.0, |cost| cost.share.clamp(0.0, MAX_WASTED))
    };
    let (wasted_share, even) = (share(|replay| replay.alike_nanos), share(|replay| replay.even_nanos));
    Ok(WhatIf {
        steps: trusted.len() as u64,
        withheld_steps: inaccurate,
        simulation_error,
        slowdown: 1.0 / (1.0 - wasted_share),
        wasted_share,
        even_slowdown: 1.0 / (1.0 - even),
        slowest_share: slowest_share(even, share(|replay| replay.even_slowest_nanos)).into(),
        ranks: savings.ranks(steps[0].ranks.len()),
        phases: savings.phases(),
        buckets: savings.buckets(),
    })
}

/// Returns `M_W`. Even ranks would save some time; this is the share of it that is saved if only the slowest ranks become even with
/// the others.
fn slowest_share(even: f64, even_slowest: f64) -> Result<f64, Missing> {
    if even < MIN_EVEN_SHARE {
        return Err(Missing::EvenRanks);
    }
    Ok((even_slowest / even).min(1.0))
}

/// The steps that savings are computed from, with their replays.
struct Savings<'a> {
    steps: &'a [&'a StepAnalysis],
    replays: &'a [&'a Replay],
}

impl Savings<'_> {
    fn cost(&self, nanos: impl Fn(&Replay) -> f64) -> Option<Cost> {
        Cost::new(self.steps, self.replays.iter().map(|replay| nanos(replay)))
    }

    /// Returns the saving from `fix`, which saves `nanos(replay)` in one step.
    fn saving(&self, fix: Fix, nanos: impl Fn(&Replay) -> f64) -> Option<Saving> {
        let cost = self.cost(nanos)?;
        Some(Saving { fix, nanos_per_step: cost.nanos, share: cost.share })
    }

    /// Returns the largest savings from fixing one of `ranks` ranks, largest first.
    fn ranks(&self, ranks: usize) -> Vec<Saving> {
        let saving = |rank: usize| {
            self.saving(Fix::Rank(Rank(rank as u32)), |replay| {
                replay.ranks.get(rank).map_or(0.0, |&nanos| nanos.into())
            })
        };
        let mut savings: Vec<Saving> = (0..ranks).filter_map(saving).collect();
        savings.sort_by(|a, b| b.nanos_per_step.total_cmp(&a.nanos_per_step));
        savings.truncate(MAX_RANKS);
        savings
    }

    fn phases(&self) -> Vec<Saving> {
        let saving = |phase: Phase| self.saving(Fix::Phase(phase), |replay| replay.phase(phase));
        Phase::ALL.into_iter().filter_map(saving).collect()
    }

    fn buckets(&self) -> Vec<Saving> {
        let collectives = self.replays.iter().flat_map(|replay| &replay.collectives);
        let buckets: BTreeSet<Bucket> = collectives.map(|collective| collective.bucket).collect();
        let saving = |bucket: Bucket| {
            self.saving(Fix::Bucket(bucket), |replay| {
                let own = replay.collectives.iter().filter(|collective| collective.bucket == bucket);
                own.map(|collective| f64::from(collective.saving_nanos)).sum()
            })
        };
        buckets.into_iter().filter_map(saving).collect()
    }
}
