//! Loaders of several ranks that do not keep up.
//!
//! A rank that waits for its input holds the others up, and meanwhile their loader workers get ahead. So the records name one rank,
//! whoever is the slowest for now, although the next one is as slow. The workers' stacks show it: those of a rank whose input is fast
//! enough mostly wait.

use wire::live::Part;
use wire::stacks::Profile;
use wire::views::{Cause, Culprit, Verdict, VerdictState};

use super::Code;
use crate::account::StepAccount;
use crate::finding::{Evidence, Finding, Statement};
use crate::stacks::{LossPlace, busiest, workers_at_work};
use crate::stats;
use crate::verdict::{Findings, MIN_SHARE, hours_per_day};

/// The share of their time from which workers do not keep up.
const BUSY: f64 = 0.8;

/// Replaces the verdicts on ranks that wait for their input by one on all ranks, if the loaders of two of them do not keep up.
pub(in crate::evidence) fn settle(found: &mut Findings, code: &Code<'_>) {
    let Some(evidence) = found.verdicts.iter().find_map(|finding| busy_loaders(finding, code)) else {
        return;
    };
    // What happens to all ranks now and then is something else, such as new workers in each epoch.
    let is_other = |finding: &Finding| {
        let verdict = &finding.verdict;
        verdict.cause != Cause::Input || verdict.culprit == Some(Culprit::All) && verdict.recurrence.is_some()
    };
    let (others, of_input) = std::mem::take(&mut found.verdicts).into_iter().partition(is_other);
    found.verdicts = others;
    found.notes.retain(is_other);
    let accounts: Vec<StepAccount> = code.steps.iter().filter_map(|step| StepAccount::new(step)).collect();
    let lost = lost_to_input(&accounts, &found.verdicts);
    let Some(mut finding) = finding_on_all(of_input, lost, code) else { return };
    finding.evidence.splice(0..0, evidence);
    found.verdicts.push(finding);
    leave_to_turns(found, &accounts);
    found.sort();
}

/// Returns the line of the workers and how busy they are, if the finding is on input and the loaders of two ranks do not keep up.
fn busy_loaders(finding: &Finding, code: &Code<'_>) -> Option<Vec<Evidence>> {
    let verdict = &finding.verdict;
    if verdict.cause != Cause::Input
        || !matches!(finding.statement, Statement::Late { .. } | Statement::AllAlike)
    {
        return None;
    }
    let busy = |rank: u32| Some((rank, busy(code.profile(rank)?)?));
    let named = verdict.culprit.as_ref()?.ranks();
    let ranks = 0..code.stacks.len() as u32;
    let others = ranks.filter(|rank| !named.contains(rank));
    let mut busy_ranks = named.iter().copied().chain(others).filter_map(busy);
    // The first of them is the named one, if any is.
    let busy_ranks = [busy_ranks.next()?, busy_ranks.next()?];
    if !(named.is_empty() || named.contains(&busy_ranks[0].0)) {
        return None;
    }
    let place = busiest(code.profile(busy_ranks[0].0)?, LossPlace::Input, &code.pauses());
    let place = place.map(|place| Evidence::InCode { place, rank: busy_ranks[0].0, other_rank: None });
    Some(place.into_iter().chain([Evidence::LoadersAtWork { shares: busy_ranks }]).collect())
}

/// Returns the time for which steps wait for input, on the usual rank and then on the slowest one, less what `others` explain of it, in
/// nanoseconds.
fn lost_to_input(accounts: &[StepAccount], others: &[Finding]) -> f64 {
    let input_nanos = |account: &StepAccount| account.usual(Part::Input) + account.uneven(Part::Input);
    let explained = others.iter().filter(|other| other.verdict.cause == Cause::Input);
    let explained: u64 = explained.map(|other| other.verdict.lost_nanos()).sum();
    (accounts.iter().map(input_nanos).sum::<f64>() - explained as f64).max(0.0)
}

/// Leaves to ranks that take turns at being last what is not a wait for input.
fn leave_to_turns(found: &mut Findings, accounts: &[StepAccount]) {
    let mean = |value: &dyn Fn(&StepAccount) -> f64| stats::mean(accounts.iter().map(value)).unwrap_or(0.0);
    let rest = mean(&|account| account.uneven.nanos - account.uneven(Part::Input));
    let share = rest / mean(&StepAccount::total).max(1.0);
    for list in [&mut found.verdicts, &mut found.notes] {
        list.retain(|finding| !finding.is_of_turns() || share >= MIN_SHARE);
        let turns = list.iter_mut().filter(|finding| finding.is_of_turns());
        for verdict in turns.map(|finding| &mut finding.verdict) {
            verdict.cost_nanos_per_step = verdict.cost_nanos_per_step.min(rest as u64);
            verdict.cost_share = verdict.cost_share.min(share);
        }
    }
}

/// Returns the share of their time in which a rank's workers are at work, if they do not keep up.
pub(super) fn busy(profile: &Profile) -> Option<f64> {
    workers_at_work(profile).filter(|share| *share >= BUSY)
}

/// Returns one finding on all ranks that costs `lost` nanoseconds in all.
fn finding_on_all(found: Vec<Finding>, lost: f64, code: &Code<'_>) -> Option<Finding> {
    let (first, last) = (code.steps.first()?, code.steps.last()?);
    let total: u64 = code.steps.iter().map(|step| step.period_nanos()).sum();
    let share = lost / total.max(1) as f64;
    let steps = code.steps.len() as u64;
    let worst = found.into_iter().max_by_key(|finding| finding.verdict.lost_nanos())?;
    let verdict = Verdict {
        cost_nanos_per_step: lost as u64 / steps.max(1),
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
    use wire::stacks::{Frame, Stack, Stacks, StacksOutcome, ThreadRole, ThreadStacks};

    use super::*;
    use crate::verdict::fixture::finding_on_rank_1;
    use crate::verdict::tests::{MS, run};
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

    /// Returns the sentences on a job of ten steps, in five of which rank 1 waits 5 ms for its input, beside 1 ms in each step.
    fn settled(at_work: [u64; 2]) -> Vec<String> {
        let waits = |step: u64, rank| (rank == 1 && step < 5).then_some((5 * MS, Part::Input));
        let (stacks, steps) = (at_work.map(stacks), run(10, waits));
        let steps: Vec<_> = steps.iter().collect();
        let mut found = Findings { verdicts: vec![finding_on_rank_1(Cause::Input)], notes: Vec::new() };
        settle(&mut found, &Code { stacks: &stacks, long_steps: &[], lines: &[], fits: &[], steps: &steps });
        found.verdicts.into_iter().map(|finding| wording::verdict(finding).sentence).collect()
    }

    #[test]
    fn a_loader_that_is_as_busy_as_the_slow_one_does_not_keep_up_either() {
        let [all] = &settled([92, 97])[..] else { panic!("one verdict") };
        assert!(all.starts_with("All ranks wait for their input, which costs 3."), "{all}");
        assert!(all.ends_with(", in train.py:5 (__getitem__)."), "{all}");
        let [sentence] = &settled([30, 97])[..] else { panic!("one verdict") };
        assert!(sentence.starts_with("Rank 1 waits for its input"), "{sentence}");
    }
}
