//! One step on all ranks: ledger, overlap, waits, lateness (`docs/metrics.md`, "One bucket on one rank" and "One step
//! on one rank").

mod lateness;

use wire::clock::{MonoNanos, ServerNanos};
use wire::event::{Source, SpanKind, StepRecord};
use wire::ids::{Bucket, Comm, Seq, Step};
use wire::live::Part;
use wire::views::Group;

use crate::join::{Joined, JoinedCollective, Member, Wait, duration};
use crate::records::{RankStep, StepRecords};
use crate::replay::{self, Replay};
use crate::stats;
use timing::clocks::ClockFit;
use timing::intervals::{Interval, Intervals};
use timing::parts::is_part;

/// The analysis of one rank in one step; times in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct RankAnalysis {
    /// The ledger, indexed by [`Part`]; it sums to `step_nanos` exactly.
    pub parts: [u64; Part::COUNT],
    /// The parts of the pause, in the order of [`SpanKind::PAUSES`].
    pub pauses: [u64; SpanKind::PAUSES.len()],
    /// The local step time.
    pub step_nanos: u64,
    /// The samples that this rank processed.
    pub samples: u64,
    /// |C|: compute time, less the time blocked in the reducer.
    pub compute_nanos: u64,
    /// |K|: time in collectives.
    pub comm_nanos: u64,
    /// |K ∩ C|: hidden communication.
    pub hidden_nanos: u64,
    /// The part of `hidden_nanos` in which the rank is only assumed to compute.
    pub assumed_hidden_nanos: u64,
    /// The part of K \ C in which the rank is only assumed not to compute.
    pub assumed_exposed_nanos: u64,
    /// The processor time of the training thread in each phase, in the order of [`SpanKind::PHASES`]; all 0 if it was not
    /// measured.
    pub processor_nanos: [u64; SpanKind::PHASES.len()],
    /// The number of backward passes: several if gradients are accumulated, or if models take turns.
    pub backward_passes: u32,
    /// The tail: the end of the last bucket less the end of the last backward compute.
    pub tail_nanos: Option<u64>,
    /// The mean over buckets of start - median start; needs aligned clocks.
    pub lateness_nanos: Option<f64>,
    /// The caused wait: how long after the rank before it this rank started, summed over its collectives.
    pub caused_wait_nanos: u64,
    /// True if exposed time is split into wait and transfer by the clock-free wait, because the clock bound is larger
    /// than the wait.
    pub clock_free: bool,
}

impl RankAnalysis {
    /// Returns the rank's local work: its step less exposed collectives. The other ranks wait for it.
    #[must_use]
    pub fn own_nanos(&self) -> u64 {
        self.step_nanos - self.part(Part::ExposedWait) - self.part(Part::ExposedTransfer)
    }

    /// Returns the processor time inside compute phases; `None` if it was not measured.
    #[must_use]
    pub fn compute_processor_nanos(&self) -> Option<u64> {
        let [_, _, forward, backward, optimizer] = self.processor_nanos;
        let all = [forward, backward, optimizer].into_iter().fold(0, u64::saturating_add);
        (all > 0).then_some(all)
    }

    /// Returns how long the training thread was off the processor in forward and backward; `None` if it was not measured.
    #[must_use]
    pub fn off_processor_nanos(&self) -> Option<u64> {
        let [_, _, forward, backward, _] = self.processor_nanos;
        let ran = forward.saturating_add(backward);
        let passes = self.part(Part::Forward) + self.part(Part::Backward);
        (ran > 0).then_some(passes.saturating_sub(ran))
    }

    #[must_use]
    pub fn part(&self, part: Part) -> u64 {
        self.parts[part as usize]
    }
}

