//! What holds for verdicts on any job: the first one explains the largest loss, whatever its shape; the numbers of ranks and the
//! unit of time decide nothing; what is booked sums to the time.

use proptest::prelude::*;
use wire::live::Part;
use wire::views::{Cause, Culprit};

use super::*;
use crate::account::{StepAccount, account};

/// The number of steps of a job.
const STEPS: u64 = 300;

/// When a planted loss happens.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Shape {
    AllTheTime,
    /// More with each step, up to twice the mean.
    Grows,
    Every(u64),
    Once(u64),
}

impl Shape {
    /// Returns what a loss of `nanos` in the mean is in a step.
    fn nanos(self, step: u64, nanos: u64) -> u64 {
        let is_in = match self {
            Self::AllTheTime => true,
            Self::Grows => return 2 * nanos * step / STEPS,
            Self::Every(period) => step % period == period - 1,
            Self::Once(at) => step == at,
        };
        if is_in { nanos } else { 0 }
    }
}

/// A loss that is planted into a healthy job of four ranks.
#[derive(Clone, Copy, Debug)]
struct Planted {
    /// The rank that has it, or all of them.
    rank: Option<usize>,
    part: Part,
    shape: Shape,
    millis: u64,
}

impl Planted {
    fn steps(self) -> Vec<StepAnalysis> {
        run(STEPS, |step, rank| {
            let nanos = self.shape.nanos(step, self.millis * MS);
            (nanos > 0 && self.rank.is_none_or(|own| own == rank)).then_some((nanos, self.part))
        })
    }

    fn cause(self) -> Cause {
        match self.part {
            _ if self.is_hang() => Cause::Hang,
            Part::Input => Cause::Input,
            Part::H2d => Cause::H2d,
            Part::Pause => Cause::GarbageCollection,
            Part::Other => Cause::Host,
            _ => Cause::Compute,
        }
    }

    /// Recorded pauses keep their kind, however long they are.
    fn is_hang(self) -> bool {
        let is_once = matches!(self.shape, Shape::Once(_)) && self.part != Part::Pause;
        is_once && self.millis as f64 / 1e3 >= hang::limit_seconds(0.021)
    }

    fn culprit(self) -> Culprit {
        self.rank.map_or(Culprit::All, |rank| Culprit::Rank(rank as u32))
    }

    fn lost_nanos(self) -> u64 {
        (0..STEPS).map(|step| self.shape.nanos(step, self.millis * MS)).sum()
    }
}

fn planted() -> impl Strategy<Value = Planted> {
    let rank = prop_oneof![Just(None), (0_usize..4).prop_map(Some)];
    let part = prop_oneof![Just(Part::Input), Just(Part::H2d), Just(Part::Pause), Just(Part::Other)];
    let shape = prop_oneof![
        (10_u64..60).prop_map(|millis| (Shape::Grows, millis)),
        (20_u64..60).prop_map(|millis| (Shape::AllTheTime, millis)),
        (12_u64..50, 90_u64..300).prop_map(|(period, millis)| (Shape::Every(period), millis)),
        (30_u64..290, 1_500_u64..20_000).prop_map(|(at, millis)| (Shape::Once(at), millis)),
    ];
    let planted =
        (rank, part, shape).prop_map(|(rank, part, (shape, millis))| Planted { rank, part, shape, millis });
    // Pauses have verdicts of their own, whatever their length.
    planted.prop_filter("pauses do not grow", |planted| {
        planted.shape != Shape::Grows || planted.part != Part::Pause
    })
}

/// Returns the same job with its ranks renumbered: rank `order[i]` becomes rank `i`.
fn relabeled(steps: &[StepAnalysis], order: [usize; 4]) -> Vec<StepAnalysis> {
    let relabeled_step = |step: &StepAnalysis| StepAnalysis {
        ranks: order.iter().map(|&rank| step.ranks[rank].clone()).collect(),
        ..step.clone()
    };
    steps.iter().map(relabeled_step).collect()
}

/// Returns the same job in twice the time.
fn doubled(steps: &[StepAnalysis]) -> Vec<StepAnalysis> {
    let mut steps = steps.to_vec();
    for step in &mut steps {
        step.local_nanos *= 2;
        for rank in step.ranks.iter_mut().flatten() {
            rank.parts
                .iter_mut()
                .chain(&mut rank.pauses)
                .chain(&mut rank.processor_nanos)
                .for_each(|nanos| *nanos *= 2);
            for nanos in
                [&mut rank.step_nanos, &mut rank.compute_nanos, &mut rank.comm_nanos, &mut rank.hidden_nanos]
            {
                *nanos *= 2;
            }
            rank.tail_nanos = rank.tail_nanos.map(|nanos| 2 * nanos);
        }
    }
    steps
}

