//! One step as a graph: the work of each rank, when its buckets become ready, how long they take.

use wire::event::{BucketRecord, SpanKind};
use wire::ids::{Bucket, Comm};
use wire::views::what_if::Phase;

use super::horizon::{Horizon, Line};
use super::{Usual, phase_of};
use crate::join::{self, Joined};
use crate::records::{RankStep, StepRecords};
use timing::clocks::ClockFit;
use timing::intervals::{Interval, Intervals};

pub(super) const PHASES: usize = Phase::ALL.len();
/// Local work by [`Phase`], in nanoseconds.
pub(super) type Durations = [f64; PHASES];
/// The share of the step beyond which a clock's error bound makes it unusable for placing ranks.
const MAX_BOUND_SHARE: f64 = 0.025;

/// One rank; times in nanoseconds.
pub(super) struct RankGraph {
    /// The begin, counted from the earliest begin of any rank.
    pub(super) begin: f64,
    /// The local work of the whole step.
    pub(super) total: Durations,
    /// The local work before the thread blocks for the last time.
    pub(super) before: Durations,
    /// The local work before each collective is ready.
    pub(super) ready: Vec<Durations>,
    /// The time from when the bucket is ready and the communicator free until the start.
    pub(super) gap: Vec<f64>,
    /// The time from the last rank's start to this rank's end.
    pub(super) transfer: Vec<f64>,
}

pub(super) struct GraphCollective {
    pub(super) bucket: Bucket,
    pub(super) bytes: u64,
    comm: usize,
    /// The index of the previous collective on the same communicator.
    follows: Option<usize>,
}

pub(super) struct Graph {
    pub(super) ranks: Vec<RankGraph>,
    pub(super) collectives: Vec<GraphCollective>,
    pub(super) measured: f64,
    /// Whether some rank waits for a collective before the last ones. Its later work is then delayed by more than its
    /// local work, which this graph does not represent.
    pub(super) is_held_up: bool,
    comms: usize,
}

impl Graph {
    /// Builds the graph of a step. Returns `None` if not every rank takes part in every collective.
    pub(super) fn new(observed: &Observed<'_>, joined: &Joined<'_>) -> Option<Self> {
        let Observed { steps, works, placed } = observed;
        if !joined.collectives.iter().all(|collective| has_each_rank(collective, steps.len())) {
            return None;
        }
        let (collectives, comms) = collectives(joined);
        let transfers = transfers(joined, observed);
        let own =
            |rank: usize| joined.collectives.iter().map(move |collective| collective.members[rank].record);
        let rank = |(rank, transfer): (usize, Vec<f64>)| {
            let buckets: Vec<&BucketRecord> = own(rank).collect();
            let end = steps[rank].record.end.0;
            rank_graph(&works[rank], (placed.begins[rank], end), &buckets, &collectives, transfer)
        };
        let ranks = transfers.into_iter().enumerate().map(rank).collect();
        let holds = |rank: usize, record: &BucketRecord| {
            let (start, end) = (start_within(steps[rank], record), record.end.0);
            start < end && end <= works[rank].sync && works[rank].is_blocked(start, end)
        };
        let is_held_up = (0..steps.len()).any(|rank| own(rank).any(|record| holds(rank, record)));
        Some(Self { ranks, collectives, measured: placed.measured, is_held_up, comms })
    }

    /// Returns one rank's line with its phases scaled. With `usual`, its begin is no later, and its transfers and gaps
    /// are no longer, than usual.
    pub(super) fn line(&self, rank: usize, scale: &Durations, usual: Option<&Usual>) -> Line {
        let own = &self.ranks[rank];
        let scaled = |work: &Durations| work.iter().zip(scale).map(|(work, scale)| work * scale).sum::<f64>();
        let ready: Vec<f64> = own.ready.iter().map(scaled).collect();
        let before = scaled(&own.before);
        let after = scaled(&own.total) - before;
        match usual {
            None => self.flatten(own.begin, &ready, &own.gap, &own.transfer, before, after),
            Some(usual) => {
                let least = |own: &[f64], usual: &[f64]| -> Vec<f64> {
                    own.iter().zip(usual).map(|(own, usual)| own.min(*usual)).collect()
                };
                let gaps = least(&own.gap, &usual.gaps);
                let transfers = least(&own.transfer, &usual.transfers);
                self.flatten(own.begin.min(usual.begin), &ready, &gaps, &transfers, before, after)
            }
        }
    }