/// One collective over all its ranks; times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CollectiveAnalysis {
    /// The shape of the group of ranks that take part.
    pub group: Group,
    /// The lowest rank that takes part.
    pub first: usize,
    pub comm: Comm,
    /// The sequence number on the communicator.
    pub seq: Seq,
    /// True if the times say only when the collective was enqueued, and not when it ran.
    pub only_enqueued: bool,
    pub bucket: Bucket,
    /// The payload in bytes.
    pub bytes: u64,
    /// The rank that started last; `None` if ranks are missing or clocks are not aligned well enough.
    pub culprit: Option<usize>,
    /// By how much it started after the rank before it; `None` as above, among one rank, and if the clocks of both may be
    /// wrong by as much.
    pub last_by_nanos: Option<u64>,
    /// The part of `last_by_nanos` by which it had not been late in the collective before. Ranks that enqueue collectives ahead start one
    /// as soon as the one before it ends, so that a rank that fell behind once is late in all of them.
    pub newly_late_nanos: Option<u64>,
    /// The mean over ranks of the wait by aligned clocks.
    pub wait_nanos: Option<f64>,
    /// The mean over ranks of the clock-free wait.
    pub wait_clock_free_nanos: f64,
    /// The median over ranks of the transfer by aligned clocks.
    pub transfer_nanos: Option<f64>,
    /// The clock-free transfer: the shortest duration on any rank.
    pub transfer_clock_free_nanos: f64,
    /// The time hidden behind compute, summed over ranks.
    pub hidden_nanos: u64,
    /// The time in which nothing shows whether the rank computes, summed over ranks.
    pub unclear_nanos: u64,
    /// The duration within the step, summed over ranks. What the rank computes beyond the step is not known to it.
    pub duration_nanos: u64,
}

/// One analyzed step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepAnalysis {
    pub step: Step,
    /// The analysis of each rank; `None` if the rank's records are missing. Behind a pointer, as in [`StepRecords::ranks`].
    pub ranks: Vec<Option<Box<RankAnalysis>>>,
    /// The collectives in launch order.
    pub collectives: Vec<CollectiveAnalysis>,
    /// The begin and end over all ranks on the server's clock; `None` without aligned clocks.
    pub window: Option<(ServerNanos, ServerNanos)>,
    /// The median over ranks of the local step time.
    pub local_nanos: u64,
    /// True if the records of every rank are there.
    pub complete: bool,
    /// True for a shadow step.
    pub shadow: bool,
    /// The replay, which answers what-ifs; `None` if the step cannot be replayed.
    pub replay: Option<Replay>,
}

impl StepAnalysis {
    /// Returns the step time T = max end - min begin on aligned clocks, or the median local step time without them.
    #[must_use]
    pub fn step_nanos(&self) -> u64 {
        self.window.map_or(self.local_nanos, |(begin, end)| (end - begin).max(0).unsigned_abs())
    }

    /// Returns the time that the step adds to the run: T less the time that it shares with the previous step, if some
    /// ranks begin it later than others.
    #[must_use]
    pub fn period_nanos(&self) -> u64 {
        match &self.replay {
            Some(replay) => (replay.measured_nanos - replay.skew_nanos).max(0.0) as u64,
            None => self.step_nanos(),
        }
    }

    /// Returns true if the records of some collective say only when it was enqueued, and not when it ran.
    #[must_use]
    pub fn is_only_enqueued(&self) -> bool {
        self.collectives.iter().any(|collective| collective.only_enqueued)
    }

    /// Returns true if the step was observed in full: its records say which part of it took how long. Otherwise only its
    /// length is known, and marked input and copies.
    #[must_use]
    pub fn is_observed_in_full(&self) -> bool {
        !self.shadow && !self.is_only_enqueued()
    }

    /// Returns the ranks whose records are there.
    pub fn present(&self) -> impl Iterator<Item = (usize, &RankAnalysis)> {
        self.ranks.iter().enumerate().filter_map(|(rank, analysis)| Some((rank, analysis.as_deref()?)))
    }
}

/// The intervals of one rank's step, as sets, on the rank's own clock.
pub(crate) struct RankSets {
    pub(crate) step: Interval,
    pub(crate) by_kind: [Intervals; SpanKind::COUNT],
    /// Collectives, and parts of those that other steps launched.
    pub(crate) comm: Intervals,
    /// The end of the last collective that the step launched.
    reduced: Option<i64>,
    pub(crate) waiting: Intervals,
    /// The pauses of all kinds.
    pub(crate) paused: Intervals,
    pub(crate) compute: Intervals,
    /// [`Intervals::sums`] of `compute`.
    compute_sums: Vec<u64>,
    /// [`Intervals::sums`] of the time in which nothing shows whether the rank computes.
    unclear_sums: Vec<u64>,
    pub(crate) clock_free: bool,
}

