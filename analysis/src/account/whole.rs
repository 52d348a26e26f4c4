//! The account of the wall time: of the whole run, or of the observed steps of a part of it.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use wire::event::SpanKind;
use wire::live::Part;
use wire::views::goodput::{Goodput, TimeUse};
use wire::views::{Account, AccountEntry, Spending};

use super::{OWN, StepAccount};
use crate::{hang, stats};

/// Sums by spending, in nanoseconds.
type Sums = BTreeMap<Spending, f64>;

/// Returns the account of the observed steps, and of the whole run if its goodput is given: the steps must then be all that were
/// observed.
pub(crate) fn account(steps: &[StepAccount], whole_run: Option<&Goodput>) -> Account {
    let in_steps = step_sums(steps);
    let observed: f64 = in_steps.values().sum();
    let Some(goodput) = whole_run else { return entries(&in_steps, observed as u64, false) };
    let outside = outside(goodput);
    let rest = goodput.wall_nanos as f64 - observed - outside.values().sum::<f64>();
    let mut sums = in_steps;
    outside.into_iter().for_each(|(spending, nanos)| *sums.entry(spending).or_default() += nanos);
    // A hang between two steps belongs to no observed step.
    let hang = wall_nanos_of(goodput, TimeUse::Hang) - sums.get(&Spending::Hangs).copied().unwrap_or(0.0);
    let hang = hang.clamp(0.0, rest.max(0.0));
    *sums.entry(Spending::Hangs).or_default() += hang;
    *sums.entry(Spending::OtherSteps).or_default() += rest - hang;
    entries(&sums, goodput.wall_nanos, true)
}

/// Moves time of an account from one spending to another, as far as the first has it.
pub(crate) fn move_time(account: Account, from: Spending, to: Spending, nanos: f64) -> Account {
    let moved = account.nanos_of(from).min(nanos.max(0.0) as u64);
    let mut entries = account.entries;
    entries.iter_mut().filter(|entry| entry.spending == from).for_each(|entry| entry.nanos -= moved);
    entries.push(AccountEntry { spending: to, nanos: moved });
    entries.retain(|entry| entry.nanos > 0);
    entries.sort_by_key(|entry| (Reverse(entry.nanos), entry.spending));
    Account { entries, ..account }
}

fn step_sums(steps: &[StepAccount]) -> Sums {
    let usual_step = stats::median(steps.iter().map(StepAccount::total)).unwrap_or(0.0);
    let limit = hang::limit_seconds(usual_step / 1e9) * 1e9;
    let mut sums = Sums::new();
    for step in steps {
        let mut add = |spending, nanos: f64| {
            let spending = if nanos >= limit && !is_pause(spending) { Spending::Hangs } else { spending };
            *sums.entry(spending).or_default() += nanos;
        };
        for (kind, nanos) in SpanKind::PAUSES.into_iter().zip(step.pauses) {
            add(pause_spending(kind), nanos);
        }
        add(Spending::UnevenRanks, step.uneven.nanos);
        for (part, nanos) in OWN.into_iter().zip(step.usual) {
            add(part_spending(part), nanos);
        }
        add(Spending::Communication, step.transfer);
    }
    sums
}

fn is_pause(spending: Spending) -> bool {
    matches!(
        spending,
        Spending::Checkpoints | Spending::Evaluation | Spending::GarbageCollection | Spending::Compilation
    )
}

fn pause_spending(kind: SpanKind) -> Spending {
    match kind {
        SpanKind::Checkpoint => Spending::Checkpoints,
        SpanKind::Evaluation => Spending::Evaluation,
        SpanKind::GarbageCollection => Spending::GarbageCollection,
        _ => Spending::Compilation,
    }
}

fn part_spending(part: Part) -> Spending {
    match part {
        Part::Input => Spending::Input,
        Part::H2d => Spending::Copies,
        Part::Optimizer => Spending::Optimizer,
        Part::Idle => Spending::Idle,
        Part::Forward | Part::Backward => Spending::Compute,
        _ => Spending::OtherInSteps,
    }
}

/// Returns the wall time outside of steps, averaged over ranks.
fn outside(goodput: &Goodput) -> Sums {
    let uses = [
        (TimeUse::Launch, Spending::Start),
        (TimeUse::Setup, Spending::Start),
        (TimeUse::Recovery, Spending::Recovery),
        (TimeUse::Repeated, Spending::Repeated),
        (TimeUse::Between, Spending::Between),
        (TimeUse::Ending, Spending::Ending),
    ];
    let mut sums = Sums::new();
    for (time_use, spending) in uses {
        *sums.entry(spending).or_default() += wall_nanos_of(goodput, time_use);
    }
    sums
}

/// Returns the time of a use as wall time. Ranks that were not there in every attempt count with their share.
fn wall_nanos_of(goodput: &Goodput, time_use: TimeUse) -> f64 {
    goodput.share(time_use) * goodput.wall_nanos as f64
}

/// Returns the entries, which sum to `wall_nanos` exactly: the largest one takes what rounding and overlapping steps leave over.
fn entries(sums: &Sums, wall_nanos: u64, is_whole_run: bool) -> Account {
    let rounded =
        sums.iter().map(|(&spending, nanos)| AccountEntry { spending, nanos: nanos.max(0.0) as u64 });
    let mut entries: Vec<AccountEntry> = rounded.filter(|entry| entry.nanos > 0).collect();
    entries.sort_by_key(|entry| (Reverse(entry.nanos), entry.spending));
    let sum: i128 = entries.iter().map(|entry| i128::from(entry.nanos)).sum();
    let mut excess = sum - i128::from(wall_nanos);
    for entry in &mut entries {
        let cut = excess.min(i128::from(entry.nanos));
        entry.nanos = (i128::from(entry.nanos) - cut) as u64;
        excess -= cut;
    }
    entries.retain(|entry| entry.nanos > 0);
    entries.sort_by_key(|entry| (Reverse(entry.nanos), entry.spending));
    Account { wall_nanos: if entries.is_empty() { 0 } else { wall_nanos }, is_whole_run, entries }
}
