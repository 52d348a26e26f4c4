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

use super::graph::{Durations, PHASES, Placed, Work};
use super::{Replay, ReplayedCollective, slow_together, to_others};
use crate::join::{Joined, JoinedCollective, Member};
use crate::records::{RankStep, StepRecords};
use crate::stats;
use pace::{Pace, Waypoint, Waypoints};
use timing::clocks::ClockFit;

/// The time since the previous collective ended, in nanoseconds, after which a collective found its stream idle: its
/// rank had just reached it. For any other collective, the records show only when it was enqueued.
const IDLE_NANOS: i64 = 200_000;
/// The largest number of parts that are replayed in a step, over all what-ifs. One part takes 15 to 20 ns, so this is
/// about 10 ms: 64 ranks with a hundred collectives each.
const MAX_PARTS: usize = 600_000;

/// One rank's part of a collective; times in nanoseconds.
struct JointPart {
    rank: usize,
    /// The index of the communicator among those of the rank.
    comm: usize,
    /// The local work before the collective can start.
    work: Durations,
    /// The time from when the collective can start until it does.
    gap: f64,
    /// The time from the last rank's start to this rank's end.
    transfer: f64,
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
}

/// A collective of a group.
struct Joint {
    bucket: Bucket,
    bytes: u64,
    parts: Vec<JointPart>,
    usual_gap: f64,
    usual_transfer: f64,
}

pub(super) struct Mesh {
    ranks: Vec<Rank>,
    /// The collectives, each after everything that it waits for.
    joints: Vec<Joint>,
    /// The local work summed over ranks.
    totals: Durations,
    places: Waypoints,
    measured: f64,
}

/// The way a rank is replayed: the pace of its local work, when it begins, and whether its collectives are no slower
/// than usual in their groups.
#[derive(Clone)]
struct Played {
    pace: Pace,
    begin: f64,
    as_usual: bool,
}

