//! The evidence for and against a verdict on one or more ranks.

use std::collections::BTreeSet;
use std::ops::Range;

use wire::event::SpanKind;
use wire::live::Part;
use wire::views::{Cause, ChangePoint};

use super::alike::{alike, members};
use super::excess::{Excess, MORE_WORK_CORRELATION};
use crate::finding::{Doubt, Evidence, Segment};
use crate::frontier;
use crate::stats;
use crate::step::{RankAnalysis, StepAnalysis};

/// The share of compute time off the processor from which ranks are considered to share cores.
pub(super) const SHARED_CORES: f64 = 0.2;
/// The largest number of episodes that are listed by their steps.
const SHOWN_EPISODES: usize = 4;
/// The share of the step from which an excess gets a line of evidence.
const WORTH_A_LINE: f64 = 0.05;

/// The facts about the suspected ranks; times in nanoseconds.
pub(super) struct Case<'a> {
    pub(super) ranks: &'a [usize],
    /// All observed steps.
    pub(super) steps: &'a [&'a StepAnalysis],
    /// The steps that have the fault.
    pub(super) bad: &'a [&'a StepAnalysis],
    /// The number of steps in `bad` that fixing the suspects would have shortened.
    pub(super) last_in: usize,
    pub(super) excess: Excess,
    /// The episodes, as ranges of indices into `steps`.
    pub(super) episodes: &'a [Range<usize>],
    pub(super) onset: Option<ChangePoint>,
}

impl Case<'_> {
    /// Returns the first and the last step that have the fault.
    pub(super) fn range(&self) -> (u64, u64) {
        (self.bad[0].step.0, self.bad[self.bad.len() - 1].step.0)
    }

    pub(super) fn evidence(&self) -> Vec<Evidence> {
        let mut evidence = vec![Evidence::WouldShorten { shortened: self.last_in, steps: self.bad.len() }];
        let longer = self.excess.segments().into_iter().filter(|(nanos, _)| self.is_worth_a_line(*nanos));
        let usual = |segment| mean_of_others(self.bad, self.ranks, segment);
        evidence.extend(longer.map(|(nanos, segment)| Evidence::Longer {
            segment,
            nanos,
            usual: usual(segment),
        }));
        evidence.extend(self.cause());
        if let [rank] = self.ranks {
            evidence.extend(self.caused_wait(*rank));
            evidence.extend(frontier_evidence(*rank, self.bad));
        }
        evidence.extend(self.episodes());
        evidence.extend(self.onset.filter(|onset| onset.verified).map(Evidence::Began));
        evidence
    }

    fn is_worth_a_line(&self, nanos: f64) -> bool {
        let step = stats::mean(self.bad.iter().map(|step| step.step_nanos() as f64)).unwrap_or(0.0);
        nanos > WORTH_A_LINE * step
    }

    fn cause(&self) -> Option<Evidence> {
        let excess = &self.excess;
        match (excess.cause(), excess.compute_cpu, excess.compute_variation) {
            (Cause::Host, Some(nanos), _) if excess.compute > excess.idle + excess.other => {
                Some(Evidence::ProcessorTime { nanos })
            }
            (Cause::MoreWork, _, Some(variation)) if excess.work_varies() => {
                Some(Evidence::WorkVaries(variation.joint()))
            }
            (Cause::MoreWork, ..) => {
                Some(Evidence::MoreSamples { nanos: excess.compute_by_samples.max(0.0) })
            }
            (Cause::Processor, ..) => Some(Evidence::ProcessorsVary),
            _ => None,
        }
    }

    fn caused_wait(&self, rank: usize) -> Option<Evidence> {
        let caused = self
            .bad
            .iter()
            .filter_map(|step| Some(step.ranks.get(rank)?.as_deref()?.caused_wait_nanos as f64));
        let nanos = stats::mean(caused).filter(|&caused| caused > 0.0)?;
        Some(Evidence::CausedWait { nanos })
    }

    fn episodes(&self) -> Option<Evidence> {
        let steps =
            |episode: &Range<usize>| (self.steps[episode.start].step.0, self.steps[episode.end - 1].step.0);
        let first = self.episodes.iter().take(SHOWN_EPISODES).map(steps).collect();
        let count = self.episodes.len();
        (count > 1).then_some(Evidence::Episodes { count, first })
    }

    /// Returns the share of compute time that the other ranks were off the processor, if it is large. Such ranks share
    /// cores, and each is only as fast as the others let it be. Returns `None` if processor time is not known, as on
    /// GPUs.
    pub(super) fn shared_cores(&self) -> Option<f64> {
        let others = self.bad.iter().flat_map(|step| step.present());
        let others = others.filter(|(rank, _)| !self.ranks.contains(rank));
        let off = others.filter_map(|(_, rank)| {
            let compute = rank.compute_nanos as f64;
            (compute > 0.0).then_some(1.0 - rank.compute_processor_nanos()? as f64 / compute)
        });
        stats::median(off).filter(|off| *off >= SHARED_CORES)
    }

    pub(super) fn counter_evidence(&self) -> Vec<Doubt> {
        let not_last = self.bad.len() - self.last_in;
        let doubts = [
            self.is_worth_a_line(self.excess.idle).then_some(Doubt::IdleForUnknownReason),
            self.shared_cores().map(|off| Doubt::SharedCores { off }),
            (not_last > 0).then_some(Doubt::OthersAsLate { steps: not_last }),
            (!self.excess.is_clear()).then_some(Doubt::NothingStandsOut),
            self.may_be_more_work(),
            self.is_whole_group().then_some(Doubt::WholeGroup),
            self.clocks_are_unaligned().then_some(Doubt::ClocksNotAligned),
            self.few_replayed(),
        ];
        doubts.into_iter().flatten().collect()
    }

    fn may_be_more_work(&self) -> Option<Doubt> {
        let variation = self.excess.compute_variation.filter(|_| self.excess.cause() == Cause::Compute)?;
        let is_close = variation.correlation() >= MORE_WORK_CORRELATION;
        is_close.then_some(Doubt::MayBeMoreWork(variation.joint()))
    }

    /// Returns true if the ranks compute longer and are all of a group that runs the same collectives and messages.
    fn is_whole_group(&self) -> bool {
        let ranks: BTreeSet<usize> = self.ranks.iter().copied().collect();
        if self.excess.cause() != Cause::Compute || ranks.len() < 2 {
            return false;
        }
        let groups = self.bad.last().map(|step| alike(step)).unwrap_or_default();
        groups.into_iter().any(|(group, first)| ranks.iter().copied().eq(members(group, first)))
    }

    /// Returns true if waits come from durations in most of the steps.
    fn clocks_are_unaligned(&self) -> bool {
        let is_clock_free = |step: &&&StepAnalysis| {
            let own = self.ranks.first().and_then(|&rank| step.ranks.get(rank)?.as_deref());
            own.is_some_and(|rank| rank.clock_free)
        };
        self.bad.iter().filter(is_clock_free).count() * 2 > self.bad.len()
    }

    fn few_replayed(&self) -> Option<Doubt> {
        let is_trusted =
            |step: &&&StepAnalysis| step.replay.as_ref().is_some_and(|replay| replay.is_trusted());
        let (replayed, steps) = (self.bad.iter().filter(is_trusted).count(), self.bad.len());
        (replayed * 2 < steps).then_some(Doubt::FewReplayed { replayed, steps })
    }
}

