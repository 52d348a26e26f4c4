//! The parts of a step in which one or more ranks spend more time than the others.

use wire::event::SpanKind;
use wire::live::Part;
use wire::views::Cause;

use crate::finding::{JointVariation, Segment};
use crate::stats;
use crate::step::{RankAnalysis, StepAnalysis};

/// The least share of a compute excess that must be processor time. Below it, the thread was kept off the processor.
pub(super) const CPU_EXPLAINS: f64 = 0.5;
/// The correlation of forward and backward times from which the amount of work explains them (`docs/metrics.md`,
/// "Verdict").
pub(super) const MORE_WORK_CORRELATION: f64 = 0.9;
/// The least variation of forward and backward together, as a share of their mean.
const MIN_VARIATION: f64 = 0.04;
/// The share of a rank's steps that is ignored at either end of their order by compute, and of its largest changes from
/// step to step. These are where a fault begins or ends, and say nothing about how the rank's work varies.
const EDGE_SHARE: f64 = 0.05;
/// The least share of the joint variation that must be change from one step to the next.
const MIN_CHANGES: f64 = 0.3;
/// The least share of a compute excess that the number of samples must explain to be its cause.
const SAMPLES_EXPLAIN: f64 = 0.5;

/// The excess of the suspects over the other ranks: the difference of their means, averaged over the steps with the
/// fault, in nanoseconds per step.
pub(super) struct Excess {
    pub(super) input: f64,
    pub(super) h2d: f64,
    pub(super) compute: f64,
    pub(super) transfer: f64,
    /// The excess of each kind of pause, in the order of [`SpanKind::PAUSES`].
    pub(super) pauses: [f64; SpanKind::PAUSES.len()],
    pub(super) idle: f64,
    pub(super) other: f64,
    /// The excess of processor time in compute phases; `None` if it was not measured.
    pub(super) compute_cpu: Option<f64>,
    /// The compute time that the suspects' larger number of samples explains.
    pub(super) compute_by_samples: f64,
    /// Whether the compute excess lies within the usual variation of processors.
    pub(super) is_processors: bool,
    /// How forward and backward of the worst suspect vary over steps, beyond the variation of the other ranks.
    pub(super) compute_variation: Option<Variation>,
}

/// How long the forward and the backward pass of a step take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passes {
    pub(super) forward: f64,
    pub(super) backward: f64,
}

impl Passes {
    pub(super) fn new(rank: &RankAnalysis) -> Self {
        Self { forward: rank.part(Part::Forward) as f64, backward: rank.part(Part::Backward) as f64 }
    }

    /// Returns the mean of each pass, if both have one above zero.
    pub(super) fn means(steps: &[Self]) -> Option<Self> {
        let mean = |pass: fn(&Self) -> f64| stats::mean(steps.iter().map(pass)).filter(|mean| *mean > 0.0);
        Some(Self { forward: mean(|passes| passes.forward)?, backward: mean(|passes| passes.backward)? })
    }

    pub(super) fn relative_to(self, means: Self) -> Self {
        Self { forward: self.forward / means.forward, backward: self.backward / means.backward }
    }
}

/// How forward and backward vary together, each relative to its own mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Variation {
    forward: f64,
    backward: f64,
    both: f64,
    /// The part of `both` that is change from one step to the next: all of it if each step draws new samples.
    changes: f64,
}

impl Variation {
    /// Computes the variation of the passes of steps in their order.
    pub(super) fn new(steps: &[Passes]) -> Option<Self> {
        Self::around_means(steps, changes(steps)?)
    }

    fn around_means(steps: &[Passes], changes: f64) -> Option<Self> {
        let means = Passes::means(steps)?;
        let deviations = || {
            let shares = steps.iter().map(|passes| passes.relative_to(means));
            shares.map(|share| (share.forward - 1.0, share.backward - 1.0))
        };
        Some(Self {
            forward: stats::mean(deviations().map(|(f, _)| f * f))?,
            backward: stats::mean(deviations().map(|(_, b)| b * b))?,
            both: stats::mean(deviations().map(|(f, b)| f * b))?,
            changes,
        })
    }

