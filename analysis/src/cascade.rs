//! The way from the ideal step to the measured one, in time: what each verdict and each other loss adds.
//!
//! The bars are the implied loss ledger ([`crate::loss`]) in nanoseconds. The cost of each verdict is a bar of its own, and is
//! taken out of the losses in which a slow rank shows: first its own, then the wait of the others, so that all bars
//! still sum to the step.

use wire::views::what_if::{EfficiencyKind, Loss, LossLedger, Saving, WhatIf};
use wire::views::{Cause, Report, Verdict};

use crate::loss::{StepCosts, implied};

/// What a bar stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BarKind {
    /// A verdict, by index.
    Verdict(usize),
    /// A loss, without what verdicts explain.
    Loss(Loss),
    /// What the losses do not explain.
    Residual,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bar {
    /// What it stands for.
    pub kind: BarKind,
    /// What it adds to the step, in nanoseconds. Only a residual may be negative.
    pub nanos: f64,
    /// The largest replayed saving that would shorten it, if any. A fix that would save more than the bar shortens the bar
    /// of a verdict too, and is left out.
    pub fix: Option<Saving>,
}

/// The way from the ideal step to the measured one. `ideal_nanos` and the bars sum to `measured_nanos`.
#[derive(Clone, Debug, PartialEq)]
pub struct Cascade {
    /// The ideal step: implied efficiency x period.
    pub ideal_nanos: f64,
    /// The bars, verdicts first.
    pub bars: Vec<Bar>,
    /// The period ([`Report::period_nanos`]).
    pub measured_nanos: f64,
}

/// Returns the cascade of a report; `None` without a period or a loss ledger. `verdicts` are those of the report, or of a
/// report over more steps of the same run.
#[must_use]
pub fn cascade(report: &Report, verdicts: &[Verdict]) -> Option<Cascade> {
    let (period, ledger) = (report.period_nanos.value()?, ledger(report)?);
    let mut pools = Pools::new(&ledger, period);
    let mut bars: Vec<Bar> = verdicts
        .iter()
        .enumerate()
        .map(|(at, verdict)| Bar {
            kind: BarKind::Verdict(at),
            nanos: pools.take(verdict, report),
            fix: None,
        })
        .filter(|bar| bar.nanos > 0.0)
        .collect();
    bars.extend(pools.losses.iter().map(|&(loss, nanos)| Bar {
        kind: BarKind::Loss(loss),
        nanos,
        fix: report.what_if.known().and_then(|what_if| best(what_if, loss, nanos)),
    }));
    bars.push(Bar { kind: BarKind::Residual, nanos: ledger.residual * period, fix: None });
    Some(Cascade { ideal_nanos: pools.ideal, bars, measured_nanos: period })
}

/// Returns the implied loss ledger. The way to the ideal step is that of this run alone: against another run, a part may
/// have become shorter, and an ideal step that is longer than the measured one leads nowhere.
fn ledger(report: &Report) -> Option<LossLedger> {
    match report.loss_ledger.known()? {
        LossLedger { kind: EfficiencyKind::Measured, .. } => {
            StepCosts::from_report(report).map(|own| implied(&own))
        }
        ledger => Some(ledger.clone()),
    }
}

/// The parts of a step, from which verdicts take their cost.
struct Pools {
    ideal: f64,
    losses: Vec<(Loss, f64)>,
}

impl Pools {
    fn new(ledger: &LossLedger, period: f64) -> Self {
        let losses = ledger.losses.iter().map(|&(loss, share)| (loss, share * period)).collect();
        Self { ideal: ledger.efficiency * period, losses }
    }

    /// Takes the cost of a verdict per observed step, and returns what there was of it.
    fn take(&mut self, verdict: &Verdict, report: &Report) -> f64 {
        let share = verdict.affected_steps as f64 / report.steps.max(1) as f64;
        let cost = verdict.cost_nanos_per_step as f64 * share.min(1.0);
        let culprits = verdict.culprit.as_ref().map_or(0, |culprit| culprit.ranks().len());
        let explained = match culprits {
            0 => cost,
            culprits => cost * culprits as f64 / f64::from(report.ranks.max(1)),
        };
        let mut left = cost;
        let mut explained = explained.min(left);
        for &own in own_losses(verdict.cause) {
            let taken = self.take_from(own, explained);
            (explained, left) = (explained - taken, left - taken);
        }
        for waiting in [Loss::Imbalance, Loss::ExposedWait] {
            left -= self.take_from(waiting, left);
        }
        // A rank that computes for longer also lengthens the mean compute time.
        let computed = left.min(self.ideal).max(0.0);
        self.ideal -= computed;
        cost - (left - computed)
    }

