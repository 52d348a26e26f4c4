//! Where a rank, or some ranks together, spend more than the others.

use wire::live::Part;
use wire::views::Cause;

use crate::stats;
use crate::step::{RankAnalysis, StepAnalysis};

/// Processor time must explain this much of a compute excess, else the thread was kept off the processor.
pub(super) const CPU_EXPLAINS: f64 = 0.5;
/// Forward and backward that rise and fall together this much (METRICS.md, "verdict") are driven by the work.
pub(super) const MORE_WORK_CORRELATION: f64 = 0.9;
/// They must vary at all, by this share of their mean.
const LEAST_VARIATION: f64 = 0.04;
/// At either end so many of a rank's steps, by compute, and of its changes from step to step, say nothing about how
/// its work varies: there a fault begins or ends.
const EDGE_SHARE: f64 = 0.05;
/// Of what forward and backward vary together this much must be change from one step to the next.
const LEAST_CHANGES: f64 = 0.3;
/// Samples must explain this much of a compute excess to be its cause.
const SAMPLES_EXPLAIN: f64 = 0.5;

/// Mean per step over the bad steps, in nanoseconds: the suspects' mean less the others' mean.
pub(super) struct Excess {
    pub(super) input: f64,
    pub(super) h2d: f64,
    pub(super) compute: f64,
    pub(super) transfer: f64,
    pub(super) other: f64,
    /// Processor time in compute phases beyond the others'; `None` where it was not measured.
    pub(super) compute_cpu: Option<f64>,
    /// Compute that the suspects' larger number of samples explains.
    pub(super) compute_by_samples: f64,
    /// Longer compute is no more than what processors do for a while.
    pub(super) is_processors: bool,
    /// How the worst suspect's forward and backward vary over steps, beyond what the others' do.
    pub(super) compute_variation: Option<Variation>,
}

/// How forward and backward vary together, each on the scale of its own mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Variation {
    forward: f64,
    backward: f64,
    both: f64,
    /// What of `both` is change from one step to the next: all of it where samples are drawn anew for each.
    changes: f64,
}

impl Variation {
    /// Of (forward, backward) pairs in the order of steps.
    pub(super) fn of(pairs: &[(f64, f64)]) -> Option<Self> {
        Self::around_means(pairs, changes(pairs)?)
    }

    fn around_means(pairs: &[(f64, f64)], changes: f64) -> Option<Self> {
        let mean = |of: fn(&(f64, f64)) -> f64| stats::mean(pairs.iter().map(of)).filter(|mean| *mean > 0.0);
        let (forward, backward) = (mean(|pair| pair.0)?, mean(|pair| pair.1)?);
        let off = || pairs.iter().map(|pair| (pair.0 / forward - 1.0, pair.1 / backward - 1.0));
        Some(Self {
            forward: stats::mean(off().map(|(f, _)| f * f))?,
            backward: stats::mean(off().map(|(_, b)| b * b))?,
            both: stats::mean(off().map(|(f, b)| f * b))?,
            changes,
        })
    }

    /// Of one rank over `steps`. A few steps at the edge of an episode, in which the fault was not yet, would look like
    /// uneven work; and a device that is slow for a while, then not, changes twice.
    fn of_rank(steps: &[&StepAnalysis], rank: usize) -> Option<Self> {
        let own = steps.iter().filter_map(|step| step.ranks.get(rank)?.as_ref());
        let pairs = own.map(|own| (own.part(Part::Forward) as f64, own.part(Part::Backward) as f64));
        let pairs: Vec<(f64, f64)> = pairs.collect();
        let mut by_size = pairs.clone();
        by_size.sort_unstable_by(|a, b| (a.0 + a.1).total_cmp(&(b.0 + b.1)));
        let cut = (pairs.len() as f64 * EDGE_SHARE) as usize;
        Self::around_means(&by_size[cut..by_size.len() - cut], changes(&pairs)?)
    }

    /// What the suspect varies more than the median of the others: scatter that all ranks have, and that is
    /// independent from phase to phase, would hide what the work does.
    fn beyond(&self, others: &[Self]) -> Self {
        let usual = |of: fn(&Self) -> f64| stats::median(others.iter().map(of)).unwrap_or(0.0);
        Self {
            forward: self.forward - usual(|other| other.forward),
            backward: self.backward - usual(|other| other.backward),
            both: self.both - usual(|other| other.both),
            changes: self.changes - usual(|other| other.changes),
        }
    }

    /// Of forward with backward, at most 1; 0 where one does not vary.
    pub(super) fn correlation(&self) -> f64 {
        let scale = (self.forward.max(0.0) * self.backward.max(0.0)).sqrt();
        if scale > 0.0 { (self.both / scale).min(1.0) } else { 0.0 }
    }

    /// By what share of their mean both vary together.
    pub(super) fn coefficient(&self) -> f64 {
        self.both.max(0.0).sqrt()
    }

    /// The work itself varies, not the device or the host.
    pub(super) fn is_of_work(&self) -> bool {
        self.correlation() >= MORE_WORK_CORRELATION
            && self.coefficient() >= LEAST_VARIATION
            && self.changes >= LEAST_CHANGES * self.both
    }
}