impl RankSets {
    /// Builds the sets of a step of a rank. `waits` are the rank's waits, in the order of its bucket records.
    pub(crate) fn new(rank: usize, step: &RankStep, waits: &[Wait]) -> Self {
        let window = (step.record.begin.0, step.record.end.0);
        let clipped = |parts: Vec<Interval>| Intervals::union(parts).clip(window);
        let by_kind = SpanKind::ALL.map(|kind| {
            let spans = step.spans.iter().filter(|span| span.kind == kind);
            clipped(spans.map(|span| (span.begin.0, span.end.0)).collect())
        });
        let mut clock_free = false;
        let waiting = step.buckets.iter().zip(waits).map(|(bucket, wait)| {
            let (wait, free) = wait.best();
            clock_free |= free;
            (bucket.start.0, (bucket.start + wait).0)
        });
        let waiting = clipped(waiting.collect());
        let comm = clipped(step.buckets.iter().map(|bucket| (bucket.start.0, bucket.end.0)).collect());
        let own = step.buckets.iter().filter(|bucket| !is_part(rank as u32, bucket));
        let own = clipped(own.map(|bucket| (bucket.start.0, bucket.end.0)).collect());
        let reduced = own.as_slice().last().map(|last| last.1);
        let busy = [SpanKind::Forward, SpanKind::Backward, SpanKind::Optimizer]
            .iter()
            .flat_map(|&kind| by_kind[kind as usize].as_slice().iter().copied());
        let paused = SpanKind::PAUSES.iter().flat_map(|&kind| by_kind[kind as usize].as_slice());
        let paused = Intervals::union(paused.copied());
        let compute = Intervals::union(busy).subtract(&by_kind[SpanKind::Blocked as usize]).subtract(&paused);
        let compute_sums = compute.sums();
        let unclear_sums = by_kind[SpanKind::Unclear as usize].sums();
        Self {
            step: window,
            by_kind,
            comm,
            reduced,
            waiting,
            paused,
            compute,
            compute_sums,
            unclear_sums,
            clock_free,
        }
    }

    /// Computes the ledger. Every moment of the step goes to the first part that claims it, so the parts sum exactly.
    ///
    /// Compute claims first. Exposed collectives come before pauses, input and copies, because exposed communication is
    /// defined as K \ C. What no part claims is `other`.
    fn parts(&self) -> ([u64; Part::COUNT], [u64; SpanKind::PAUSES.len()]) {
        let kind = |kind: SpanKind| self.by_kind[kind as usize].clone();
        let computing = |wanted: SpanKind| kind(wanted).intersect(&self.compute);
        let claims = [
            (Part::Forward, computing(SpanKind::Forward)),
            (Part::Backward, computing(SpanKind::Backward)),
            (Part::Optimizer, computing(SpanKind::Optimizer)),
            (Part::ExposedWait, self.comm.intersect(&self.waiting)),
            (Part::ExposedTransfer, self.comm.clone()),
        ];
        let mut parts = [0; Part::COUNT];
        let mut left = Intervals::union([self.step]);
        let mut claimed = |claim: &Intervals| {
            let nanos = left.intersect(claim).total();
            left = left.subtract(claim);
            nanos
        };
        for (part, claim) in claims {
            parts[part as usize] = claimed(&claim);
        }
        let pauses = SpanKind::PAUSES.map(|pause| claimed(&kind(pause)));
        parts[Part::Pause as usize] = pauses.iter().sum();
        parts[Part::Input as usize] = claimed(&kind(SpanKind::Input));
        parts[Part::H2d as usize] = claimed(&kind(SpanKind::H2d));
        parts[Part::Idle as usize] = claimed(&kind(SpanKind::Idle));
        parts[Part::Other as usize] = left.total();
        (parts, pauses)
    }

    /// Returns the compute time within `[begin, end)`, in nanoseconds.
    fn compute_within(&self, interval: Interval) -> u64 {
        total_within(&self.compute, &self.compute_sums, interval)
    }

    /// Returns the time within `[begin, end)` in which nothing shows whether the rank computes, in nanoseconds.
    fn unclear_within(&self, interval: Interval) -> u64 {
        total_within(&self.by_kind[SpanKind::Unclear as usize], &self.unclear_sums, interval)
    }