    /// Computes the variation of one rank over `steps`, without the extremes. A few steps without the fault at the edge
    /// of an episode would look like uneven work, and so would the two changes of a device that is slow for a while.
    fn trimmed(steps: &[&StepAnalysis], rank: usize) -> Option<Self> {
        let own = steps.iter().filter_map(|step| step.ranks.get(rank)?.as_deref());
        let passes: Vec<Passes> = own.map(Passes::new).collect();
        let mut by_size = passes.clone();
        by_size.sort_unstable_by(|a, b| (a.forward + a.backward).total_cmp(&(b.forward + b.backward)));
        let cut = (passes.len() as f64 * EDGE_SHARE) as usize;
        Self::around_means(&by_size[cut..by_size.len() - cut], changes(&passes)?)
    }

    /// Returns the variation of the suspect less the median variation of the other ranks. Scatter that all ranks have,
    /// and that is independent from phase to phase, would otherwise hide the variation of the work.
    fn difference(&self, others: &[Self]) -> Self {
        let usual = |value: fn(&Self) -> f64| stats::median(others.iter().map(value)).unwrap_or(0.0);
        Self {
            forward: self.forward - usual(|other| other.forward),
            backward: self.backward - usual(|other| other.backward),
            both: self.both - usual(|other| other.both),
            changes: self.changes - usual(|other| other.changes),
        }
    }

    /// Returns the correlation of forward and backward, at most 1; 0 if either does not vary.
    pub(super) fn correlation(&self) -> f64 {
        let scale = (self.forward.max(0.0) * self.backward.max(0.0)).sqrt();
        if scale > 0.0 { (self.both / scale).min(1.0) } else { 0.0 }
    }

    /// Returns the joint variation of forward and backward, as a share of their mean.
    pub(super) fn coefficient(&self) -> f64 {
        self.both.max(0.0).sqrt()
    }

    pub(super) fn joint(&self) -> JointVariation {
        JointVariation { correlation: self.correlation(), share: self.coefficient() }
    }

    /// Returns true if the amount of work varies, rather than the speed of the device or the host.
    pub(super) fn is_of_work(&self) -> bool {
        self.correlation() >= MORE_WORK_CORRELATION
            && self.coefficient() >= MIN_VARIATION
            && self.changes >= MIN_CHANGES * self.both
    }
}

/// Returns half the mean product of the changes from step to step, each relative to its own mean. For independent steps
/// it equals the covariance (von Neumann 1941); for a series that rises once it is close to 0. The largest products are
/// left out, because a fault begins or ends there.
fn changes(steps: &[Passes]) -> Option<f64> {
    let means = Passes::means(steps)?;
    let product = |two: &[Passes]| {
        (two[1].forward - two[0].forward) / means.forward
            * ((two[1].backward - two[0].backward) / means.backward)
    };
    let mut products: Vec<f64> = steps.windows(2).map(product).collect();
    products.sort_unstable_by(f64::total_cmp);
    products.truncate(products.len() - (products.len() as f64 * EDGE_SHARE).ceil() as usize);
    stats::mean(products).map(|mean| mean / 2.0)
}

/// The number of parts of a step that a fault may lie in.
pub(super) const PARTS: usize = 7;

/// Returns the mean of the suspects less the mean of the other ranks, averaged over `steps`, in nanoseconds.
fn mean_excess(
    steps: &[&StepAnalysis],
    ranks: &[usize],
    value: impl Fn(&RankAnalysis) -> Option<f64>,
) -> Option<f64> {
    stats::mean(steps.iter().filter_map(|step| {
        let mean = |suspect: bool| {
            let side = step.present().filter(|(rank, _)| ranks.contains(rank) == suspect);
            stats::mean(side.filter_map(|(_, rank)| value(rank)))
        };
        Some(mean(true)? - mean(false)?)
    }))
}

