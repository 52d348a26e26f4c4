//! Losses that most steps do not have, on one rank or on all: checkpoints, evaluation, garbage collection, a loader whose
//! workers start again, a long stop.
//!
//! Pauses are recorded with their kind, so each of them counts. What is not recorded as a pause shows as a step in which one part of
//! the own work is far longer than usual. On a busy machine any part is long now and then. Such steps count only if they are
//! regular, or if they are very long and one part of the step holds most of what all long steps lose.

use wire::event::SpanKind;
use wire::live::Part;
use wire::views::{Cause, ComputedOn, Confidence, Culprit, Persistence, Verdict, VerdictState};

use super::episodes::CHANGE_STEPS;
use super::recurrence::Times;
use super::{Setting, hours_per_day, ranks_of};
use crate::account::{OWN, StepAccount, own_index};
use crate::finding::{Evidence, Finding, Segment, Statement};
use crate::step::StepAnalysis;
use crate::{hang, stats};

/// The least share of all observed time that pauses take to be reported.
const MIN_SHARE: f64 = 0.01;
/// The least share of all observed time that other long steps take to be reported.
const MIN_LONG_SHARE: f64 = 0.03;
/// The least cost of a pause, as a share of the usual step.
const PAUSE_SHARE: f64 = 0.05;
/// The least cost of a long step that no pause explains, in usual steps.
const LONG: f64 = 0.5;
/// The least mean cost of long steps that are not regular, in usual steps.
const VERY_LONG: f64 = 3.0;
/// The least mean cost of long steps if they are fewer than [`FEW`], in usual steps.
const LONGEST: f64 = 10.0;
/// The number of long steps below which each must be of the longest.
const FEW: usize = 3;
/// The least share of what all long steps lose that one part must hold.
const CONCENTRATED: f64 = 0.5;
/// The share of the largest excess from which a rank has the loss too.
const HAS_IT: f64 = 0.5;
/// The share of the steps from which something happens all the time.
const ALL_THE_TIME: f64 = 0.5;
/// The number of sizes that are told apart.
const SIZES: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// A kind of pause, by its index in [`SpanKind::PAUSES`].
    Pause(usize),
    /// A part of the own work, by its index in [`OWN`].
    Part(usize),
}

/// The steps of a window with their accounts.
pub(super) struct Window<'a> {
    pub(super) steps: &'a [&'a StepAnalysis],
    pub(super) accounts: &'a [StepAccount],
    /// The usual length of a step, in nanoseconds.
    pub(super) usual_step: f64,
    /// The length of all steps, in nanoseconds.
    pub(super) total: f64,
}

