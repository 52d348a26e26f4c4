//! Replays a step rank by rank, for steps with collectives among some of the ranks, or with collectives that ranks wait
//! for before the end.
//!
//! A rank works through its own time. It starts a collective once its work has reached it and the previous collective
//! on the communicator is done. All ranks of a group continue from the group's last start, and a collective that a
//! layer needs blocks its rank until it ends. Late ranks in one group delay ranks in other groups, so maxima over all
//! ranks are not enough here.

mod pace;

use std::collections::BTreeMap;

use wire::event::Function;
use wire::ids::{Bucket, Comm};
use wire::views::{Group, Missing};

use super::graph::{Durations, Observed, PHASES, Work, start_within};
use super::{Replay, ReplayedCollective, SlowGroup, slow_together, slowest, to_others};
use crate::join::{Joined, JoinedCollective, Member};
use crate::records::RankStep;
use crate::stats;
use pace::{Pace, Waypoint, Waypoints};

/// The time since the previous collective ended, in nanoseconds, after which a collective found its stream idle: its
/// rank had just reached it. For any other collective, the records show only when it was enqueued.
const IDLE_NANOS: i64 = 200_000;
/// The largest number of parts that are replayed in a step, over all what-ifs. One part takes about 7 ns, so this is about
/// 4 ms: 64 ranks with a hundred collectives each.
const MAX_PARTS: usize = 600_000;

/// What a collective takes on one rank; times in nanoseconds.
#[derive(Clone, Copy)]
struct Taken {
    /// The time from when the collective can start until it does.
    gap: f64,
    /// The time from the last rank's start to this rank's end.
    transfer: f64,
}

/// One rank's part of a collective; times in nanoseconds.
struct Part {
    place: Waypoint,
    /// The local work before the collective can start.
    work: Durations,
    taken: Taken,
    /// The median rank's of the same collective.
    usual: Taken,
    /// The median over all ranks that reach this position, of any group.
    even: Taken,
    /// The local work until the collective ends, if the rank is blocked until then.
    held_at: Option<Durations>,
}

/// One rank; times in nanoseconds.
struct Rank {
    begin: f64,
    total: Durations,
    /// The local work before the rank waits for the last collectives, if the step ends with them.
    before: Durations,
    comms: usize,
    /// Its parts of collectives, in the order of the collectives.
    parts: Vec<Part>,
}

/// A rank that takes part in a collective.
struct Partaker {
    rank: usize,
    /// The index of the part among those of the rank.
    part: usize,
    /// The index of the communicator among those of all ranks.
    comm: usize,
}

/// A collective of a group.
struct Joint {
    bucket: Bucket,
    bytes: u64,
    partakers: Vec<Partaker>,
    usual: Taken,
}

pub(super) struct Mesh {
    ranks: Vec<Rank>,
    /// The collectives, each after everything that it waits for.
    joints: Vec<Joint>,
    /// The number of communicators, counted once for each of their ranks.
    comms: usize,
    /// The local work summed over ranks.
    totals: Durations,
    places: Waypoints,
    measured: f64,
}

/// One rank as it is replayed; times in nanoseconds. Many replays share the lines of the ranks that they do not change.
struct Line {
    begin: f64,
    parts: Vec<LinePart>,
    total: f64,
    /// The local work after the last collectives.
    after: f64,
}

struct LinePart {
    /// When the collective can start if nothing held up the rank before.
    ready: f64,
    taken: Taken,
    /// When the rank would pass the end of the collective if nothing held it up; infinite if it does not wait.
    passes: f64,
}

/// The state of a replay between two collectives; times in nanoseconds.
#[derive(Clone)]
struct State {
    /// By how much each rank is held up.
    held_up: Vec<f64>,
    /// The end of the last collective of each rank.
    reduced: Vec<f64>,
    /// The end of the last collective on each communicator of each rank.
    done: Vec<f64>,
}