impl Mesh {
    /// Builds the mesh of a step. Returns `None` if a rank or a record is missing, the step was not observed, clocks
    /// are not aligned, or there are too many ranks and collectives.
    pub(super) fn new(records: &StepRecords, fits: &[Option<ClockFit>], joined: &Joined<'_>) -> Option<Self> {
        let steps: Vec<&RankStep> = records.ranks.iter().map(Option::as_ref).collect::<Option<_>>()?;
        let parts: usize = joined.collectives.iter().map(|collective| collective.members.len()).sum();
        let is_observed = steps.iter().all(|step| !step.record.shadow);
        let of_all = joined.collectives.iter().filter(|one| one.members.len() == steps.len()).count();
        if !is_observed || parts * (steps.len() + of_all + PHASES + 3) > MAX_PARTS {
            return None;
        }
        let placed = Placed::new(&steps, fits);
        let offsets = placed.offsets.as_ref()?;
        let mut ordered: Vec<(&JoinedCollective<'_>, i64)> =
            joined.collectives.iter().map(|one| Some((one, one.latest?.1.0))).collect::<Option<_>>()?;
        // Everything that a collective waits for has started on all its ranks before.
        ordered.sort_by_key(|&(_, last_start)| last_start);
        let mut timelines: Vec<Timeline<'_>> = steps.iter().map(|step| Timeline::new(step)).collect();
        let joints =
            ordered.iter().map(|(collective, _)| Joint::new(collective, offsets, &mut timelines)).collect();
        let rank = |(timeline, begin): (&Timeline<'_>, &f64)| timeline.end(*begin);
        let ranks: Vec<Rank> = timelines.iter().zip(&placed.begins).map(rank).collect();
        let works = ranks.iter().map(|rank| rank.total.iter().sum()).collect();
        let places = Waypoints::new(timelines.into_iter().map(|timeline| timeline.places).collect(), works);
        let totals = std::array::from_fn(|phase| ranks.iter().map(|rank| rank.total[phase]).sum());
        Some(Self { ranks, joints, totals, places, measured: placed.measured })
    }

    pub(super) fn replay(&self) -> Replay {
        let as_measured: Vec<Played> = self.ranks.iter().map(Played::as_measured).collect();
        let period = self.play(&as_measured, None);
        let saving = |played: &[Played]| (period - self.play(played, None)) as f32;
        let usual_begin = stats::lower_median(self.ranks.iter().map(|rank| rank.begin)).unwrap_or(0.0);
        let without = |ranks: &[usize]| {
            let mut played = as_measured.clone();
            for &rank in ranks {
                let begin = self.ranks[rank].begin.min(usual_begin);
                played[rank] = Played { pace: self.as_others(rank, ranks), begin, as_usual: true };
            }
            saving(&played)
        };
        let ideal = |rank: usize| Played { pace: self.as_others(rank, &[]), begin: 0.0, as_usual: true };
        let ideal: Vec<Played> = (0..self.ranks.len()).map(ideal).collect();
        let skew = self.ranks.iter().map(|rank| rank.begin).fold(0.0, f64::max);
        let own: Vec<f64> = self.ranks.iter().map(|rank| rank.total.iter().sum()).collect();
        let mean = |of: fn(&Rank) -> &Durations| {
            stats::mean(self.ranks.iter().map(|rank| of(rank).iter().sum())).unwrap_or(0.0)
        };
        let before = mean(|rank| &rank.before);
        Replay {
            measured_nanos: self.measured,
            simulated_nanos: period + skew,
            skew_nanos: skew,
            ideal_nanos: self.play(&ideal, None),
            ranks: (0..self.ranks.len()).map(|rank| without(&[rank])).collect(),
            phases: std::array::from_fn(|phase| saving(&self.evened(phase))),
            collectives: self.collectives(&as_measured, period),
            unpredictable: Some(if self.has_groups() { Missing::Groups } else { Missing::WaitsMidStep }),
            before_nanos: before as f32,
            after_nanos: (mean(|rank| &rank.total) - before) as f32,
            group: slow_together(&own, self.measured).map(|ranks| super::SlowGroup {
                saving_nanos: without(&ranks),
                ranks: ranks.into_iter().map(|rank| rank as u32).collect(),
            }),
        }
    }

    fn has_groups(&self) -> bool {
        self.joints.iter().any(|joint| joint.parts.len() < self.ranks.len())
    }

    /// Returns the replayed collectives among all ranks. `period` is the time that the step adds with every rank as
    /// measured.
    fn collectives(&self, as_measured: &[Played], period: f64) -> Vec<ReplayedCollective> {
        let tried = |(at, joint): (usize, &Joint)| {
            let ready = stats::mean(joint.parts.iter().map(|part| part.work.iter().sum::<f64>()));
            ReplayedCollective {
                bucket: joint.bucket,
                bytes: joint.bytes,
                saving_nanos: (period - self.play(as_measured, Some(at))) as f32,
                ready_nanos: ready.unwrap_or(0.0) as f32,
                transfer_nanos: joint.usual_transfer as f32,
                gap_nanos: joint.usual_gap as f32,
            }
        };
        let joints = self.joints.iter().enumerate();
        joints.filter(|(_, joint)| joint.parts.len() == self.ranks.len()).map(tried).collect()
    }

    /// Returns the pace of `rank` at the mean of the ranks that are not in `among`: piece by piece if some of them run
    /// the same collectives in the same order, phase by phase otherwise.
    fn as_others(&self, rank: usize, among: &[usize]) -> Pace {
        let total = |rank: usize| &self.ranks[rank].total;
        let by_phases = || Pace::Scaled(to_others(total, self.ranks.len(), &self.totals, rank, among));
        self.places.as_others(rank, among).unwrap_or_else(by_phases)
    }

    /// Returns all ranks with one phase at its mean over ranks.
    fn evened(&self, phase: usize) -> Vec<Played> {
        let even = |rank: &Rank| {
            let mut scale = [1.0; PHASES];
            if rank.total[phase] > 0.0 {
                scale[phase] = self.totals[phase] / self.ranks.len() as f64 / rank.total[phase];
            }
            Played { pace: Pace::Scaled(scale), ..Played::as_measured(rank) }
        };
        self.ranks.iter().map(even).collect()
    }

    /// Returns the time that the step adds to the run, from the last begin to the last end, in nanoseconds. The
    /// collective `free` takes no time to transfer.
    fn play(&self, played: &[Played], free: Option<usize>) -> f64 {
        let mut held_up = vec![0.0; self.ranks.len()];
        let mut done: Vec<Vec<f64>> =
            self.ranks.iter().map(|rank| vec![f64::NEG_INFINITY; rank.comms]).collect();
        for (at, joint) in self.joints.iter().enumerate() {
            let ready = |part: &JointPart| {
                let own = &played[part.rank];
                own.begin + own.pace.nanos(&part.work) + held_up[part.rank]
            };
            let start = |part: &JointPart| {
                ready(part).max(done[part.rank][part.comm])
                    + joint.of_rank(part.gap, joint.usual_gap, played, part)
            };
            let last = joint.parts.iter().map(start).fold(f64::NEG_INFINITY, f64::max);
            for part in &joint.parts {
                let transfer = joint.of_rank(part.transfer, joint.usual_transfer, played, part);
                let end = if free == Some(at) { last } else { last + transfer };
                done[part.rank][part.comm] = end;
                if let Some(work) = &part.held_at {
                    let Played { begin, pace, .. } = &played[part.rank];
                    let held_up = &mut held_up[part.rank];
                    *held_up = held_up.max(end - begin - pace.nanos(work));
                }
            }
        }
        let end = |(rank, own): (usize, &Rank)| {
            let Played { pace, begin, .. } = &played[rank];
            let alone = begin + pace.nanos(&own.total) + held_up[rank];
            let reduced = done[rank].iter().copied().fold(f64::NEG_INFINITY, f64::max);
            alone.max(reduced + pace.nanos(&own.total) - pace.nanos(&own.before))
        };
        let ends = self.ranks.iter().enumerate().map(end).fold(f64::NEG_INFINITY, f64::max);
        ends - played.iter().map(|played| played.begin).fold(f64::NEG_INFINITY, f64::max)
    }
}

impl Played {
    fn as_measured(rank: &Rank) -> Self {
        Self { pace: Pace::AS_MEASURED, begin: rank.begin, as_usual: false }
    }
}

impl Joint {
    fn new(collective: &JoinedCollective<'_>, offsets: &[i64], timelines: &mut [Timeline<'_>]) -> Self {
        let last = collective.members.iter().map(|member| member.record.start.0 + offsets[member.rank]).max();
        let group = Group::from_ranks(collective.members.iter().map(|member| member.rank));
        let first_rank = collective.members[0].rank;
        let is_message = Function::from_seq(collective.seq) == Function::SendReceive;
        let part = |member: &Member<'_>| {
            let with_earlier = is_message.then_some(member.rank > first_rank);
            let end = member.record.end.0 + offsets[member.rank];
            let transfer = (end - last.unwrap_or(end)).max(0) as f64;
            timelines[member.rank].part((group, with_earlier), member, transfer)
        };
        let parts: Vec<JointPart> = collective.members.iter().map(part).collect();
        let usual = |of: fn(&JointPart) -> f64| stats::lower_median(parts.iter().map(of)).unwrap_or(0.0);
        let first = collective.members[0].record;
        Self {
            bucket: first.bucket,
            bytes: first.bytes,
            usual_gap: usual(|part| part.gap),
            usual_transfer: usual(|part| part.transfer),
            parts,
        }
    }