impl<'a> Window<'a> {
    pub(super) fn new(steps: &'a [&'a StepAnalysis], accounts: &'a [StepAccount]) -> Self {
        let lengths = || accounts.iter().map(StepAccount::total);
        Self { steps, accounts, usual_step: stats::median(lengths()).unwrap_or(0.0), total: lengths().sum() }
    }

    /// Returns the findings on what happens now and then. `is_explained` says whether another finding on these ranks explains this
    /// many nanoseconds of the step with this index.
    pub(super) fn findings(
        &self,
        is_explained: impl Fn(usize, &[usize], f64) -> bool,
        setting: &Setting<'_>,
    ) -> Vec<Finding> {
        let pauses = (0..SpanKind::PAUSES.len()).flat_map(|kind| self.pauses(kind, setting));
        let mut found: Vec<Finding> = pauses.collect();
        found.extend(self.long_steps(is_explained, setting));
        found
    }

    /// Returns the indices of the steps in which none of these parts is far longer than usual.
    pub(super) fn ordinary_steps(&self, parts: &[Part]) -> Vec<usize> {
        let excess: Vec<Vec<f64>> =
            parts.iter().filter_map(|&part| own_index(part)).map(|part| self.excess_of(part)).collect();
        let is_long = |step: usize| excess.iter().any(|excess| excess[step] >= LONG * self.usual_step);
        (0..self.steps.len()).filter(|&step| !is_long(step)).collect()
    }

    /// Returns the findings on one kind of pause, one for each size.
    fn pauses(&self, kind: usize, setting: &Setting<'_>) -> Vec<Finding> {
        let mut costs: Vec<f64> = self.accounts.iter().map(|account| account.pauses[kind]).collect();
        let next_size = || {
            let times = take(&mut costs, PAUSE_SHARE * self.usual_step);
            let holders = self.holders(Loss::Pause(kind), &times);
            self.finding(Loss::Pause(kind), &times, &holders, setting)
        };
        std::iter::repeat_with(next_size).take(SIZES).flatten().collect()
    }

    /// Returns the findings on long steps that no pause explains, one for each part of the step and each size.
    fn long_steps(
        &self,
        is_explained: impl Fn(usize, &[usize], f64) -> bool,
        setting: &Setting<'_>,
    ) -> Vec<Finding> {
        let mut costs: Vec<Vec<f64>> = (0..OWN.len()).map(|part| self.excess_of(part)).collect();
        let mut found = Vec::new();
        for _ in 0..SIZES {
            let times: Vec<(Times, Vec<f64>)> = costs.iter_mut().map(|costs| self.take_long(costs)).collect();
            let all: f64 = times.iter().map(|(times, _)| times.total).sum();
            for (part, (mut times, costs)) in times.into_iter().enumerate() {
                let is_concentrated =
                    times.total >= CONCENTRATED * all || times.every_steps(self.steps).is_some();
                let holders = self.holders(Loss::Part(part), &times);
                times.retain(&costs, |time| !time.clone().all(|at| is_explained(at, &holders, costs[at])));
                if is_concentrated && self.stands_out(part, &times, setting) {
                    found.extend(self.finding(Loss::Part(part), &times, &holders, setting));
                }
            }
        }
        found
    }

    /// Takes the long steps of one size out of the costs. Returns them with the costs before that.
    fn take_long(&self, costs: &mut [f64]) -> (Times, Vec<f64>) {
        let unchanged = costs.to_vec();
        let mut times = take(costs, LONG * self.usual_step);
        // What lasts is an episode.
        times.retain(&unchanged, |time| time.len() < CHANGE_STEPS);
        (times, unchanged)
    }

    /// Returns true if the long steps are more than the unsteadiness of a busy machine.
    fn stands_out(&self, part: usize, times: &Times, setting: &Setting<'_>) -> bool {
        let mean = times.total / times.at.len().max(1) as f64;
        // What else runs on a CPU lengthens whatever is computed on it, now and then and by much.
        let is_unsteady = setting.computed_on == ComputedOn::Cpu
            && matches!(OWN[part], Part::Forward | Part::Backward | Part::Optimizer);
        match times.at.len() {
            0 => false,
            few if few < FEW => mean >= LONGEST * self.usual_step,
            _ if times.every_steps(self.steps).is_some() => true,
            _ => mean >= VERY_LONG * self.usual_step && !is_unsteady,
        }
    }

    /// Returns by how much one part of the own work is longer than usual in each step, on the usual rank and on the slowest one
    /// together.
    fn excess_of(&self, part: usize) -> Vec<f64> {
        let length = |account: &StepAccount| account.usual[part] + account.uneven.parts[part];
        let usual = stats::median(self.accounts.iter().map(length)).unwrap_or(0.0);
        self.accounts.iter().map(|account| (length(account) - usual).max(0.0)).collect()
    }

    /// Returns the ranks that have the loss, in ascending order.
    fn holders(&self, loss: Loss, times: &Times) -> Vec<usize> {
        let value = |at: usize, rank: usize| {
            let own = self.steps[at].ranks.get(rank)?.as_ref()?;
            Some(match loss {
                Loss::Pause(kind) => own.pauses[kind] as f64,
                Loss::Part(part) => own.part(OWN[part]) as f64,
            })
        };
        let excess: Vec<f64> = (0..ranks_of(self.steps))
            .map(|rank| {
                let usual = stats::median((0..self.steps.len()).filter_map(|at| value(at, rank)));
                let within_times = stats::mean(times.indices().filter_map(|at| value(at, rank)));
                let usual = if matches!(loss, Loss::Pause(_)) { Some(0.0) } else { usual };
                within_times.zip(usual).map_or(0.0, |(within_times, usual)| within_times - usual)
            })
            .collect();
        let most = excess.iter().copied().fold(0.0, f64::max);
        (0..excess.len()).filter(|&rank| most > 0.0 && excess[rank] >= HAS_IT * most).collect()
    }

    fn finding(
        &self,
        loss: Loss,
        times: &Times,
        holders: &[usize],
        setting: &Setting<'_>,
    ) -> Option<Finding> {
        let ranks = ranks_of(self.steps);
        let recurrence = times.recurrence(self.steps, self.total);
        let least = if matches!(loss, Loss::Pause(_)) { MIN_SHARE } else { MIN_LONG_SHARE };
        if times.at.is_empty() || holders.is_empty() || recurrence.share_of_time < least {
            return None;
        }
        let affected: Vec<usize> = times.indices().collect();
        let (first, last) = (*affected.first()?, *affected.last()?);
        let cost = times.total / affected.len() as f64;
        let length: f64 = affected.iter().map(|&at| self.accounts[at].total()).sum();
        let is_always = affected.len() as f64 >= ALL_THE_TIME * self.steps.len() as f64;
        let state = self.state(times, is_always);
        let culprit = match holders {
            all if all.len() == ranks => Culprit::All,
            some => super::culprit(some),
        };
        let statement = if is_always { Statement::Always { ranks } } else { Statement::NowAndThen { ranks } };
        let verdict = Verdict {
            state,
            cost_nanos_per_step: cost as u64,
            cost_share: times.total / length.max(1.0),
            affected_steps: affected.len() as u64,
            device_hours_per_day: hours_per_day(recurrence.share_of_time, state, ranks),
            confidence: if matches!(loss, Loss::Pause(_)) { Confidence::High } else { Confidence::Medium },
            example_step: affected
                .iter()
                .rev()
                .find(|&&at| setting.can_show(self.steps[at]))
                .map(|&at| self.steps[at].step.0),
            persistence: Some(match times.at.len() {
                _ if is_always => Persistence::Persistent,
                1 => Persistence::Transient,
                _ => Persistence::Recurring,
            }),
            steps: (self.steps[first].step.0, self.steps[last].step.0),
            recurrence: (!is_always).then(|| recurrence.clone()),
            ..Verdict::new(culprit, self.cause(loss, times))
        };
        let mut finding = Finding::new(verdict, statement);
        finding.evidence.push(Evidence::Happened {
            segment: segment(loss),
            first: affected.iter().take(4).map(|&at| self.steps[at].step.0).collect(),
            times: times.at.len(),
            total_nanos: times.total,
        });
        Some(finding)
    }

    /// What comes back is recurring until it has been absent for longer than between any two times before.
    fn state(&self, times: &Times, is_always: bool) -> VerdictState {
        if is_always {
            return VerdictState::Active;
        }
        let pauses = times.at.windows(2).map(|two| two[1].start - two[0].end).max();
        let away = self.steps.len() - times.at.last().map_or(0, |last| last.end);
        match pauses {
            Some(longest) if away <= 2 * longest => VerdictState::Recurring,
            _ => VerdictState::Resolved,
        }
    }

    fn cause(&self, loss: Loss, times: &Times) -> Cause {
        let mean = times.total / times.at.len().max(1) as f64;
        match loss {
            Loss::Pause(kind) => match SpanKind::PAUSES[kind] {
                SpanKind::Checkpoint => Cause::Checkpoint,
                SpanKind::Evaluation => Cause::Evaluation,
                SpanKind::GarbageCollection => Cause::GarbageCollection,
                _ => Cause::Compilation,
            },
            Loss::Part(_) if mean / 1e9 >= hang::limit_seconds(self.usual_step / 1e9) => Cause::Hang,
            Loss::Part(part) => match OWN[part] {
                Part::Input => Cause::Input,
                Part::H2d => Cause::H2d,
                Part::Idle | Part::Other => Cause::Host,
                Part::Optimizer => Cause::Optimizer,
                _ => Cause::Compute,
            },
        }
    }
}

/// Takes the steps of one size out of the costs, of those that cost at least `least` nanoseconds.
fn take(costs: &mut [f64], least: f64) -> Times {
    let times = Times::alike(costs, least);
    times.indices().for_each(|at| costs[at] = 0.0);
    times
}

fn segment(loss: Loss) -> Segment {
    match loss {
        Loss::Pause(kind) => Segment::Pause(SpanKind::PAUSES[kind]),
        Loss::Part(part) => match OWN[part] {
            Part::Input => Segment::Input,
            Part::H2d => Segment::H2d,
            Part::Idle => Segment::Idle,
            Part::Other => Segment::Other,
            _ => Segment::Compute,
        },
    }
}

/// Returns true if the finding is on steps in which one of these parts is far longer than usual.
pub(super) fn are_long(finding: &Finding, parts: &[Part]) -> bool {
    let segments = || parts.iter().filter_map(|&part| Some(segment(Loss::Part(own_index(part)?))));
    let is_of_it = |evidence: &Evidence| matches!(evidence, Evidence::Happened { segment, .. } if segments().any(|known| known == *segment));
    finding.evidence.iter().any(is_of_it)
}
