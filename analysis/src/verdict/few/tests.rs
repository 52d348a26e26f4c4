//! Verdicts on simulated jobs, from records: what they say of ranks must not depend on the numbers of ranks, nor on the unit of time.

use proptest::prelude::*;
use timing::clocks::ClockFit;
use wire::clock::MonoNanos;
use wire::event::{BucketRecord, Source, Span, SpanKind, StepRecord};
use wire::ids::{Bucket, Comm, Step};
use wire::views::{Cause, ComputedOn};

use super::super::{NOTABLE_SHARE, judge as judge_any};
use super::*;
use crate::records::{RankStep, StepRecords};
use crate::step::analyze;

const MICROS: i64 = 1_000;
/// Times of a simulated step, in nanoseconds.
const COMPUTE: i64 = 3_000 * MICROS;
const TRANSFER: i64 = 300 * MICROS;

/// What delays a rank.
#[derive(Clone, Copy, Debug)]
enum Why {
    /// Its device computes longer.
    Computes,
    /// Its device does nothing before each collective.
    Idles,
}

/// A rank that is late: before the collectives for which the remainder of its number by `interval` is 0, by so many nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Fault {
    rank: usize,
    why: Why,
    nanos: i64,
    interval: usize,
    first: usize,
}

/// A job whose ranks compute and reduce, again and again, and wait for each other each time.
#[derive(Clone, Debug)]
struct Simulated {
    ranks: usize,
    steps: u64,
    all_reduces: usize,
    faults: Vec<Fault>,
    seed: u64,
    /// A rank that has no file.
    absent: Option<usize>,
}

impl Simulated {
    /// Returns how long a rank computes and idles before a collective.
    fn work(&self, step: u64, number: usize, rank: usize) -> (i64, i64) {
        let at = self.seed ^ (step << 24 | (number as u64) << 12 | rank as u64);
        // A mixer of bits (splitmix64).
        let mixed = at.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let jitter = ((mixed ^ (mixed >> 27)) % 60) as i64 * MICROS;
        let (mut compute, mut idle) = (COMPUTE + jitter, 0);
        for fault in
            self.faults.iter().filter(|fault| fault.rank == rank && number % fault.interval == fault.first)
        {
            match fault.why {
                Why::Computes => compute += fault.nanos,
                Why::Idles => idle += fault.nanos,
            }
        }
        (compute, idle)
    }

    /// Returns the analyzed steps. `order` has the number of each rank, and all durations are `scale` times as long.
    fn steps(&self, order: &[usize], scale: i64) -> Vec<StepAnalysis> {
        let mut now = 0;
        (2..self.steps + 2).map(|step| self.step(step, &mut now, order, scale)).collect()
    }

    fn step(&self, step: u64, now: &mut i64, order: &[usize], scale: i64) -> StepAnalysis {
        let (number, begin) = (Step(step), *now);
        let mut ranks: Vec<(Vec<Span>, Vec<BucketRecord>)> = vec![(Vec::new(), Vec::new()); self.ranks];
        for collective in 0..self.all_reduces {
            let work: Vec<(i64, i64)> =
                (0..self.ranks).map(|rank| self.work(step, collective, rank)).collect();
            let last = work.iter().map(|(compute, idle)| compute + idle).max().unwrap_or(0);
            let begin_of_collective = *now;
            let end = begin_of_collective + last + TRANSFER;
            for ((spans, buckets), (compute, idle)) in ranks.iter_mut().zip(work) {
                let (computed, start) = (begin_of_collective + compute, begin_of_collective + compute + idle);
                let at = |nanos: i64| MonoNanos(nanos * scale);
                let mut span = |kind, begin, end| {
                    spans.push(Span { step: number, kind, begin: at(begin), end: at(end), cpu_nanos: 0 });
                };
                span(SpanKind::Backward, begin_of_collective, computed);
                span(SpanKind::Idle, computed, start);
                span(SpanKind::Blocked, start, end);
                buckets.push(BucketRecord {
                    step: number,
                    comm: Comm(0),
                    seq: Function::AllReduce.numbered(step * 100 + collective as u64),
                    bucket: Bucket(collective as u32),
                    bytes: 1 << 20,
                    ready: at(computed),
                    launch: at(computed),
                    start: at(start),
                    end: at(end),
                    source: Source::ActivityRecord,
                });
            }
            *now = end;
        }
        let end = *now;
        let record = StepRecord {
            step: number,
            begin: MonoNanos(begin * scale),
            end: MonoNanos(end * scale),
            samples: 0,
            shadow: false,
        };
        let mut placed = vec![None; self.ranks];
        for (rank, (spans, buckets)) in
            ranks.into_iter().enumerate().filter(|(rank, _)| Some(*rank) != self.absent)
        {
            placed[order[rank]] = Some(Box::new(RankStep { record, spans, buckets }));
        }
        let records = StepRecords { step: number, ranks: placed, absent: usize::from(self.absent.is_some()) };
        let fit = |clock| {
            Some(ClockFit { clock: clock as u32, bound_nanos: 20_000 * scale as u64, ..ClockFit::exact() })
        };
        analyze(&records, &(0..self.ranks).map(fit).collect::<Vec<_>>())
    }