    /// Returns the tail. Backward compute ends where the thread begins to wait for the last buckets; later work on the
    /// reduced gradients is not backward compute.
    fn tail(&self) -> Option<u64> {
        let last_bucket = self.reduced?;
        let waits_from =
            self.by_kind[SpanKind::Blocked as usize].as_slice().last().map_or(self.step.1, |last| last.0);
        let backward = self.by_kind[SpanKind::Backward as usize].clip((self.step.0, waits_from));
        let last_backward = backward.as_slice().last()?.1;
        Some((last_bucket - last_backward).max(0).unsigned_abs())
    }
}

/// Returns the total of `intervals` within `[begin, end)`. `sums` are their [`Intervals::sums`].
fn total_within(intervals: &Intervals, sums: &[u64], (begin, end): Interval) -> u64 {
    let total_before = |time| intervals.total_before(sums, time);
    total_before(end.max(begin)) - total_before(begin)
}

/// Analyzes one step. `fits` is indexed by rank, as the records are.
#[must_use]
pub fn analyze(records: &StepRecords, fits: &[Option<ClockFit>]) -> StepAnalysis {
    let joined = Joined::new(records, fits);
    let sets = |(rank, (step, waits)): (usize, (&Option<Box<RankStep>>, &Vec<Wait>))| {
        Some(Box::new(RankSets::new(rank, step.as_ref()?, waits)))
    };
    let sets: Vec<Option<Box<RankSets>>> =
        records.ranks.iter().zip(&joined.waits).enumerate().map(sets).collect();
    let previous = std::iter::once(None).chain(joined.collectives.iter().map(Some));
    let collectives: Vec<CollectiveAnalysis> = joined
        .collectives
        .iter()
        .zip(previous)
        .filter_map(|(collective, previous)| analyze_collective(collective, previous, &sets))
        .collect();
    let mut ranks: Vec<Option<Box<RankAnalysis>>> = records
        .ranks
        .iter()
        .zip(&sets)
        .map(|(step, sets)| Some(Box::new(analyze_rank(step.as_ref()?, sets.as_ref()?))))
        .collect();
    add_lateness(&mut ranks, &joined);
    add_caused_waits(&mut ranks, &joined);
    let local = ranks.iter().flatten().map(|rank| rank.step_nanos as f64);
    StepAnalysis {
        step: records.step,
        local_nanos: stats::median(local).unwrap_or(0.0) as u64,
        window: window(records, fits),
        complete: records.is_complete(),
        shadow: records.is_shadow(),
        replay: replay::replay(records, fits, &joined),
        ranks,
        collectives,
    }
}

fn window(records: &StepRecords, fits: &[Option<ClockFit>]) -> Option<(ServerNanos, ServerNanos)> {
    let aligned = |time: fn(&StepRecord) -> MonoNanos| {
        let present = records.ranks.iter().enumerate().filter_map(|(r, step)| Some((r, step.as_deref()?)));
        present
            .map(|(rank, step)| Some(fits.get(rank)?.as_ref()?.align(time(&step.record))))
            .collect::<Option<Vec<_>>>()
    };
    Some((aligned(|step| step.begin)?.into_iter().min()?, aligned(|step| step.end)?.into_iter().max()?))
}

fn analyze_rank(step: &RankStep, sets: &RankSets) -> RankAnalysis {
    let processor = |kind: SpanKind| {
        let cpu_nanos = step.spans.iter().filter(|span| span.kind == kind).map(|span| span.cpu_nanos);
        cpu_nanos.fold(0, u64::saturating_add)
    };
    let (parts, pauses) = sets.parts();
    let hidden = sets.comm.intersect(&sets.compute);
    let unclear = sets.comm.intersect(&sets.by_kind[SpanKind::Unclear as usize]);
    let assumed_hidden = unclear.intersect(&hidden).total();
    RankAnalysis {
        parts,
        pauses,
        step_nanos: (step.record.end - step.record.begin).max(0).unsigned_abs(),
        samples: step.record.samples,
        compute_nanos: sets.compute.total(),
        comm_nanos: sets.comm.total(),
        hidden_nanos: hidden.total(),
        assumed_hidden_nanos: assumed_hidden,
        assumed_exposed_nanos: unclear.total() - assumed_hidden,
        processor_nanos: SpanKind::PHASES.map(processor),
        backward_passes: step.spans.iter().filter(|span| span.kind == SpanKind::Backward).count() as u32,
        tail_nanos: sets.tail(),
        lateness_nanos: None,
        caused_wait_nanos: 0,
        clock_free: sets.clock_free,
    }
}

