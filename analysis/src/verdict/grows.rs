//! Steps that take longer and longer: a list that is searched and never emptied, a cache without a limit, memory in ever smaller
//! pieces.
//!
//! A change of level has a date ([`super::course`]); growth has a rate. Own work, without pauses and without waiting for other
//! ranks, is tested for a trend on each rank ([`crate::trend`]). If it grows on all ranks, the job loses what the usual rank needs
//! beyond the level of the first steps. If it grows on some, they are late, and the finding that names them says that it grows.

use wire::live::Part;
use wire::views::{Cause, ComputedOn, Confidence, Culprit, Growth, Persistence};

use super::everyone::finding_on_all;
use super::now_and_then::Window;
use super::{HIGH_CONFIDENCE_STEPS, Setting, hours_per_day, processor, ranks_of};
use crate::account::StepAccount;
use crate::finding::{Evidence, Finding, Segment, Statement};
use crate::stats;
use crate::step::{RankAnalysis, StepAnalysis};
use crate::trend::{Trend, rising};

/// The share of the fastest growth from which a rank grows too.
const GROWS_TOO: f64 = 0.5;
/// The least share of the growth that one part of the step must hold to be named.
const ONE_PART: f64 = 0.7;
/// The least share of the growth that forward and backward must hold together to be named.
const PASSES: f64 = 0.5;
/// The least share of what a rank costs that its growth must explain.
const EXPLAINS: f64 = 0.5;
/// The share of the growth from which a part has a line of evidence.
const WORTH_A_LINE: f64 = 0.2;

/// The parts of the step that are told apart, with their causes.
const PARTS: [(&[Part], Segment, Cause); 6] = [
    (&[Part::Input], Segment::Input, Cause::Input),
    (&[Part::H2d], Segment::H2d, Cause::H2d),
    (&[Part::Forward], Segment::Forward, Cause::Compute),
    (&[Part::Backward], Segment::Backward, Cause::Compute),
    (&[Part::Optimizer], Segment::Optimizer, Cause::Optimizer),
    (&[Part::Idle, Part::Other], Segment::Other, Cause::Host),
];
const BOTH_PASSES: (&[Part], Segment, Cause) =
    (&[Part::Forward, Part::Backward], Segment::Compute, Cause::Compute);

/// The ranks whose own work grows all along.
pub(super) struct Grows {
    /// In ascending order.
    ranks: Vec<usize>,
    all_ranks: usize,
    /// The growth of the own work of each of these ranks.
    trends: Vec<Trend>,
}

/// A series over steps, as numbers of steps and nanoseconds.
type Series = Vec<(f64, f64)>;

impl Grows {
    /// Finds the ranks whose own work grows; `None` if none does.
    pub(super) fn new(steps: &[&StepAnalysis]) -> Option<Self> {
        let all_ranks = ranks_of(steps);
        let own = |rank: usize| rising(&series(steps, rank, own_work));
        let trends: Vec<Option<Trend>> = (0..all_ranks).map(own).collect();
        let most = trends.iter().flatten().map(|trend| trend.slope).fold(0.0, f64::max);
        let grows = |trend: &Trend| trend.slope >= GROWS_TOO * most;
        let found = trends.into_iter().enumerate().filter_map(|(rank, trend)| Some((rank, trend?)));
        let (ranks, trends): (Vec<usize>, Vec<Trend>) = found.filter(|(_, trend)| grows(trend)).unzip();
        (!ranks.is_empty()).then_some(Self { ranks, all_ranks, trends })
    }