    /// Builds a rank's line from these points:
    ///
    /// - for each collective, when the rank's local work lets it start;
    /// - for each collective, how long after the begin of the previous one it can start;
    /// - for each collective, its gap;
    /// - when the step ends if nothing is waited for, the work after the last collective, and the begin;
    /// - for each communicator, how long after the begin of its last collective the step ends.
    pub(super) fn flatten(
        &self,
        begin: f64,
        ready: &[f64],
        gap: &[f64],
        transfer: &[f64],
        before: f64,
        after: f64,
    ) -> Line {
        let mut line = Vec::with_capacity(3 * self.collectives.len() + 3 + self.comms);
        line.extend(ready.iter().zip(gap).map(|(ready, gap)| begin + ready + gap));
        let follow = |(at, collective): (usize, &GraphCollective)| {
            collective.follows.map_or(f64::NEG_INFINITY, |previous| transfer[previous] + gap[at])
        };
        line.extend(self.collectives.iter().enumerate().map(follow));
        line.extend(gap);
        line.extend([begin + before + after, after, begin]);
        line.extend(
            (0..self.comms)
                .map(|comm| self.last_of(comm).map_or(f64::NEG_INFINITY, |last| transfer[last] + after)),
        );
        Line(line)
    }

    fn last_of(&self, comm: usize) -> Option<usize> {
        self.collectives.iter().rposition(|collective| collective.comm == comm)
    }

    /// Returns the time that the step adds to the run, from the last begin to the last end, in nanoseconds. `maxima`
    /// are the maxima over ranks of [`Self::flatten`]; the collective `free` takes no time to transfer.
    pub(super) fn simulate(&self, maxima: &[f64], free: Option<usize>) -> f64 {
        let count = self.collectives.len();
        let (ready, rest) = maxima.split_at(count);
        let (follow, rest) = rest.split_at(count);
        let (gap, rest) = rest.split_at(count);
        let mut begins = vec![0.0_f64; count];
        for (at, collective) in self.collectives.iter().enumerate() {
            let after_last = collective.follows.map_or(f64::NEG_INFINITY, |previous| {
                begins[previous] + if free == Some(previous) { gap[at] } else { follow[at] }
            });
            begins[at] = ready[at].max(after_last);
        }
        let (alone, after, begin) = (rest[0], rest[1], rest[2]);
        let ends = (0..self.comms).filter_map(|comm| {
            let last = self.last_of(comm)?;
            Some(begins[last] + if free == Some(last) { after } else { rest[3 + comm] })
        });
        ends.fold(alone, f64::max) - begin
    }

    /// Returns the step time with one phase at its mean over ranks, on every rank.
    pub(super) fn evened(&self, phase: usize, means: &Durations) -> f64 {
        let line = |rank: usize| {
            let mut scale = [1.0; PHASES];
            let own = self.ranks[rank].total[phase];
            if own > 0.0 {
                scale[phase] = means[phase] / own;
            }
            self.line(rank, &scale, None)
        };
        self.play(line)
    }

    /// Returns the step time with these lines of all ranks.
    pub(super) fn play(&self, line: impl Fn(usize) -> Line) -> f64 {
        self.simulate(&Horizon::new((0..self.ranks.len()).map(line)).maxima(), None)
    }
}

/// Returns true if the collective has one record of every rank.
fn has_each_rank(collective: &join::JoinedCollective<'_>, ranks: usize) -> bool {
    collective.members.iter().map(|member| member.rank).eq(0..ranks)
}

fn collectives(joined: &Joined<'_>) -> (Vec<GraphCollective>, usize) {
    let mut comms: Vec<Comm> = Vec::new();
    let mut last: Vec<usize> = Vec::new();
    let mut collectives = Vec::with_capacity(joined.collectives.len());
    for (at, join::JoinedCollective { comm, members, .. }) in joined.collectives.iter().enumerate() {
        let known = comms.iter().position(|known| known == comm);
        let number = known.unwrap_or_else(|| {
            comms.push(*comm);
            last.push(at);
            comms.len() - 1
        });
        let follows = known.map(|known| std::mem::replace(&mut last[known], at));
        let (bucket, bytes) = (members[0].record.bucket, members[0].record.bytes);
        collectives.push(GraphCollective { bucket, bytes, comm: number, follows });
    }
    (collectives, comms.len())
}