impl Mesh {
    /// Builds the mesh of a step. Returns `None` if a record is missing, clocks are not aligned, or there are too many
    /// ranks and collectives.
    pub(super) fn new(observed: &Observed<'_>, joined: &Joined<'_>) -> Option<Self> {
        let Observed { steps, works, placed } = observed;
        let parts: usize = joined.collectives.iter().map(|collective| collective.members.len()).sum();
        let whole =
            joined.collectives.iter().filter(|collective| collective.members.len() == steps.len()).count();
        if parts * (steps.len() + whole + PHASES + 5) > MAX_PARTS {
            return None;
        }
        let offsets = placed.offsets.as_ref()?;
        let mut ordered: Vec<(&JoinedCollective<'_>, i64)> = joined
            .collectives
            .iter()
            .map(|collective| Some((collective, collective.latest?.start.0)))
            .collect::<Option<_>>()?;
        // Everything that a collective waits for has started on all its ranks before.
        ordered.sort_by_key(|&(_, last_start)| last_start);
        let mut timelines: Vec<Timeline<'_>> =
            steps.iter().zip(works).map(|(step, work)| Timeline::new(step, work)).collect();
        let mut joints: Vec<Joint> =
            ordered.iter().map(|(collective, _)| Joint::new(collective, offsets, &mut timelines)).collect();
        let rank = |(timeline, begin): (Timeline<'_>, &f64)| timeline.end(*begin);
        let mut ranks: Vec<Rank> = timelines.into_iter().zip(&placed.begins).map(rank).collect();
        even_out(&mut ranks);
        let comms = number_comms(&mut joints, ranks.iter().map(|rank| rank.comms));
        let places = Waypoints::new(ranks.iter().map(|rank| (rank.places(), rank.total)));
        let totals = std::array::from_fn(|phase| ranks.iter().map(|rank| rank.total[phase]).sum());
        Some(Self { ranks, joints, comms, totals, places, measured: placed.measured })
    }

    pub(super) fn replay(&self) -> Replay {
        let ranks = 0..self.ranks.len();
        let as_measured: Vec<Line> = self.ranks.iter().map(|rank| rank.line(&Pace::AS_MEASURED)).collect();
        let measured: Vec<&Line> = as_measured.iter().collect();
        let period = self.play(&measured);
        let saving = |lines: &[(usize, Line)]| {
            let mut played = measured.clone();
            lines.iter().for_each(|(rank, line)| played[*rank] = line);
            (period - self.play(&played)) as f32
        };
        let usual_begin = stats::lower_median(self.ranks.iter().map(|rank| rank.begin)).unwrap_or(0.0);
        let fixed = |rank: usize, among: &[usize]| {
            (rank, self.ranks[rank].fixed(&self.as_others(rank, among), usual_begin))
        };
        let alike = |rank: usize| {
            (rank, self.ranks[rank].fixed(&self.as_others(rank, &[rank]).never_longer(), usual_begin))
        };
        let even = |rank: usize| (rank, self.ranks[rank].even(&self.even_pace(rank), usual_begin));
        let saving_of_all =
            |line: &dyn Fn(usize) -> (usize, Line)| saving(&ranks.clone().map(line).collect::<Vec<_>>());
        let phase = |phase: usize| {
            saving_of_all(&|rank| (rank, self.ranks[rank].line(&Pace::Scaled(self.evened(rank, phase)))))
        };
        let skew = self.ranks.iter().map(|rank| rank.begin).fold(0.0, f64::max);
        let own: Vec<f64> = self.ranks.iter().map(|rank| rank.total.iter().sum()).collect();
        let slowest = slowest(&self.ranks.iter().map(Rank::own).collect::<Vec<_>>());
        let mean = |value: fn(&Rank) -> &Durations| {
            stats::mean(self.ranks.iter().map(|rank| value(rank).iter().sum())).unwrap_or(0.0)
        };
        let before = mean(|rank| &rank.before);
        Replay {
            measured_nanos: self.measured,
            simulated_nanos: period + skew,
            skew_nanos: skew,
            even_nanos: saving_of_all(&even),
            even_slowest_nanos: saving(&slowest.into_iter().map(even).collect::<Vec<_>>()),
            alike_nanos: saving_of_all(&alike),
            ranks: ranks.clone().map(|rank| saving(&[fixed(rank, &[rank])])).collect(),
            phases: std::array::from_fn(phase),
            collectives: self.collectives(&measured, period),
            unpredictable: Some(if self.has_groups() { Missing::Groups } else { Missing::WaitsMidStep }),
            before_nanos: before as f32,
            after_nanos: (mean(|rank| &rank.total) - before) as f32,
            group: slow_together(&own, self.measured).map(|ranks| SlowGroup {
                saving_nanos: saving(&ranks.iter().map(|&rank| fixed(rank, &ranks)).collect::<Vec<_>>()),
                ranks: ranks.into_iter().map(|rank| rank as u32).collect(),
            }),
        }
        .with_largest()
    }

    fn has_groups(&self) -> bool {
        self.joints.iter().any(|joint| joint.partakers.len() < self.ranks.len())
    }

    /// Returns the replayed collectives among all ranks. `period` is the time that the step adds with every rank as
    /// measured.
    fn collectives(&self, measured: &[&Line], period: f64) -> Vec<ReplayedCollective> {
        let work =
            |partaker: &Partaker| self.ranks[partaker.rank].parts[partaker.part].work.iter().sum::<f64>();
        let mut started = self.begun();
        let mut collectives = Vec::new();
        for (at, joint) in self.joints.iter().enumerate() {
            if joint.partakers.len() == self.ranks.len() {
                // What came before is the same with every collective that is tried.
                let mut tried = started.clone();
                tried.run(joint, measured, true);
                self.joints[at + 1..].iter().for_each(|later| tried.run(later, measured, false));
                collectives.push(ReplayedCollective {
                    bucket: joint.bucket,
                    bytes: joint.bytes,
                    saving_nanos: (period - tried.period(measured)) as f32,
                    ready_nanos: stats::mean(joint.partakers.iter().map(work)).unwrap_or(0.0) as f32,
                    transfer_nanos: joint.usual.transfer as f32,
                    gap_nanos: joint.usual.gap as f32,
                });
            }
            started.run(joint, measured, false);
        }
        collectives
    }

    /// Returns the pace of `rank` at the mean of the ranks that are not in `among`: piece by piece if some of them run
    /// the same collectives in the same order, phase by phase otherwise.
    fn as_others(&self, rank: usize, among: &[usize]) -> Pace {
        let total = |rank: usize| &self.ranks[rank].total;
        let by_phases = || Pace::Scaled(to_others(total, self.ranks.len(), &self.totals, rank, among));
        self.places.as_others(rank, among).unwrap_or_else(by_phases)
    }

    /// Returns the pace of `rank` at the mean of all ranks: piece by piece if all run the same collectives in the same
    /// order, phase by phase otherwise.
    fn even_pace(&self, rank: usize) -> Pace {
        let total = |rank: usize| &self.ranks[rank].total;
        let by_phases = || Pace::Scaled(to_others(total, self.ranks.len(), &self.totals, rank, &[]));
        let by_pieces = self.places.are_all_alike().then(|| self.places.as_others(rank, &[]));
        by_pieces.flatten().unwrap_or_else(by_phases)
    }

    /// Returns the factors that bring one phase of `rank` to its mean over the ranks that are placed like it, or over all
    /// ranks if there is no other one.
    fn evened(&self, rank: usize, phase: usize) -> Durations {
        let own = self.ranks[rank].total[phase];
        let mean = self
            .places
            .mean_work(rank)
            .map_or(self.totals[phase] / self.ranks.len() as f64, |mean| mean[phase]);
        let mut scale = [1.0; PHASES];
        if own > 0.0 {
            scale[phase] = mean / own;
        }
        scale
    }

    /// Returns the time that the step adds to the run, in nanoseconds, with these lines of all ranks.
    fn play(&self, lines: &[&Line]) -> f64 {
        let mut state = self.begun();
        self.joints.iter().for_each(|joint| state.run(joint, lines, false));
        state.period(lines)
    }

    fn begun(&self) -> State {
        let ranks = self.ranks.len();
        State {
            held_up: vec![0.0; ranks],
            reduced: vec![f64::NEG_INFINITY; ranks],
            done: vec![f64::NEG_INFINITY; self.comms],
        }
    }
}

impl State {
    /// Runs a collective. It takes no time to transfer if it `is_free`.
    fn run(&mut self, joint: &Joint, lines: &[&Line], is_free: bool) {
        let start = |partaker: &Partaker| {
            let LinePart { ready, taken, .. } = &lines[partaker.rank].parts[partaker.part];
            (ready + self.held_up[partaker.rank]).max(self.done[partaker.comm]) + taken.gap
        };
        let last = joint.partakers.iter().map(start).fold(f64::NEG_INFINITY, f64::max);
        for partaker in &joint.partakers {
            let LinePart { taken, passes, .. } = &lines[partaker.rank].parts[partaker.part];
            let end = if is_free { last } else { last + taken.transfer };
            self.done[partaker.comm] = end;
            self.reduced[partaker.rank] = self.reduced[partaker.rank].max(end);
            self.held_up[partaker.rank] = self.held_up[partaker.rank].max(end - passes);
        }
    }

    /// Returns the time from the last begin to the last end, in nanoseconds.
    fn period(&self, lines: &[&Line]) -> f64 {
        let end = |(rank, line): (usize, &&Line)| {
            let alone = line.begin + line.total + self.held_up[rank];
            alone.max(self.reduced[rank] + line.after)
        };
        let ends = lines.iter().enumerate().map(end).fold(f64::NEG_INFINITY, f64::max);
        ends - lines.iter().map(|line| line.begin).fold(f64::NEG_INFINITY, f64::max)
    }
}

/// Numbers the communicators of all ranks, given how many each rank has. Returns their number.
fn number_comms(joints: &mut [Joint], comms: impl Iterator<Item = usize>) -> usize {
    let mut count = 0;
    let first = comms.map(|own_comms| {
        count += own_comms;
        count - own_comms
    });
    let first: Vec<usize> = first.collect();
    for partaker in joints.iter_mut().flat_map(|joint| &mut joint.partakers) {
        partaker.comm += first[partaker.rank];
    }
    count
}

/// Fills in what collectives take at the median over all ranks that reach the same position.
fn even_out(ranks: &mut [Rank]) {
    let mut taken: BTreeMap<Waypoint, Vec<Taken>> = BTreeMap::new();
    for part in ranks.iter().flat_map(|rank| &rank.parts) {
        taken.entry(part.place).or_default().push(part.taken);
    }
    let even: BTreeMap<Waypoint, Taken> =
        taken.into_iter().map(|(place, taken)| (place, Taken::median(&taken))).collect();
    for part in ranks.iter_mut().flat_map(|rank| &mut rank.parts) {
        part.even = even[&part.place];
    }
}

impl Taken {
    fn median(all: &[Self]) -> Self {
        let median = |value: fn(&Self) -> f64| stats::lower_median(all.iter().map(value)).unwrap_or(0.0);
        Self { gap: median(|taken| taken.gap), transfer: median(|taken| taken.transfer) }
    }

    fn least(self, other: Self) -> Self {
        Self { gap: self.gap.min(other.gap), transfer: self.transfer.min(other.transfer) }
    }
}

impl Rank {
    /// Returns the rank with its local work at this pace.
    fn line(&self, pace: &Pace) -> Line {
        self.line_of(pace, self.begin, |part| part.taken)
    }

    /// Returns the fixed rank: its local work at this pace, its begin no later and its collectives no longer than usual.
    fn fixed(&self, pace: &Pace, usual_begin: f64) -> Line {
        self.line_of(pace, self.begin.min(usual_begin), |part| part.taken.least(part.usual))
    }

    fn even(&self, pace: &Pace, usual_begin: f64) -> Line {
        self.line_of(pace, usual_begin, |part| part.even)
    }

    fn line_of(&self, pace: &Pace, begin: f64, taken: impl Fn(&Part) -> Taken) -> Line {
        let part = |part: &Part| LinePart {
            ready: begin + pace.nanos(&part.work),
            taken: taken(part),
            passes: part.held_at.as_ref().map_or(f64::INFINITY, |work| begin + pace.nanos(work)),
        };
        let total = pace.nanos(&self.total);
        Line {
            begin,
            parts: self.parts.iter().map(part).collect(),
            total,
            after: total - pace.nanos(&self.before),
        }
    }

    /// Returns the local work, plus the time that transfers take beyond the median rank's.
    fn own(&self) -> f64 {
        let late = self.parts.iter().map(|part| (part.taken.transfer - part.even.transfer).max(0.0));
        self.total.iter().sum::<f64>() + late.sum::<f64>()
    }

    /// Returns the local work up to each position.
    fn places(&self) -> BTreeMap<Waypoint, f64> {
        self.parts.iter().map(|part| (part.place, part.work.iter().sum())).collect()
    }
}

impl Joint {
    fn new(collective: &JoinedCollective<'_>, offsets: &[i64], timelines: &mut [Timeline<'_>]) -> Self {
        let start = |member: &Member<'_>| {
            start_within(timelines[member.rank].step, member.record) + offsets[member.rank]
        };
        let last = collective.members.iter().map(start).max();
        let group = Group::from_ranks(collective.members.iter().map(|member| member.rank));
        let first_rank = collective.members[0].rank;
        let is_message = Function::from_seq(collective.seq) == Function::SendReceive;
        let partaker = |member: &Member<'_>| {
            let with_earlier = is_message.then_some(member.rank > first_rank);
            let end = member.record.end.0 + offsets[member.rank];
            let transfer = (end - last.unwrap_or(end)).max(0) as f64;
            timelines[member.rank].partake((group, with_earlier), member, transfer)
        };
        let partakers: Vec<Partaker> = collective.members.iter().map(partaker).collect();
        let part = |partaker: &Partaker| timelines[partaker.rank].parts[partaker.part].taken;
        let usual = Taken::median(&partakers.iter().map(part).collect::<Vec<_>>());
        for partaker in &partakers {
            timelines[partaker.rank].parts[partaker.part].usual = usual;
        }
        let first = collective.members[0].record;
        Self { bucket: first.bucket, bytes: first.bytes, partakers, usual }
    }
}