/// Returns [`mean_excess`] of input, host-to-device copies, compute, exposed transfer, pauses, idle time and the rest.
pub(super) fn parts(steps: &[&StepAnalysis], ranks: &[usize]) -> Option<[f64; PARTS]> {
    let part = |part: Part| mean_excess(steps, ranks, |rank| Some(rank.part(part) as f64));
    let compute = part(Part::Forward)? + part(Part::Backward)? + part(Part::Optimizer)?;
    Some([
        part(Part::Input)?,
        part(Part::H2d)?,
        compute,
        part(Part::ExposedTransfer)?,
        part(Part::Pause)?,
        part(Part::Idle)?,
        part(Part::Other)?,
    ])
}

impl Excess {
    pub(super) fn new(steps: &[&StepAnalysis], ranks: &[usize]) -> Option<Self> {
        let [input, h2d, compute, transfer, _, idle, other] = parts(steps, ranks)?;
        let pause = |at: usize| mean_excess(steps, ranks, |rank| Some(rank.pauses[at] as f64)).unwrap_or(0.0);
        let others = (0..steps[0].ranks.len()).filter(|rank| !ranks.contains(rank));
        let others: Vec<Variation> = others.filter_map(|rank| Variation::trimmed(steps, rank)).collect();
        Some(Self {
            input,
            h2d,
            compute,
            transfer,
            pauses: std::array::from_fn(pause),
            idle,
            other,
            compute_cpu: mean_excess(steps, ranks, |rank| {
                rank.compute_processor_nanos().map(|nanos| nanos as f64)
            }),
            is_processors: false,
            compute_by_samples: sample_compute(steps, ranks).unwrap_or(0.0),
            compute_variation: Variation::trimmed(steps, *ranks.first()?).map(|own| own.difference(&others)),
        })
    }

    /// Returns the parts with their causes, the largest excess first.
    pub(super) fn ranked(&self) -> [(f64, Cause); PARTS] {
        let mut ranked = [
            (self.input, Cause::Input),
            (self.h2d, Cause::H2d),
            (self.compute, self.compute_cause()),
            (self.transfer, Cause::Network),
            (self.pauses.iter().sum(), Cause::Host),
            // A device has nothing to do because its host is late, or waits itself: a doubt says so.
            (self.idle, Cause::Host),
            (self.other, Cause::Host),
        ];
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
        ranked
    }

    /// Returns true if the suspects' work varies, and more than that of the other ranks.
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

    /// Returns true if one part stands out from the others.
    pub(super) fn is_clear(&self) -> bool {
        let [(largest, _), (second, _), ..] = self.ranked();
        largest > 0.0 && second < largest / 2.0
    }

    /// Returns the excess in each segment, in the order of a step.
    pub(super) fn segments(&self) -> [(f64, Segment); 10] {
        let [checkpoint, evaluation, collection, compilation] =
            std::array::from_fn(|at| (self.pauses[at], Segment::Pause(SpanKind::PAUSES[at])));
        [
            (self.input, Segment::Input),
            (self.h2d, Segment::H2d),
            (self.compute, Segment::Compute),
            (self.transfer, Segment::Transfer),
            checkpoint,
            evaluation,
            collection,
            compilation,
            (self.idle, Segment::Idle),
            (self.other, Segment::Other),
        ]
    }
}

/// Returns the compute time that the suspects' additional samples account for at the pace of the other ranks, in
/// nanoseconds per step.
fn sample_compute(steps: &[&StepAnalysis], ranks: &[usize]) -> Option<f64> {
    let mean = |suspect: bool, value: fn(&RankAnalysis) -> f64| {
        let ranks_of_steps = steps.iter().flat_map(|step| step.present());
        stats::mean(
            ranks_of_steps.filter(|(rank, _)| ranks.contains(rank) == suspect).map(|(_, rank)| value(rank)),
        )
    };
    let samples = |rank: &RankAnalysis| rank.samples as f64;
    let compute = |rank: &RankAnalysis| rank.compute_nanos as f64;
    let usual = mean(false, samples)?;
    (usual > 0.0).then_some(())?;
    Some((mean(true, samples)? / usual - 1.0) * mean(false, compute)?)
}