/// Half the mean product of the changes from step to step, each on the scale of its own mean: for steps that have
/// nothing to do with each other it is their covariance (von Neumann 1941), for one that rises once it is next to
/// nothing. The largest are left out: they are where a fault begins or ends.
fn changes(pairs: &[(f64, f64)]) -> Option<f64> {
    let mean = |of: fn(&(f64, f64)) -> f64| stats::mean(pairs.iter().map(of)).filter(|mean| *mean > 0.0);
    let (forward, backward) = (mean(|pair| pair.0)?, mean(|pair| pair.1)?);
    let product = |two: &[(f64, f64)]| (two[1].0 - two[0].0) / forward * ((two[1].1 - two[0].1) / backward);
    let mut products: Vec<f64> = pairs.windows(2).map(product).collect();
    products.sort_unstable_by(f64::total_cmp);
    products.truncate(products.len() - (products.len() as f64 * EDGE_SHARE).ceil() as usize);
    stats::mean(products).map(|mean| mean / 2.0)
}

/// How many parts of a step a fault may lie in.
pub(super) const PARTS: usize = 5;

/// Mean per step of `steps`, in nanoseconds: the suspects' mean less the others' mean.
fn mean_excess(
    steps: &[&StepAnalysis],
    ranks: &[usize],
    of: impl Fn(&RankAnalysis) -> Option<f64>,
) -> Option<f64> {
    stats::mean(steps.iter().filter_map(|step| {
        let mean = |suspect: bool| {
            let those = step.present().filter(|(rank, _)| ranks.contains(rank) == suspect);
            stats::mean(those.filter_map(|(_, rank)| of(rank)))
        };
        Some(mean(true)? - mean(false)?)
    }))
}

/// The same of input, host-to-device copies, compute, exposed transfer and the rest.
pub(super) fn of_parts(steps: &[&StepAnalysis], ranks: &[usize]) -> Option<[f64; PARTS]> {
    let part = |part: Part| mean_excess(steps, ranks, |rank| Some(rank.part(part) as f64));
    let compute = part(Part::Forward)? + part(Part::Backward)? + part(Part::Optimizer)?;
    Some([part(Part::Input)?, part(Part::H2d)?, compute, part(Part::ExposedTransfer)?, part(Part::Other)?])
}

impl Excess {
    pub(super) fn of(steps: &[&StepAnalysis], ranks: &[usize]) -> Option<Self> {
        let [input, h2d, compute, transfer, other] = of_parts(steps, ranks)?;
        let others = (0..steps[0].ranks.len()).filter(|rank| !ranks.contains(rank));
        let others: Vec<Variation> = others.filter_map(|rank| Variation::of_rank(steps, rank)).collect();
        Some(Self {
            input,
            h2d,
            compute,
            transfer,
            other,
            compute_cpu: mean_excess(steps, ranks, |rank| rank.compute_cpu_nanos.map(|nanos| nanos as f64)),
            is_processors: false,
            compute_by_samples: by_samples(steps, ranks).unwrap_or(0.0),
            compute_variation: Variation::of_rank(steps, *ranks.first()?).map(|own| own.beyond(&others)),
        })
    }

    /// The parts, the largest excess first.
    pub(super) fn ranked(&self) -> [(f64, Cause); 5] {
        let mut ranked = [
            (self.input, Cause::Input),
            (self.h2d, Cause::H2d),
            (self.compute, self.compute_cause()),
            (self.transfer, Cause::Network),
            (self.other, Cause::Host),
        ];
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
        ranked
    }

    /// The suspects' work varies, and more than the others'.
    pub(super) fn work_varies(&self) -> bool {
        self.compute_variation.is_some_and(|variation| variation.is_of_work())
    }

    fn compute_cause(&self) -> Cause {
        if self.is_processors {
            Cause::Processor
        } else if self.compute > 0.0 && self.compute_cpu.is_some_and(|cpu| cpu < CPU_EXPLAINS * self.compute)
        {
            Cause::Host
        } else if self.compute_by_samples >= SAMPLES_EXPLAIN * self.compute || self.work_varies() {
            Cause::MoreWork
        } else {
            Cause::Compute
        }
    }

    pub(super) fn cause(&self) -> Cause {
        let [(largest, cause), ..] = self.ranked();
        if largest > 0.0 { cause } else { Cause::Unknown }
    }

    /// One part stands out from the rest.
    pub(super) fn is_clear(&self) -> bool {
        let [(largest, _), (second, _), ..] = self.ranked();
        largest > 0.0 && second < largest / 2.0
    }

    /// The parts with their names, in the order of a step.
    pub(super) fn named(&self) -> [(f64, &'static str); 5] {
        [
            (self.input, "input"),
            (self.h2d, "host-to-device copies"),
            (self.compute, "compute"),
            (self.transfer, "exposed transfer"),
            (self.other, "time outside every phase"),
        ]
    }
}

/// How much compute the suspects' extra samples account for, at the others' pace, in nanoseconds a step.
fn by_samples(steps: &[&StepAnalysis], ranks: &[usize]) -> Option<f64> {
    let mean = |suspect: bool, of: fn(&RankAnalysis) -> f64| {
        let those = steps.iter().flat_map(|step| step.present());
        stats::mean(those.filter(|(rank, _)| ranks.contains(rank) == suspect).map(|(_, rank)| of(rank)))
    };
    let samples = |rank: &RankAnalysis| rank.samples as f64;
    let compute = |rank: &RankAnalysis| rank.compute_nanos as f64;
    let usual = mean(false, samples)?;
    (usual > 0.0).then_some(())?;
    Some((mean(true, samples)? / usual - 1.0) * mean(false, compute)?)
}