    fn take_from(&mut self, from: Loss, wanted: f64) -> f64 {
        let Some((_, nanos)) = self.losses.iter_mut().find(|(loss, _)| *loss == from) else { return 0.0 };
        let taken = wanted.min(*nanos).max(0.0);
        *nanos -= taken;
        taken
    }
}

/// Returns the losses in which the time of the culprit itself is counted; none if it is counted as compute.
fn own_losses(cause: Cause) -> &'static [Loss] {
    match cause {
        Cause::Input | Cause::H2d => &[Loss::Input],
        Cause::Network | Cause::Communication => &[Loss::ExposedTransfer],
        Cause::Host | Cause::Unknown => &[Loss::Pause, Loss::Idle, Loss::Other],
        Cause::Checkpoint | Cause::Evaluation | Cause::GarbageCollection | Cause::Compilation => {
            &[Loss::Pause]
        }
        Cause::Hang => &[Loss::Other, Loss::Input],
        Cause::Compute | Cause::MoreWork | Cause::ClockThrottle | Cause::Processor | Cause::Optimizer => &[],
        // No step is longer for it.
        Cause::Restart | Cause::Start => &[],
    }
}

/// Returns the largest replayed saving that would shorten a loss of `nanos`, and no other.
fn best(what_if: &WhatIf, loss: Loss, nanos: f64) -> Option<Saving> {
    let among = match loss {
        Loss::Imbalance => &what_if.phases,
        Loss::ExposedTransfer => &what_if.buckets,
        Loss::ComputeDrift | Loss::ExposedWait | Loss::Input | Loss::Pause | Loss::Idle | Loss::Other => {
            return None;
        }
    };
    let worth = among.iter().filter(|saving| (f64::MIN_POSITIVE..=nanos).contains(&saving.nanos_per_step));
    worth.max_by(|a, b| a.nanos_per_step.total_cmp(&b.nanos_per_step)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;
    use proptest::prelude::*;
    use wire::ids::Rank;
    use wire::views::what_if::{Fix, Phase};
    use wire::views::{Culprit, Figure, Missing, RankLedger};

    fn verdict(cause: Cause, cost: u64) -> Verdict {
        Verdict {
            cost_nanos_per_step: cost,
            cost_share: 0.1,
            affected_steps: 100,
            steps: (0, 99),
            ..Verdict::new(Culprit::Rank(2), cause)
        }
    }

    fn with_losses(losses: [f64; 7], residual: f64, verdicts: Vec<Verdict>) -> Report {
        let efficiency = 1.0 - losses.iter().sum::<f64>() - residual;
        let losses = Loss::ALL.into_iter().zip(losses).collect();
        Report {
            ranks: 4,
            steps: 100,
            period_nanos: Figure::Known(100.0),
            loss_ledger: Figure::Known(LossLedger {
                kind: EfficiencyKind::Implied,
                efficiency,
                losses,
                residual,
            }),
            verdicts,
            ..fixtures::report("r")
        }
    }

    #[test]
    fn a_slower_baseline_makes_no_step_longer_than_it_is() {
        let rank = |rank| RankLedger {
            rank: Rank(rank),
            input_nanos: 100,
            forward_nanos: 2_000,
            backward_nanos: 6_000,
            exposed_transfer_nanos: 1_900,
            step_nanos: 10_000,
            ..RankLedger::default()
        };
        let implied = Report { ledger: (0..4).map(rank).collect(), ..with_losses([0.0; 7], 0.0, Vec::new()) };
        // Against a baseline that was slowed down, the efficiency is above 1 and losses are negative.
        let measured = LossLedger {
            kind: EfficiencyKind::Measured,
            efficiency: 1.17,
            losses: Loss::ALL.into_iter().zip([0.0, -0.1, 0.0, 0.0, -0.07, 0.0, 0.0]).collect(),
            residual: 0.0,
        };
        let cascade = cascade(&Report { loss_ledger: Figure::Known(measured), ..implied }, &[]).unwrap();
        assert!((cascade.ideal_nanos - 80.0).abs() < 1e-9, "{cascade:?}");
        let losses = cascade.bars.iter().filter(|bar| bar.kind != BarKind::Residual);
        assert!(losses.map(|bar| bar.nanos).all(|nanos| nanos >= 0.0), "{cascade:?}");
        assert!((sum(&cascade) - 100.0).abs() < 1e-9);
    }

    fn sum(cascade: &Cascade) -> f64 {
        cascade.ideal_nanos + cascade.bars.iter().map(|bar| bar.nanos).sum::<f64>()
    }

    #[test]
    fn a_verdict_is_the_largest_bar_and_costs_what_it_says() {
        let report =
            with_losses([0.0, 0.30, 0.02, 0.05, 0.12, 0.0, 0.01], 0.0, vec![verdict(Cause::Input, 40)]);
        let cascade = cascade(&report, &report.verdicts).unwrap();
        assert_eq!((cascade.bars[0].kind, cascade.bars[0].nanos), (BarKind::Verdict(0), 40.0));
        let others = cascade.bars[1..].iter().map(|bar| bar.nanos).fold(0.0, f64::max);
        assert!(others < 40.0, "{cascade:?}");
        // A quarter of the cost is the rank's own input. The rest is the wait of the other three ranks.
        let loss_nanos =
            |loss| cascade.bars.iter().find(|bar| bar.kind == BarKind::Loss(loss)).unwrap().nanos;
        assert!(
            (loss_nanos(Loss::Input) - 2.0).abs() < 1e-9 && loss_nanos(Loss::Imbalance) < 1e-9,
            "{cascade:?}"
        );
        assert!((sum(&cascade) - 100.0).abs() < 1e-9);
    }

    #[test]
    fn a_fault_of_some_steps_costs_less_per_step() {
        let brief = Verdict { affected_steps: 25, ..verdict(Cause::Compute, 40) };
        let report = with_losses([0.0, 0.08, 0.0, 0.0, 0.0, 0.0, 0.0], 0.0, vec![brief]);
        let cascade = cascade(&report, &report.verdicts).unwrap();
        assert!((cascade.bars[0].nanos - 10.0).abs() < 1e-9);
        assert!((cascade.ideal_nanos - 90.0).abs() < 1e-9, "2 of 10 are in the culprit's own compute");
    }

    #[test]
    fn a_fix_that_would_save_more_than_a_loss_is_not_offered_for_it() {
        let phase = |nanos_per_step| Saving { fix: Fix::Phase(Phase::Input), nanos_per_step, share: 0.0 };
        let offered = |savings: &[f64]| {
            let what_if = WhatIf {
                steps: 1,
                withheld_steps: 0,
                simulation_error: 0.0,
                slowdown: 1.0,
                wasted_share: 0.0,
                even_slowdown: 1.0,
                slowest_share: Missing::EvenRanks.into(),
                ranks: Vec::new(),
                phases: savings.iter().copied().map(phase).collect(),
                buckets: Vec::new(),
            };
            best(&what_if, Loss::Imbalance, 10.0).map(|saving| saving.nanos_per_step)
        };
        assert_eq!(offered(&[4.0, 9.0, 40.0]), Some(9.0));
        assert_eq!(offered(&[40.0, 0.0]), None);
    }

    #[test]
    fn without_a_ledger_there_is_no_cascade() {
        let none = fixtures::report("r");
        assert_eq!(cascade(&none, &[]), None);
    }

    proptest! {
        #[test]
        fn the_bars_sum_to_the_step(
            losses in prop::array::uniform7(0.0..0.13),
            residual in -0.05..0.05,
            costs in prop::collection::vec((0u64..80, 0usize..9), 0..4),
        ) {
            let causes = [
                Cause::Input, Cause::H2d, Cause::Compute, Cause::MoreWork, Cause::ClockThrottle, Cause::Host,
                Cause::Processor, Cause::Network, Cause::Unknown,
            ];
            let verdicts = costs.into_iter().map(|(cost, at)| verdict(causes[at], cost)).collect();
            let report = with_losses(losses, residual, verdicts);
            let cascade = cascade(&report, &report.verdicts).unwrap();
            prop_assert!((sum(&cascade) - 100.0).abs() < 1e-6);
            prop_assert!(cascade.ideal_nanos >= 0.0);
            let negative = cascade.bars.iter().any(|bar| bar.nanos < 0.0 && bar.kind != BarKind::Residual);
            prop_assert!(!negative, "{:?}", cascade);
        }
    }
}