/// A rank's step while its collectives are extracted from it in order.
struct Timeline<'a> {
    step: &'a RankStep,
    work: &'a Work,
    /// The end of the previous collective on each communicator, on the rank's own clock.
    free: Vec<(Comm, i64)>,
    /// The number of collectives so far, by kind.
    counts: BTreeMap<(Group, Option<bool>), u32>,
    parts: Vec<Part>,
}

impl<'a> Timeline<'a> {
    fn new(step: &'a RankStep, work: &'a Work) -> Self {
        Self {
            step,
            work,
            free: Vec::new(),
            counts: BTreeMap::new(),
            parts: Vec::with_capacity(step.buckets.len()),
        }
    }

    fn partake(
        &mut self,
        (group, message_with_earlier): (Group, Option<bool>),
        member: &Member<'_>,
        transfer: f64,
    ) -> Partaker {
        let Member { rank, record, .. } = *member;
        let (start, end) = (record.start.0, record.end.0);
        let comm = self.free.iter().position(|(comm, _)| *comm == record.comm).unwrap_or_else(|| {
            self.free.push((record.comm, i64::MIN));
            self.free.len() - 1
        });
        let free = std::mem::replace(&mut self.free[comm].1, end);
        let is_idle = free.saturating_add(IDLE_NANOS) < start;
        let ready = if is_idle { start } else { record.ready.0.min(start) };
        let count = self.counts.entry((group, message_with_earlier)).or_default();
        let taken = Taken { gap: (start - ready.max(free)).max(0) as f64, transfer };
        self.parts.push(Part {
            place: Waypoint { group, message_with_earlier, count: *count },
            work: self.work.durations_until(ready),
            taken,
            // Known once all ranks are.
            usual: taken,
            even: taken,
            held_at: self
                .work
                .is_blocked(start_within(self.step, record), end)
                .then(|| self.work.durations_until(end)),
        });
        *count += 1;
        Partaker { rank, part: self.parts.len() - 1, comm }
    }

    fn end(self, begin: f64) -> Rank {
        let end = self.step.record.end.0;
        let total = self.work.durations_until(end);
        // A step that ends blocked waits for the last collectives. Otherwise the step does not end with them.
        let last = self.work.last_blocked().filter(|(_, to)| *to >= end);
        let before = last.map_or(total, |(from, _)| self.work.durations_until(from));
        Rank { begin, total, before, comms: self.free.len(), parts: self.parts }
    }
}

#[cfg(test)]
mod tests;