/// Returns the time that the other ranks spend in a segment, in nanoseconds: their mean, averaged over steps.
fn mean_of_others(steps: &[&StepAnalysis], suspects: &[usize], segment: Segment) -> f64 {
    let nanos = |rank: &RankAnalysis| match segment {
        Segment::Input => rank.part(Part::Input),
        Segment::H2d => rank.part(Part::H2d),
        Segment::Compute => rank.part(Part::Forward) + rank.part(Part::Backward) + rank.part(Part::Optimizer),
        Segment::Forward => rank.part(Part::Forward),
        Segment::Backward => rank.part(Part::Backward),
        Segment::Optimizer => rank.part(Part::Optimizer),
        Segment::Transfer => rank.part(Part::ExposedTransfer),
        Segment::Pause(kind) => SpanKind::PAUSES
            .iter()
            .zip(rank.pauses)
            .filter(|(pause, _)| **pause == kind)
            .map(|(_, nanos)| nanos)
            .sum(),
        Segment::Idle => rank.part(Part::Idle),
        Segment::Other => rank.part(Part::Other),
    };
    let others = steps.iter().flat_map(|step| step.present()).filter(|(rank, _)| !suspects.contains(rank));
    stats::mean(others.map(|(_, rank)| nanos(rank) as f64)).unwrap_or(0.0)
}

/// Returns evidence from the frontier ledger if it names the same rank.
fn frontier_evidence(rank: usize, steps: &[&StepAnalysis]) -> Option<Evidence> {
    let mut counts = [0_usize; Part::COUNT];
    for step in steps {
        let increments = frontier::frontier(step);
        // The part in which the rank takes the lead that it keeps until the collectives.
        let own_work = increments.iter().take_while(|increment| increment.part != Part::ExposedTransfer);
        let led: Vec<_> = own_work.collect();
        let others = led.iter().rposition(|increment| increment.rank != rank).map_or(0, |at| at + 1);
        if let Some(first) = led.get(others) {
            counts[first.part as usize] += 1;
        }
    }
    let (part, count) = Part::ALL.into_iter().zip(counts).max_by_key(|&(_, count)| count)?;
    (count * 2 > steps.len()).then_some(Evidence::Frontier { part })
}
