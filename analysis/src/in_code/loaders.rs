//! Loaders of several ranks that do not keep up.
//!
//! A rank that waits for its input holds the others up, and meanwhile their loader workers get ahead. So the records name one rank,
//! whoever is the slowest for now, although the next one is as slow. The workers' stacks show it: those of a rank whose input is fast
//! enough mostly wait.

use wire::views::{Cause, Culprit, Verdict, VerdictState};

use super::Code;
use crate::finding::{Evidence, Finding, Statement};
use crate::stacks::{During, busiest, workers_at_work};
use crate::verdict::{Findings, hours_per_day};

/// The share of their time from which workers do not keep up.
const BUSY: f64 = 0.8;

/// Replaces the verdicts on single ranks that wait for their input by one on all ranks, if the loaders of the others are as busy.
pub(crate) fn settle(found: &mut Findings, code: &Code<'_>) {
    let Some((evidence, busy)) = found.verdicts.iter().find_map(|finding| busy_loaders(finding, code)) else {
        return;
    };
    let is_of_it =
        |finding: &Finding| finding.verdict.cause == Cause::Input && finding.verdict.recurrence.is_none();
    let (of_input, others) = std::mem::take(&mut found.verdicts).into_iter().partition(is_of_it);
    found.verdicts = others;
    found.notes.retain(|finding| !is_of_it(finding));
    let Some(mut finding) = on_all(of_input, code) else { return };
    finding.evidence.splice(0..0, [evidence, busy].into_iter().flatten());
    found.verdicts.push(finding);
    found.sort();
}

/// Returns the line of the workers and how busy they are, if the finding is on one rank and those of another rank are as busy.
fn busy_loaders(finding: &Finding, code: &Code<'_>) -> Option<(Option<Evidence>, Option<Evidence>)> {
    let verdict = &finding.verdict;
    let &[rank] = verdict.culprit.as_ref()?.ranks() else { return None };
    if verdict.cause != Cause::Input || !matches!(finding.statement, Statement::Late { .. }) {
        return None;
    }
    let busy = |rank: u32| workers_at_work(code.profile_of(rank)?).filter(|share| *share >= BUSY);
    let own = busy(rank)?;
    let others = (0..code.stacks.len() as u32).filter(|other| *other != rank);
    let (other_rank, other) = others.filter_map(|other| Some((other, busy(other)?))).next()?;
    let place = busiest(code.profile_of(rank)?, During::Input);
    let place = place.map(|place| Evidence::InCode { place, rank, other_rank: None });
    Some((place, Some(Evidence::LoadersAtWork { of: [(rank, own), (other_rank, other)] })))
}

/// Returns one finding on all ranks that costs what these cost together.
fn on_all(found: Vec<Finding>, code: &Code<'_>) -> Option<Finding> {
    let (first, last) = (code.steps.first()?, code.steps.last()?);
    let lost: u64 = found.iter().map(|finding| finding.verdict.lost_nanos()).sum();
    let total: u64 = code.steps.iter().map(|step| step.period_nanos()).sum();
    let share = lost as f64 / total.max(1) as f64;
    let steps = code.steps.len() as u64;
    let worst = found.into_iter().max_by_key(|finding| finding.verdict.lost_nanos())?;
    let verdict = Verdict {
        cost_nanos_per_step: lost / steps.max(1),
        cost_share: share,
        affected_steps: steps,
        device_hours_per_day: hours_per_day(share, VerdictState::Active, first.ranks.len()),
        confidence: worst.verdict.confidence,
        example_step: worst.verdict.example_step,
        steps: (first.step.0, last.step.0),
        ..Verdict::new(Culprit::All, Cause::Input)
    };
    Some(Finding { is_one_host: worst.is_one_host, ..Finding::new(verdict, Statement::AllAlike) })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use wire::clock::MonoNanos;
    use wire::stacks::{Frame, Profile, Stack, Stacks, StacksOutcome, ThreadRole, ThreadStacks};

    use super::*;
    use crate::verdict::fixture::against_rank_1;
    use crate::verdict::tests::healthy;
    use crate::wording;

    /// Stacks of a rank whose workers get samples in this number of 100 samples.
    fn stacks(at_work: u64) -> Option<Arc<Stacks>> {
        let frame =
            |function: &str, file: &str| Frame { function: function.into(), file: file.into(), line: 5 };
        let frames = vec![
            frame("fetch", "/site-packages/torch/utils/data/_utils/fetch.py"),
            frame("__getitem__", "train.py"),
            frame("get", "/lib/python3.11/queue.py"),
        ];
        let stack = |count, frames: &[u32]| Stack { count, frames: frames.to_vec() };
        let stacks = vec![stack(at_work, &[0, 1]), stack(100 - at_work, &[2])];
        let workers = ThreadStacks {
            role: ThreadRole::Worker,
            name: String::new(),
            processes: 2,
            samples: 100,
            stacks,
        };
        let outcome =
            StacksOutcome::Sampled(Profile { frames, threads: vec![workers], ..Profile::default() });
        Some(Arc::new(Stacks { request: 1, from: MonoNanos(0), until: MonoNanos(1), outcome }))
    }

    /// Returns the sentences on a job of ten steps in which rank 1 waits 5 ms for its input in five of them.
    fn settled(at_work: [u64; 2]) -> Vec<String> {
        let (stacks, steps) = (at_work.map(stacks), healthy(10));
        let steps: Vec<_> = steps.iter().collect();
        let mut found = Findings { verdicts: vec![against_rank_1(Cause::Input)], notes: Vec::new() };
        settle(&mut found, &Code { stacks: &stacks, long_steps: &[], lines: &[], fits: &[], steps: &steps });
        found.verdicts.into_iter().map(|finding| wording::verdict(finding).sentence).collect()
    }

    #[test]
    fn a_loader_that_is_as_busy_as_the_slow_one_does_not_keep_up_either() {
        let [all] = &settled([92, 97])[..] else { panic!("one verdict") };
        assert!(all.starts_with("All ranks wait for their input, which costs 2.50 ms per step"), "{all}");
        assert!(all.ends_with(", in train.py:5 (__getitem__)."), "{all}");
        let [one] = &settled([30, 97])[..] else { panic!("one verdict") };
        assert!(one.starts_with("Rank 1 waits for its input"), "{one}");
    }
}