/// A step that was observed on all ranks.
pub(super) struct Observed<'a> {
    pub(super) steps: Vec<&'a RankStep>,
    pub(super) works: Vec<Work>,
    pub(super) placed: Placed,
}

impl<'a> Observed<'a> {
    /// Returns `None` if a rank is missing, or if the step was not observed.
    pub(super) fn new(records: &'a StepRecords, fits: &[Option<ClockFit>]) -> Option<Self> {
        let steps: Vec<&RankStep> = records.ranks.iter().map(Option::as_deref).collect::<Option<_>>()?;
        if steps.iter().any(|step| step.record.shadow) {
            return None;
        }
        let works = steps.iter().map(|step| Work::new(step)).collect();
        let placed = Placed::new(&steps, fits);
        Some(Self { steps, works, placed })
    }
}

/// The positions of the ranks' steps in time.
pub(super) struct Placed {
    /// The nanoseconds to add to each rank's times; `None` if the clocks are not good enough.
    pub(super) offsets: Option<Vec<i64>>,
    pub(super) begins: Vec<f64>,
    pub(super) measured: f64,
}

impl Placed {
    pub(super) fn new(steps: &[&RankStep], fits: &[Option<ClockFit>]) -> Self {
        let longest = steps.iter().map(|step| step.record.end - step.record.begin).max().unwrap_or(0);
        let Some(offsets) = offsets(steps, fits, longest as f64 * MAX_BOUND_SHARE) else {
            return Self { offsets: None, begins: vec![0.0; steps.len()], measured: longest as f64 };
        };
        let placed = |time: fn(&RankStep) -> i64| {
            steps.iter().zip(&offsets).map(move |(step, offset)| time(step) + offset).collect::<Vec<_>>()
        };
        let begins = placed(|step| step.record.begin.0);
        let first = begins.iter().copied().min().unwrap_or(0);
        let last = placed(|step| step.record.end.0).into_iter().max().unwrap_or(0);
        let begins = begins.into_iter().map(|begin| (begin - first) as f64).collect();
        Self { offsets: Some(offsets), begins, measured: (last - first) as f64 }
    }
}

/// Returns the nanoseconds to add to each rank's times to place them on one clock; `None` if times of two ranks may be
/// off against each other by more than `most` nanoseconds.
fn offsets(steps: &[&RankStep], fits: &[Option<ClockFit>], most: f64) -> Option<Vec<i64>> {
    let fits: Vec<&ClockFit> =
        (0..steps.len()).map(|rank| fits.get(rank)?.as_ref()).collect::<Option<_>>()?;
    // No rank is the reference: another order of the ranks gives the same answer.
    let worst = fits.iter().max_by_key(|fit| fit.bound())?;
    if fits.iter().any(|fit| fit.bound_between(worst) as f64 > most) {
        return None;
    }
    // One offset serves the whole step: a drift of at most 200 ppm moves the ends of 50 ms apart by 10 us.
    let offset = |(fit, step): (&&ClockFit, &&RankStep)| fit.align(step.record.begin).0 - step.record.begin.0;
    Some(fits.iter().zip(steps).map(offset).collect())
}

/// Returns the start of a collective, in nanoseconds of the rank's clock, or the begin of the step if it started before:
/// what a step spends on a collective begins with the step.
pub(super) fn start_within(step: &RankStep, record: &BucketRecord) -> i64 {
    record.start.max(step.record.begin).0
}

/// Returns each rank's transfers: with aligned clocks, from the last start to the rank's end; without them, the
/// shortest duration.
fn transfers(joined: &Joined<'_>, observed: &Observed<'_>) -> Vec<Vec<f64>> {
    let Observed { steps, placed, .. } = observed;
    let mut transfers = vec![Vec::with_capacity(joined.collectives.len()); placed.begins.len()];
    for collective in &joined.collectives {
        let records = || collective.members.iter().map(|member| member.record);
        match &placed.offsets {
            Some(offsets) => {
                let starts = records().zip(steps).map(|(bucket, step)| start_within(step, bucket));
                let starts = starts.zip(offsets).map(|(start, offset)| start + offset);
                let last = starts.max().unwrap_or(0);
                for ((rank, bucket), offset) in transfers.iter_mut().zip(records()).zip(offsets) {
                    rank.push((bucket.end.0 + offset - last).max(0) as f64);
                }
            }
            None => transfers.iter_mut().for_each(|rank| rank.push(collective.shortest as f64)),
        }
    }
    transfers
}

