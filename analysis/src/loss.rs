//! The loss ledger (`docs/metrics.md`, "One run"): 1 - E, split by where the time goes.

use wire::live::Part;
use wire::views::what_if::{EfficiencyKind, Loss, LossLedger};
use wire::views::{RankLedger, Report};

use crate::stats;
use crate::step::StepAnalysis;

/// The costs of a run per step; means over ranks and steps, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepCosts {
    /// The time from one step to the next.
    pub period: f64,
    /// Forward, backward and optimizer.
    pub compute: f64,
    /// The wait for ranks whose local work is longer on average.
    pub imbalance: f64,
    /// The rest of the exposed wait.
    pub wait: f64,
    /// The exposed transfer.
    pub transfer: f64,
    /// Input and copies to the device.
    pub input: f64,
    pub pause: f64,
    /// The time in which the device ran nothing.
    pub idle: f64,
    /// The time in no phase.
    pub other: f64,
}

impl StepCosts {
    /// Computes the costs of `steps` steps from their ledger. `period` is the time from one step to the next. Returns
    /// `None` without ranks or steps.
    #[must_use]
    pub fn from_ledger(ledger: &[RankLedger], steps: usize, period: f64) -> Option<Self> {
        let counted = (ledger.len() * steps) as f64;
        let mean = |parts: &[Part]| {
            let sum =
                ledger.iter().map(|rank| parts.iter().map(|&part| rank.parts()[part as usize]).sum::<u64>());
            sum.sum::<u64>() as f64 / counted
        };
        if counted == 0.0 {
            return None;
        }
        let own: Vec<f64> = ledger.iter().map(|rank| rank.own_nanos() as f64 / steps as f64).collect();
        let longest = own.iter().copied().fold(0.0, f64::max);
        let wait = mean(&[Part::ExposedWait]);
        // Steady differences between ranks explain this part. The rest is waiting for whichever rank is last in a step.
        let imbalance = (longest - stats::mean(own)?).clamp(0.0, wait);
        Some(Self {
            period,
            compute: mean(&[Part::Forward, Part::Backward, Part::Optimizer]),
            imbalance,
            wait: wait - imbalance,
            transfer: mean(&[Part::ExposedTransfer]),
            input: mean(&[Part::Input, Part::H2d]),
            pause: mean(&[Part::Pause]),
            idle: mean(&[Part::Idle]),
            other: mean(&[Part::Other]),
        })
    }

    /// Computes the costs of the steps in `report`; `None` if they are not known.
    #[must_use]
    pub fn from_report(report: &Report) -> Option<Self> {
        report.loss_ledger.known()?;
        Self::from_ledger(&report.ledger, report.steps as usize, report.period_nanos.value()?)
    }

    fn losses(&self) -> [f64; Loss::ALL.len()] {
        [
            self.compute,
            self.imbalance,
            self.wait,
            self.transfer,
            self.input,
            self.pause,
            self.idle,
            self.other,
        ]
    }
}

/// Returns the mean time from one step to the next, in nanoseconds.
#[must_use]
pub fn period(steps: &[&StepAnalysis]) -> Option<f64> {
    stats::mean(steps.iter().map(|step| step.period_nanos() as f64))
}

/// Returns the implied loss ledger: E is the mean share of the step that is compute, and compute cannot drift.
#[must_use]
pub fn implied(own: &StepCosts) -> LossLedger {
    let efficiency = own.compute / own.period;
    let mut shares = own.losses().map(|nanos| nanos / own.period);
    shares[Loss::ComputeDrift as usize] = 0.0;
    ledger(EfficiencyKind::Implied, efficiency, shares)
}

/// Returns the measured loss ledger: E is `efficiency`, and each loss is the additional cost of this run over the
/// baseline.
#[must_use]
pub fn measured(own: &StepCosts, baseline: &StepCosts, efficiency: f64) -> LossLedger {
    let (own_losses, theirs) = (own.losses(), baseline.losses());
    let shares = std::array::from_fn(|at| (own_losses[at] - theirs[at]) / own.period);
    ledger(EfficiencyKind::Measured, efficiency, shares)
}

fn ledger(kind: EfficiencyKind, efficiency: f64, shares: [f64; Loss::ALL.len()]) -> LossLedger {
    LossLedger {
        kind,
        efficiency,
        losses: Loss::ALL
            .into_iter()
            .zip(shares)
            .filter(|(loss, share)| *loss != Loss::Idle || *share != 0.0)
            .collect(),
        residual: 1.0 - efficiency - shares.iter().sum::<f64>(),
    }
}

#[cfg(test)]
mod tests {
    use wire::ids::Rank;

    use super::*;

    fn rank(rank: u32, input_nanos: u64, exposed_wait_nanos: u64) -> RankLedger {
        RankLedger {
            rank: Rank(rank),
            input_nanos,
            forward_nanos: 20,
            backward_nanos: 40,
            exposed_wait_nanos,
            exposed_transfer_nanos: 10,
            optimizer_nanos: 5,
            other_nanos: 5,
            step_nanos: 80 + input_nanos + exposed_wait_nanos,
            ..RankLedger::default()
        }
    }

    #[test]
    fn losses_efficiency_and_residual_sum_to_one() {
        // Local work is 70 plus input: 72 and 92. The mean is 82, so 10 of the mean wait of 12 are imbalance.
        let costs = StepCosts::from_ledger(&[rank(0, 2, 22), rank(1, 22, 2)], 1, 108.0).unwrap();
        assert_eq!((costs.imbalance, costs.wait), (10.0, 2.0));
        let ledger = implied(&costs);
        assert!((ledger.efficiency - 65.0 / 108.0).abs() < 1e-12);
        let lost: f64 = ledger.losses.iter().map(|(_, share)| share).sum();
        assert!((ledger.efficiency + lost + ledger.residual - 1.0).abs() < 1e-12);
        // The steps of the ranks take 104; the other 4 of the 108 lie between steps.
        assert!((ledger.residual - 4.0 / 108.0).abs() < 1e-12, "{ledger:?}");
    }

    #[test]
    fn losses_against_a_baseline_are_the_differences_in_cost() {
        let own = StepCosts::from_ledger(&[rank(0, 2, 22), rank(1, 22, 2)], 1, 104.0).unwrap();
        let alone = StepCosts { period: 80.0, imbalance: 0.0, wait: 0.0, transfer: 0.0, ..own };
        let ledger = measured(&own, &alone, 80.0 / 104.0);
        let loss_share = |loss: Loss| ledger.losses[loss as usize].1;
        assert_eq!(loss_share(Loss::ComputeDrift), 0.0);
        assert!((loss_share(Loss::ExposedTransfer) - 10.0 / 104.0).abs() < 1e-12);
        assert!((loss_share(Loss::Imbalance) - 10.0 / 104.0).abs() < 1e-12);
        assert!((ledger.residual - 2.0 / 104.0).abs() < 1e-12, "{ledger:?}");
    }
}
