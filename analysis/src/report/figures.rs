//! The figures of a report that are one number over all observed steps.

use wire::views::what_if::{LossLedger, WhatIf};
use wire::views::{AlphaBeta, BucketStats, Figure, FlopsUtilization, Missing, Spread};

use super::buckets::model_points;
use super::observed::Observed;
use crate::loss::{self, StepCosts};
use crate::overlap::Overlap;
use crate::step::{RankAnalysis, StepAnalysis};
use crate::{comm_model, mfu, rate, stats, what_if, wording};

impl Observed<'_> {
    pub(super) fn spread(&self, nanos: fn(&StepAnalysis) -> u64) -> Figure<Spread> {
        let values = self.steps.iter().map(|step| nanos(step) as f64);
        self.reasons.needs_steps(|| stats::spread(values).ok_or(Missing::NoObservedStep))
    }

    /// The mean time from one step to the next, in nanoseconds.
    pub(super) fn period(&self) -> Figure<f64> {
        self.reasons.needs_steps(|| self.period_nanos.ok_or(Missing::NoObservedStep))
    }

    pub(super) fn throughput(&self) -> Figure<f64> {
        self.reasons.needs_steps(|| match self.steps.len() {
            _ if self.facts.is_imported() && batch(&self.steps).is_none() => Err(Missing::NotInFiles),
            1 => Err(Missing::OneObservedStep),
            _ => rate::throughput(&self.steps).ok_or(Missing::NoSamples),
        })
    }

    pub(super) fn batch(&self) -> Figure<f64> {
        let missing = if self.facts.is_imported() { Missing::NotInFiles } else { Missing::NoSamples };
        self.reasons.needs_steps(|| batch(&self.steps).ok_or(missing))
    }

    /// A figure that rests on the overlap; `None` without communication.
    fn needs_communication(&self, figure: impl FnOnce() -> Option<f64>) -> Figure<f64> {
        self.reasons.needs_overlap(|| figure().ok_or(Missing::NothingReduced))
    }

    pub(super) fn overlap_ratio(&self) -> Figure<f64> {
        self.needs_communication(|| Overlap::new(self.ranks()).ratio())
    }

    /// s = T_comm / (T_comp + T_comm).
    pub(super) fn communication_fraction(&self) -> Figure<f64> {
        self.needs_communication(|| {
            let (compute, communication) =
                self.ranks().fold((0_u64, 0_u64), |(compute, communication), rank| {
                    (compute + rank.compute_nanos, communication + rank.comm_nanos)
                });
            let both = compute + communication;
            (both > 0).then(|| communication as f64 / both as f64)
        })
    }

    /// The median over ranks and steps, in nanoseconds.
    pub(super) fn tail(&self) -> Figure<f64> {
        self.needs_communication(|| {
            stats::median(self.ranks().filter_map(|rank| Some(rank.tail_nanos? as f64)))
        })
    }

    /// mean_r |C_r| / T over all steps together. T is the time that a step adds to the run, so the loss ledger sums to
    /// 1 - E.
    pub(super) fn implied_efficiency(&self) -> Figure<f64> {
        let efficiency = || {
            let compute = stats::mean(self.ranks().map(|rank| rank.compute_nanos as f64))?;
            self.period_nanos.filter(|period| *period > 0.0).map(|period| compute / period)
        };
        self.reasons.needs_overlap(|| efficiency().ok_or(Missing::NoObservedStep))
    }

    pub(super) fn what_if(&self) -> Figure<WhatIf> {
        self.reasons.needs_overlap(|| what_if::what_if(&self.steps))
    }

    pub(super) fn loss_ledger(&self) -> Figure<LossLedger> {
        let costs = || StepCosts::from_ledger(&self.ledger, self.steps.len(), self.period_nanos?);
        self.reasons
            .needs_overlap(|| costs().map(|costs| loss::implied(&costs)).ok_or(Missing::NoObservedStep))
    }

    pub(super) fn comm_model(&self, buckets: &[BucketStats]) -> Figure<AlphaBeta> {
        if self.lacks_files() {
            return Missing::RanksWithoutFile.into();
        }
        let model = || comm_model::fit(&model_points(buckets)).ok_or(Missing::OneBucketSize);
        self.reasons.needs_collectives(model)
    }

    pub(super) fn flops_utilization(&self) -> FlopsUtilization {
        let facts = self.facts;
        if facts.is_imported() {
            let missing = || Missing::NotInFiles.into();
            return FlopsUtilization {
                basis: None,
                model: missing(),
                hardware: missing(),
                model_flops_per_second: missing(),
            };
        }
        let used = mfu::used(&facts.work, &facts.sample_unit, &self.steps);
        let basis = |(counted, peak)| wording::mfu::basis(counted, peak, &facts.sample_unit, facts.ranks);
        FlopsUtilization {
            basis: used.basis().map(basis),
            model: used.model().into(),
            hardware: used.hardware().into(),
            model_flops_per_second: used.counted.map(|counted| counted.per_second).into(),
        }
    }

    /// Each rank in each step, as far as there are records.
    fn ranks(&self) -> impl Iterator<Item = &RankAnalysis> {
        self.steps.iter().flat_map(|step| step.present().map(|(_, rank)| rank))
    }
}

/// The samples of one rank in one step, as the job counts them: the median over steps of the mean over ranks. `None` if the
/// job does not count its samples.
#[must_use]
pub fn batch(steps: &[&StepAnalysis]) -> Option<f64> {
    let mean = |step: &&StepAnalysis| stats::mean(step.present().map(|(_, rank)| rank.samples as f64));
    stats::median(steps.iter().filter_map(mean)).filter(|&samples| samples > 0.0)
}