/// Analyzes a collective. `previous` is the one before it in the order of [`Joined::collectives`].
fn analyze_collective(
    collective: &JoinedCollective<'_>,
    previous: Option<&JoinedCollective<'_>>,
    sets: &[Option<Box<RankSets>>],
) -> Option<CollectiveAnalysis> {
    let members = &collective.members;
    let first = members.first()?.record;
    let aligned = || members.iter().filter_map(|member| Some((member.wait.aligned?, member.record)));
    let sum_within = |nanos: fn(&RankSets, Interval) -> u64| -> u64 {
        let overlap = |member: &Member<'_>| {
            let sets = sets[member.rank].as_ref()?;
            let (begin, end) = sets.step;
            let clipped = |time: MonoNanos| time.0.max(begin).min(end);
            Some(nanos(sets, (clipped(member.record.start), clipped(member.record.end))))
        };
        members.iter().filter_map(overlap).sum()
    };
    Some(CollectiveAnalysis {
        group: Group::from_ranks(members.iter().map(|member| member.rank)),
        first: members[0].rank,
        comm: collective.comm,
        seq: collective.seq,
        only_enqueued: members.iter().any(|member| member.record.source == Source::Derived),
        bucket: first.bucket,
        bytes: first.bytes,
        culprit: collective.latest.map(|last| last.rank),
        last_by_nanos: lateness::last_by(collective),
        newly_late_nanos: lateness::newly_late(collective, previous),
        wait_nanos: stats::mean(aligned().map(|(wait, _)| wait as f64)),
        wait_clock_free_nanos: stats::mean(members.iter().map(|member| member.wait.clock_free as f64))?,
        transfer_nanos: stats::median(
            aligned().map(|(wait, record)| (duration(record) - wait).max(0) as f64),
        ),
        transfer_clock_free_nanos: collective.shortest as f64,
        hidden_nanos: sum_within(RankSets::compute_within),
        unclear_nanos: sum_within(RankSets::unclear_within),
        duration_nanos: sum_within(|_, (begin, end)| end.saturating_sub(begin).max(0).unsigned_abs()),
    })
}

fn add_caused_waits(ranks: &mut [Option<Box<RankAnalysis>>], joined: &Joined<'_>) {
    for (rank, nanos) in joined.collectives.iter().flat_map(JoinedCollective::caused_waits) {
        if let Some(rank) = &mut ranks[rank] {
            rank.caused_wait_nanos = rank.caused_wait_nanos.saturating_add(nanos.unsigned_abs());
        }
    }
}

/// Fills in the lateness: start_r - median_q start_q, averaged over the step's collectives among all ranks.
fn add_lateness(ranks: &mut [Option<Box<RankAnalysis>>], joined: &Joined<'_>) {
    let mut sums = vec![(0.0, 0_u32); ranks.len()];
    for JoinedCollective { members, .. } in &joined.collectives {
        // Starts are relative to the first member's start, so that an `f64` holds nanoseconds exactly.
        let Some(origin) = members.first().and_then(|first| first.start) else { continue };
        let start_of = |member: &Member<'_>| Some((member.rank, (member.start? - origin) as f64));
        let starts: Vec<(usize, f64)> = members.iter().filter_map(start_of).collect();
        if starts.len() < ranks.len() {
            continue;
        }
        let Some(median) = stats::median(starts.iter().map(|&(_, start)| start)) else { continue };
        for (rank, start) in starts {
            sums[rank].0 += start - median;
            sums[rank].1 += 1;
        }
    }
    for (rank, (sum, count)) in ranks.iter_mut().zip(sums) {
        if let Some(rank) = rank.as_mut().filter(|_| count > 0) {
            rank.lateness_nanos = Some(sum / f64::from(count));
        }
    }
}

#[cfg(test)]
mod tests;