/// What a verdict says, without its figures.
type Said = (Option<Culprit>, Cause, VerdictState, u64, Option<u64>, bool);

fn said(verdicts: &[Verdict], named: impl Fn(&Culprit) -> Culprit) -> Vec<Said> {
    let summary = |verdict: &Verdict| {
        let period = verdict.recurrence.as_ref().and_then(|recurrence| recurrence.every_steps);
        let culprit = verdict.culprit.as_ref().map(&named);
        (culprit, verdict.cause, verdict.state, verdict.affected_steps, period, verdict.growth.is_some())
    };
    verdicts.iter().map(summary).collect()
}

proptest! {
    #[test]
    fn the_first_verdict_explains_the_largest_loss_whatever_its_shape(planted in planted()) {
        let verdicts = judge(&planted.steps());
        let first = verdicts.first().expect("the loss is a verdict");
        prop_assert_eq!(first.culprit.clone(), Some(planted.culprit()), "{:?}: {:#?}", planted, verdicts);
        prop_assert_eq!(first.cause, planted.cause(), "{:?}: {:#?}", planted, verdicts);
        let (found, truth) = (first.lost_nanos() as f64, planted.lost_nanos() as f64);
        prop_assert!((found - truth).abs() <= 0.2 * truth, "{:?} lost {} ns: {:#?}", planted, truth, first);
        if let Shape::Every(period) = planted.shape {
            let interval = first.recurrence.as_ref().and_then(|recurrence| recurrence.every_steps);
            prop_assert_eq!(interval, Some(period), "{:?}: {:#?}", planted, first);
        }
        prop_assert_eq!(first.growth.is_some(), planted.shape == Shape::Grows, "{:?}: {:#?}", planted, first);
        if let Some(growth) = first.growth {
            let rate = (2 * planted.millis * MS) as f64 / STEPS as f64 * 1e3;
            prop_assert!((growth.nanos_per_thousand_steps / rate - 1.0).abs() < 0.1, "{:?}: {:#?}", planted, growth);
        }
    }

    #[test]
    fn renumbered_ranks_have_the_same_verdicts(planted in planted(), order in Just([0, 1, 2, 3]).prop_shuffle()) {
        let steps = planted.steps();
        let place = |rank: u32| order.iter().position(|&original| original == rank as usize).expect("it is a rank") as u32;
        let renamed = |culprit: &Culprit| match culprit {
            Culprit::Rank(rank) => Culprit::Rank(place(*rank)),
            Culprit::Ranks(ranks) => {
                let mut ranks: Vec<u32> = ranks.iter().map(|&rank| place(rank)).collect();
                ranks.sort_unstable();
                Culprit::Ranks(ranks)
            }
            Culprit::All => Culprit::All,
        };
        let unchanged = said(&judge(&steps), renamed);
        prop_assert_eq!(unchanged, said(&judge(&relabeled(&steps, order)), Clone::clone));
    }

    #[test]
    fn twice_the_time_has_the_same_verdicts(planted in planted()) {
        // What counts as a hang is a time in seconds, and no share.
        prop_assume!(planted.millis < 4_000);
        let steps = planted.steps();
        prop_assert_eq!(said(&judge(&steps), Clone::clone), said(&judge(&doubled(&steps)), Clone::clone));
    }

    #[test]
    fn the_account_sums_to_the_time_of_the_steps(planted in planted()) {
        let steps = planted.steps();
        let accounts: Vec<StepAccount> = steps.iter().filter_map(StepAccount::new).collect();
        for (account, step) in accounts.iter().zip(&steps) {
            prop_assert!((account.total() - step.period_nanos() as f64).abs() < 1.0, "{:?} of {}", account, step.period_nanos());
        }
        let whole = account(&accounts, None);
        prop_assert_eq!(whole.entries.iter().map(|entry| entry.nanos).sum::<u64>(), whole.wall_nanos);
        let period: u64 = steps.iter().map(StepAnalysis::period_nanos).sum();
        prop_assert!(whole.wall_nanos.abs_diff(period) <= steps.len() as u64);
    }
}

#[test]
fn a_healthy_job_says_that_nothing_is_wrong_and_blames_no_rank() {
    let steps = healthy(300);
    assert!(judge(&steps).iter().all(|verdict| verdict.culprit == Some(Culprit::All)));
    let accounts: Vec<StepAccount> = steps.iter().filter_map(StepAccount::new).collect();
    let spent = wording::account::spent(&account(&accounts, None), &[], None, None);
    assert!(spent.starts_with("Nothing slows the job: 8"), "{spent}");
}