fn rank_graph(
    work: &Work,
    (begin, end): (f64, i64),
    buckets: &[&BucketRecord],
    collectives: &[GraphCollective],
    transfer: Vec<f64>,
) -> RankGraph {
    let mut gap = Vec::with_capacity(buckets.len());
    for (bucket, collective) in buckets.iter().zip(collectives) {
        let free = collective.follows.map_or(i64::MIN, |previous| buckets[previous].end.0);
        gap.push((bucket.start.0 - bucket.ready.0.max(free)).max(0) as f64);
    }
    RankGraph {
        begin,
        total: work.durations_until(end),
        before: work.durations_until(work.sync),
        ready: buckets.iter().map(|bucket| work.durations_until(bucket.ready.0)).collect(),
        gap,
        transfer,
    }
}

/// The timeline of a training thread during a step, on its own clock.
pub(super) struct Work {
    /// The local work in each phase. Neighboring spans of one phase are merged.
    phases: [Summed; PHASES],
    blocked: Summed,
    last_blocked: Option<Interval>,
    /// When the thread blocks for the last time; the end of the last backward if it never blocks.
    sync: i64,
}

impl Work {
    pub(super) fn new(step: &RankStep) -> Self {
        let mut spans: Vec<_> = step.spans.iter().map(|span| (span.begin.0, span.end.0, span.kind)).collect();
        spans.sort_unstable_by_key(|&(begin, end, _)| (begin, end));
        let window = (step.record.begin.0, step.record.end.0);
        let windows = |wanted: SpanKind| {
            spans.iter().filter(move |&&(_, _, kind)| kind == wanted).map(|&(begin, end, _)| (begin, end))
        };
        let blocked = Intervals::union(windows(SpanKind::Blocked));
        let last_blocked = windows(SpanKind::Blocked).next_back();
        let last_backward = windows(SpanKind::Backward).next_back().map_or(window.1, |(_, end)| end);
        let local = |stretches: Vec<Interval>| Summed::new(Intervals::union(stretches).subtract(&blocked));
        Self {
            phases: stretches(&spans, window).map(local),
            blocked: Summed::new(blocked),
            last_blocked,
            sync: last_blocked.map_or(last_backward, |(begin, _)| begin),
        }
    }

    /// Returns true if the thread was blocked for this whole time, up to what two clocks may differ by.
    pub(super) fn is_blocked(&self, begin: i64, end: i64) -> bool {
        let blocked = self.blocked.total_before(end.max(begin)) - self.blocked.total_before(begin);
        10.0 * blocked as f64 >= 9.0 * (end - begin) as f64
    }

    pub(super) fn last_blocked(&self) -> Option<Interval> {
        self.last_blocked
    }

    /// Returns the local work from the begin of the step to `time`.
    pub(super) fn durations_until(&self, time: i64) -> Durations {
        self.phases.each_ref().map(|phase| phase.total_before(time) as f64)
    }
}

/// A set of times with the sums of its lengths, in nanoseconds.
struct Summed {
    set: Intervals,
    sums: Vec<u64>,
}

impl Summed {
    fn new(set: Intervals) -> Self {
        Self { sums: set.sums(), set }
    }

    fn total_before(&self, time: i64) -> u64 {
        self.set.total_before(&self.sums, time)
    }
}

/// Splits the step `window` by phase, given its spans in order. Of two spans at once, the first one counts.
fn stretches(spans: &[(i64, i64, SpanKind)], (from, to): Interval) -> [Vec<Interval>; PHASES] {
    let mut phases = [const { Vec::new() }; PHASES];
    let mut at = from;
    let mut append = |end: i64, phase: Phase| {
        if at < end {
            phases[phase as usize].push((at, end));
            at = end;
        }
    };
    for &(begin, end, kind) in spans {
        let Some(phase) = phase_of(kind) else { continue };
        append(begin.min(to), Phase::Other);
        append(end.min(to), phase);
    }
    append(to, Phase::Other);
    phases
}