    /// Returns the finding on all ranks, if the own work of all of them grows by more than processors vary. `course` are the steps of
    /// the window, or steps of the whole run if the window has only the newest.
    pub(super) fn everyone(
        &self,
        window: &Window<'_>,
        course: &[&StepAnalysis],
        setting: &Setting<'_>,
    ) -> Option<Finding> {
        if self.ranks.len() < self.all_ranks {
            return None;
        }
        let accounts: Vec<(f64, StepAccount)> =
            course.iter().filter_map(|step| Some((step.step.0 as f64, StepAccount::new(step)?))).collect();
        let usual = |parts: &[Part]| -> Series {
            let nanos = |account: &StepAccount| parts.iter().map(|&part| account.usual(part)).sum::<f64>();
            accounts.iter().map(|(step, account)| (*step, nanos(account))).collect()
        };
        let whole = rising(&usual(&crate::account::OWN))?;
        if setting.computed_on == ComputedOn::Cpu && whole.to < (1.0 + processor::ALL_VARY_BY) * whole.from {
            return None;
        }
        let statement = Statement::Grows { segment: None };
        let cost = Self::mean_rise(&whole, window.steps, course);
        let mut finding = finding_on_all(window.steps, cost, Cause::Compute, statement)?;
        if window.steps.len() >= HIGH_CONFIDENCE_STEPS {
            finding.verdict.confidence = Confidence::High;
        }
        finding.verdict.steps = range(course);
        describe(&mut finding, &whole, usual);
        Some(finding)
    }

    /// Returns by how much longer `steps` are than the first ones of the course, in the mean: the newest steps of a longer run are all
    /// as long as its last ones.
    fn mean_rise(trend: &Trend, steps: &[&StepAnalysis], course: &[&StepAnalysis]) -> f64 {
        if range(steps) == range(course) { trend.mean_rise } else { trend.to - trend.from }
    }

    /// Says of a finding on late ranks that it grows, if growth explains most of what they cost.
    pub(super) fn tell(&self, finding: &mut Finding, steps: &[&StepAnalysis], course: &[&StepAnalysis]) {
        let Some(Culprit::Rank(_) | Culprit::Ranks(_)) = finding.verdict.culprit else { return };
        let named: Vec<usize> =
            finding.verdict.culprit.iter().flat_map(Culprit::ranks).map(|&rank| rank as usize).collect();
        let lasts =
            matches!(finding.statement, Statement::Late { .. }) && finding.verdict.recurrence.is_none();
        let place = |rank: &usize| self.ranks.iter().position(|own| own == rank);
        let (Some(places), true) = (named.iter().map(place).collect::<Option<Vec<_>>>(), lasts) else {
            return;
        };
        let Some(whole) = places.first().map(|&place| self.trends[place]) else { return };
        // What grows on all ranks alike makes none of them late.
        let Some(beyond) = rising(&beyond_others(course, &named)) else { return };
        let grown = Self::mean_rise(&beyond, steps, course) * steps.len() as f64;
        if grown < EXPLAINS * finding.verdict.lost_nanos() as f64 {
            return;
        }
        describe(finding, &whole, |parts| series(course, named[0], |own| sum(own, parts)));
        finding
            .evidence
            .retain(|evidence| !matches!(evidence, Evidence::Began(_) | Evidence::Episodes { .. }));
        let verdict = &mut finding.verdict;
        (verdict.onset, verdict.persistence) = (None, Some(Persistence::Persistent));
        verdict.steps = range(course);
        // Steps early on in which it cost too little to be late count too.
        let count = steps.len().max(1) as u64;
        let time: u64 = steps.iter().map(|step| step.period_nanos()).sum();
        verdict.cost_nanos_per_step = verdict.lost_nanos() / count;
        verdict.cost_share = verdict.cost_nanos_per_step as f64 * count as f64 / time.max(1) as f64;
        verdict.affected_steps = count;
        verdict.device_hours_per_day = hours_per_day(verdict.cost_share, verdict.state, self.all_ranks);
    }
}

/// Returns true if a finding on all ranks says of the steps what their growth explains: that they became longer at some step, or
/// that the part that grows takes long.
pub(super) fn explains(growth: &Finding, other: &Finding) -> bool {
    let (part, cause) = (&growth.verdict, other.verdict.cause);
    match other.statement {
        Statement::Slower { .. } => true,
        Statement::AllAlike => {
            cause == part.cause && 2 * part.cost_nanos_per_step >= other.verdict.cost_nanos_per_step
        }
        _ => false,
    }
}