    /// Returns true if the probability that chance explains how late some rank is lies within a factor of three of the limit.
    fn is_close_to_chance(&self) -> bool {
        let steps = self.steps(&unchanged_order(self.ranks), 1);
        let mut delays = newest_delays(&steps.iter().collect::<Vec<_>>());
        while !delays.is_empty() {
            let scores = scores(&delays, self.ranks);
            let worst = (0..self.ranks).max_by(|&a, &b| scores[a].total_cmp(&scores[b])).unwrap_or(0);
            let chance = chance(&delays, self.ranks, scores[worst]);
            if (MAX_CHANCE / 3.0..MAX_CHANCE * 3.0).contains(&chance) {
                return true;
            }
            delays.retain(|delay| delay.rank != worst);
        }
        false
    }

    /// Returns who is named, in verdicts and in notes, with the cause and the share of a step in per cent. Ranks have the numbers that the
    /// simulation gives them.
    fn judged(&self, order: &[usize], scale: i64, is_recorded: bool) -> Judged {
        let steps = self.steps(order, scale);
        let setting = Setting {
            computed_on: ComputedOn::Gpu,
            notable_share: NOTABLE_SHARE,
            hidden_steps: &[],
            is_recorded,
            is_on_bare_metal: false,
            course: &[],
            has_only_collectives: false,
        };
        let (found, missing) = judge_any(&steps.iter().collect::<Vec<_>>(), &setting);
        let original = |place: u32| order.iter().position(|&original| original == place as usize);
        let named = |finding: &Finding| {
            let ranks = match &finding.verdict.culprit {
                Some(Culprit::Rank(rank)) => vec![original(*rank)],
                Some(Culprit::Ranks(ranks)) => ranks.iter().map(|&rank| original(rank)).collect(),
                _ => Vec::new(),
            };
            let mut ranks: Vec<usize> = ranks.into_iter().flatten().collect();
            ranks.sort_unstable();
            (ranks, finding.verdict.cause, (finding.verdict.cost_share * 100.0).round() as i64)
        };
        let names = |findings: &[Finding]| findings.iter().map(named).collect();
        Judged { verdicts: names(&found.verdicts), notes: names(&found.notes), is_missing: missing.is_some() }
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Judged {
    verdicts: Vec<(Vec<usize>, Cause, i64)>,
    notes: Vec<(Vec<usize>, Cause, i64)>,
    is_missing: bool,
}

impl Judged {
    fn named(&self) -> Vec<Vec<usize>> {
        self.verdicts.iter().map(|(ranks, ..)| ranks.clone()).filter(|ranks| !ranks.is_empty()).collect()
    }
}

fn fault(rank: usize, why: Why, nanos: i64, interval: usize) -> Fault {
    Fault { rank, why, nanos, interval, first: 0 }
}

fn simulated(ranks: usize, steps: u64, all_reduces: usize, faults: &[Fault]) -> Simulated {
    Simulated { ranks, steps, all_reduces, faults: faults.to_vec(), seed: 7, absent: None }
}

fn unchanged_order(ranks: usize) -> Vec<usize> {
    (0..ranks).collect()
}

#[test]
fn a_rank_that_is_late_in_every_collective_is_named_as_one_that_is_late_in_every_second() {
    for (interval, steps) in [(1, 1), (2, 1), (1, 4), (1, 22)] {
        for (why, cause) in [(Why::Idles, Cause::Host), (Why::Computes, Cause::Compute)] {
            let job = simulated(4, steps, 16, &[fault(2, why, 2_000 * MICROS, interval)]);
            let judged = job.judged(&unchanged_order(4), 1, true);
            assert_eq!(judged.named(), [[2]], "{interval} {steps}: {judged:?}");
            assert_eq!(judged.verdicts[0].1, cause);
        }
    }
}

#[test]
fn two_ranks_that_are_late_in_turn_are_both_named() {
    let faults = [
        fault(1, Why::Computes, 2_500 * MICROS, 2),
        Fault { first: 1, ..fault(3, Why::Idles, 1_200 * MICROS, 2) },
    ];
    let judged = simulated(4, 2, 12, &faults).judged(&unchanged_order(4), 1, true);
    assert_eq!(judged.named(), [[1], [3]], "{judged:?}");
}

#[test]
fn what_all_ranks_lose_alike_has_a_verdict_if_its_share_is_clear() {
    for (micros, is_clear) in [(2_000, true), (300, false)] {
        for steps in [1, 3, 19] {
            let faults: Vec<Fault> = (0..4).map(|rank| fault(rank, Why::Idles, micros * MICROS, 1)).collect();
            let judged = simulated(4, steps, 6, &faults).judged(&unchanged_order(4), 1, true);
            let is_of_all =
                |(ranks, cause, _): &&(Vec<usize>, Cause, i64)| ranks.is_empty() && *cause == Cause::Host;
            let all_count = judged.verdicts.iter().filter(is_of_all).count();
            assert_eq!(all_count, usize::from(is_clear), "{micros} {steps}: {judged:?}");
            assert!(judged.named().is_empty(), "{judged:?}");
        }
    }
}

/// The others wait for it in all of their exposed communication, which would look like slow transfers.
#[test]
fn waiting_for_a_rank_without_a_file_is_not_communication_that_all_ranks_lose() {
    for steps in [1, 3, 25] {
        let late = simulated(4, steps, 6, &[fault(3, Why::Idles, 9_000 * MICROS, 1)]);
        let judged = Simulated { absent: Some(3), ..late }.judged(&unchanged_order(4), 1, true);
        assert!(judged.verdicts.is_empty() && judged.notes.is_empty(), "{steps}: {judged:?}");
    }
}

#[test]
fn ranks_that_are_last_as_often_as_chance_has_it_are_not_named() {
    for steps in [1, 3, 25] {
        for seed in 0..8 {
            let job = Simulated { seed, ..simulated(4, steps, 8, &[]) };
            let judged = job.judged(&unchanged_order(4), 1, true);
            assert!(judged.named().is_empty() && judged.notes.is_empty(), "{seed}: {judged:?}");
        }
    }
}

/// With so few steps, five whole ones are not lost, so that no rank is named by their number. It is last in all of them.
#[test]
fn a_rank_that_is_always_last_takes_no_turns_however_many_steps_there_are() {
    for steps in [19, 20, 22, 25, 60] {
        let job = simulated(4, steps, 4, &[fault(3, Why::Computes, 600 * MICROS, 1)]);
        let recorded = job.judged(&unchanged_order(4), 1, true);
        assert_eq!(recorded.named(), [[3]], "{steps}: {recorded:?}");
        let is_turns =
            |(ranks, cause, _): &&(Vec<usize>, Cause, i64)| ranks.is_empty() && *cause == Cause::Unknown;
        assert_eq!(recorded.verdicts.iter().find(is_turns), None, "{steps}");
        let live = job.judged(&unchanged_order(4), 1, false);
        assert_eq!(live.verdicts.iter().find(is_turns), None, "{steps}: {live:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// The numbers of ranks are labels: with others, the same ranks are named at the same cost. So are they if all takes twice as long. Nor is
    /// another rank named if a rank that is not named has no file.
    #[test]
    fn verdicts_depend_neither_on_the_numbers_of_ranks_nor_on_the_unit_of_time(
        order in Just((0..4).collect::<Vec<usize>>()).prop_shuffle(),
        steps in prop::sample::select(vec![1_u64, 3, 21, 30]),
        faults in prop::collection::vec((0_usize..4, prop::bool::ANY, 0_i64..3_000, 1_usize..4), 0..3),
        seed in 0_u64..1_000,
        is_recorded in prop::bool::ANY,
    ) {
        let faults = faults.into_iter().map(|(rank, idles, micros, interval)| {
            fault(rank, if idles { Why::Idles } else { Why::Computes }, micros * MICROS, interval)
        });
        let job = Simulated { ranks: 4, steps, all_reduces: 6, faults: faults.collect(), seed, absent: None };
        let expected = job.judged(&unchanged_order(4), 1, is_recorded);
        prop_assert_eq!(&job.judged(&order, 1, is_recorded), &expected);
        // Delays count by how much longer they are than kernels are apart anyway, which is a fixed time: what is close to the limit of
        // chance may be beyond it if all takes twice as long.
        if !job.is_close_to_chance() {
            prop_assert_eq!(job.judged(&unchanged_order(4), 2, is_recorded).named(), expected.named());
        }
        let whole = job.judged(&unchanged_order(4), 1, true);
        let blamed: Vec<usize> = whole.named().concat();
        for absent in (0..4).filter(|rank| !blamed.contains(rank)) {
            let judged = Simulated { absent: Some(absent), ..job.clone() }.judged(&order, 1, true);
            let named = judged.named().concat();
            prop_assert!(named.iter().all(|rank| blamed.contains(rank)), "without {absent}: {judged:?}, and not {whole:?}");
        }
    }
}