    fn of_rank(&self, own: f64, usual: f64, played: &[Played], part: &JointPart) -> f64 {
        if played[part.rank].as_usual { own.min(usual) } else { own }
    }
}

/// A rank's step while its collectives are extracted from it in order.
struct Timeline<'a> {
    step: &'a RankStep,
    work: Work,
    /// The end of the previous collective on each communicator, on the rank's own clock.
    free: Vec<(Comm, i64)>,
    /// The number of collectives so far, by kind. `places` holds the local work up to each of them.
    counts: BTreeMap<(Group, Option<bool>), u32>,
    places: BTreeMap<Waypoint, f64>,
}

impl<'a> Timeline<'a> {
    fn new(step: &'a RankStep) -> Self {
        Self {
            step,
            work: Work::new(step),
            free: Vec::new(),
            counts: BTreeMap::new(),
            places: BTreeMap::new(),
        }
    }

    fn part(
        &mut self,
        (group, message_with_earlier): (Group, Option<bool>),
        member: &Member<'_>,
        transfer: f64,
    ) -> JointPart {
        let Member { rank, record, .. } = *member;
        let (start, end) = (record.start.0, record.end.0);
        let comm = self.free.iter().position(|(comm, _)| *comm == record.comm).unwrap_or_else(|| {
            self.free.push((record.comm, i64::MIN));
            self.free.len() - 1
        });
        let free = std::mem::replace(&mut self.free[comm].1, end);
        let is_idle = free.saturating_add(IDLE_NANOS) < start;
        let ready = if is_idle { start } else { record.ready.0.min(start) };
        let work = self.work.until(ready);
        let count = self.counts.entry((group, message_with_earlier)).or_default();
        self.places.insert(Waypoint { group, message_with_earlier, count: *count }, work.iter().sum());
        *count += 1;
        JointPart {
            rank,
            comm,
            work,
            gap: (start - ready.max(free)).max(0) as f64,
            transfer,
            held_at: self.work.is_blocked(start, end).then(|| self.work.until(end)),
        }
    }

    fn end(&self, begin: f64) -> Rank {
        let end = self.step.record.end.0;
        let total = self.work.until(end);
        // A step that ends blocked waits for the last collectives. Otherwise the step does not end with them.
        let last = self.work.last_blocked().filter(|(_, to)| *to >= end);
        let before = last.map_or(total, |(from, _)| self.work.until(from));
        Rank { begin, total, before, comms: self.free.len() }
    }
}

#[cfg(test)]
mod tests;