/// Writes the part that grows, its rate, and the parts that hold the growth into a finding. `nanos` returns the series of some parts.
fn describe(finding: &mut Finding, whole: &Trend, nanos: impl Fn(&[Part]) -> Series) {
    let rise = whole.to - whole.from;
    let mut parts: Vec<(f64, Segment, Cause, Option<Trend>)> = PARTS
        .iter()
        .chain([&BOTH_PASSES])
        .map(|&(parts, segment, cause)| {
            let trend = rising(&nanos(parts));
            (trend.map_or(0.0, |trend| trend.to - trend.from), segment, cause, trend)
        })
        .collect();
    let passes = parts.pop().filter(|(own, ..)| *own >= PASSES * rise);
    parts.sort_by(|a, b| b.0.total_cmp(&a.0));
    let largest = parts.first().copied();
    let chief = largest.filter(|(own, ..)| *own >= ONE_PART * rise).or(passes);
    let (segment, trend) = match chief {
        Some((_, segment, _, Some(trend))) => (Some(segment), trend),
        _ => (None, *whole),
    };
    if let Some((_, _, cause, Some(_))) = chief.or(largest) {
        finding.verdict.cause = cause;
    }
    finding.statement = Statement::Grows { segment };
    let verdict = &mut finding.verdict;
    verdict.growth = Some(Growth {
        from_nanos: trend.from,
        to_nanos: trend.to,
        nanos_per_thousand_steps: 1e3 * trend.slope,
        range_per_thousand_steps: (1e3 * trend.slope_range.0, 1e3 * trend.slope_range.1),
    });
    finding.evidence.retain(|evidence| !matches!(evidence, Evidence::Longer { .. }));
    let grown = parts.iter().filter(|(own, ..)| *own >= WORTH_A_LINE * rise);
    let lines = grown.filter_map(|(_, segment, _, trend)| {
        let Trend { from, to, .. } = (*trend)?;
        Some(Evidence::Grew { segment: *segment, from, to })
    });
    let lines: Vec<Evidence> = lines.collect();
    finding.evidence.extend(lines);
    finding.evidence.push(Evidence::GrowthRate {
        per_thousand: 1e3 * trend.slope,
        range: (1e3 * trend.slope_range.0, 1e3 * trend.slope_range.1),
    });
}

fn range(steps: &[&StepAnalysis]) -> (u64, u64) {
    (steps.first().map_or(0, |step| step.step.0), steps.last().map_or(0, |step| step.step.0))
}

fn series(steps: &[&StepAnalysis], rank: usize, nanos: impl Fn(&RankAnalysis) -> f64) -> Series {
    let point = |step: &&StepAnalysis| Some((step.step.0 as f64, nanos(step.ranks.get(rank)?.as_deref()?)));
    steps.iter().filter_map(point).collect()
}

/// Returns by how much more own work the first of the named ranks has than the others, in the mean.
fn beyond_others(steps: &[&StepAnalysis], named: &[usize]) -> Series {
    let point = |step: &&StepAnalysis| {
        let own = own_work(step.ranks.get(*named.first()?)?.as_deref()?);
        let others = step.present().filter(|(rank, _)| !named.contains(rank));
        Some((step.step.0 as f64, own - stats::mean(others.map(|(_, rank)| own_work(rank)))?))
    };
    steps.iter().filter_map(point).collect()
}

fn own_work(rank: &RankAnalysis) -> f64 {
    sum(rank, &crate::account::OWN)
}

fn sum(rank: &RankAnalysis, parts: &[Part]) -> f64 {
    parts.iter().map(|&part| rank.part(part) as f64).sum()
}

#[cfg(test)]
mod tests;
