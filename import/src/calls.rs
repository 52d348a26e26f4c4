//! Collectives whose place in time is known in part, as flight recorders and plugins of NCCL log them.
//!
//! A log may say when the host issued a collective, how long the collective took on the device, and when the host noticed its
//! end. What all logs of a job say decides what becomes a record:
//!
//! - Where logs say when collectives ran, these are their times.
//! - Where logs say only how long collectives took, those of functions that wait for all ranks are placed: all ranks end
//!   one together, and no later than the first of them noticed it. A rank that took less time came later, by the
//!   difference. No clock is needed for that.
//! - Otherwise the time of issuing is all there is, and the records say so ([`Source::Derived`]): no figure of waiting
//!   and no verdict follows from them.

use std::collections::{BTreeMap, HashMap, HashSet};

use timing::intervals::Interval;
use wire::event::{Function, Source};
use wire::ids::Comm;

use crate::group::Group;
use crate::remarks::Remarks;
use crate::timeline::{Timed, TimedStep, Timeline, unclear};

/// The largest number of collectives that are kept of one rank. They take at most 120 bytes each.
pub const MAX_CALLS: usize = 4_000_000;

/// A collective of a rank. Times are in nanoseconds since 1970 by the clock of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Its function.
    pub function: Function,
    /// Its group, as an index of [`Calls::groups`].
    pub group: u32,
    /// Its number in its group. It is the same on all ranks.
    pub count: u64,
    /// What this rank passes to it, in bytes; 0 if that is not known.
    pub bytes: u64,
    /// When the host issued it.
    pub issued: Option<i64>,
    /// How long it took on the device, in nanoseconds.
    pub took: Option<u64>,
    /// When the host noticed that it had ended.
    pub seen: Option<i64>,
    /// When the host saw it begin and end, as they happened.
    pub ran: Option<Interval>,
}

/// The collectives of a rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// The collectives, in the order in which they were issued in each group.
    pub calls: Vec<Call>,
    /// Their groups.
    pub groups: Vec<Group>,
}

impl Calls {
    /// Holds collectives in the order of the file. Of those that have one number, function and group, as the parts of one that was
    /// issued as a whole have, the first one counts.
    #[must_use]
    pub fn new(calls: impl IntoIterator<Item = Call>, groups: Vec<Group>) -> Self {
        let mut seen = HashSet::new();
        let is_first = |call: &Call| seen.insert((call.group, call.function, call.count));
        Self { calls: calls.into_iter().filter(is_first).collect(), groups }
    }
}

/// What the times of a job's collectives are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// When they ran.
    Ran,
    /// How long they took.
    Took,
    /// When they were issued.
    Issued,
}

/// A collective over its ranks: the rank and the call, as indices.
type Members = Vec<(usize, usize)>;

/// Returns the timelines of the ranks of a job, of one step each, with what is missing. Nothing in a log marks steps.
#[must_use]
pub fn timelines(ranks: &[&Calls], world_size: u32) -> (Vec<Timeline>, Remarks) {
    let mut remarks = Remarks::default();
    remarks.add("nothing marks the steps of the job, so all collectives are one step");
    let joined = joined(ranks, world_size);
    let known = known(ranks, &joined);
    let timed = match known {
        Known::Ran => timed_calls(ranks, |call| Some((call.ran?, Source::HostClock))),
        Known::Took => placed(ranks, &joined, &mut remarks),
        Known::Issued => {
            remarks.add(
                "the files say when collectives were issued and not when they ran: waits, lateness, overlap and verdicts are missing",
            );
            timed_calls(ranks, |call| call.issued.map(|issued| ((issued, issued), Source::Derived)))
        }
    };
    let all = || timed.iter().flatten();
    let begin = all().map(|call| call.launch.min(call.start)).min().unwrap_or(0);
    let end = all().map(|call| call.end).max().unwrap_or(begin);
    let timeline = |(calls, collectives): (&&Calls, Vec<Timed>)| Timeline {
        steps: vec![step((begin, end), collectives)],
        groups: calls.groups.clone(),
        error_nanos: 0,
        is_placed: known == Known::Took,
    };
    (ranks.iter().zip(timed).map(timeline).collect(), remarks)
}

/// Returns the only step. What the rank computes while a collective runs is not recorded.
fn step(window: Interval, collectives: Vec<Timed>) -> TimedStep {
    TimedStep { number: 0, window, spans: unclear(&collectives), collectives }
}

fn joined(ranks: &[&Calls], world_size: u32) -> BTreeMap<(Comm, Function, u64), Members> {
    let mut joined: BTreeMap<_, Members> = BTreeMap::new();
    for (rank, calls) in ranks.iter().enumerate() {
        let comms: Vec<Comm> = calls.groups.iter().map(|group| group.comm(world_size)).collect();
        for (at, call) in calls.calls.iter().enumerate() {
            let comm = comms.get(call.group as usize).copied().unwrap_or(Comm(0));
            joined.entry((comm, call.function, call.count)).or_default().push((rank, at));
        }
    }
    joined
}

/// Returns true if how long a collective took on each rank says who was late in it.
fn can_place(ranks: &[&Calls], function: Function, members: &Members) -> bool {
    let is_known = |&(rank, at): &(usize, usize)| {
        let call = &ranks[rank].calls[at];
        call.took.is_some() && call.seen.is_some()
    };
    function.waits_for_all() && members.iter().all(is_known)
}

/// Decides what the times are, for all records alike: times of different kinds are never mixed.
fn known(ranks: &[&Calls], joined: &BTreeMap<(Comm, Function, u64), Members>) -> Known {
    let mut calls = ranks.iter().flat_map(|calls| &calls.calls);
    if calls.all(|call| call.ran.is_some()) {
        return Known::Ran;
    }
    let placed = joined.iter().filter(|((_, function, _), members)| can_place(ranks, *function, members));
    // A few durations among many times of issuing would hide most of the job.
    if 2 * placed.count() >= joined.len() { Known::Took } else { Known::Issued }
}

/// Returns the collectives whose times `times` knows.
fn timed_calls(ranks: &[&Calls], times: impl Fn(&Call) -> Option<(Interval, Source)>) -> Vec<Vec<Timed>> {
    let known = |calls: &&Calls| {
        let timed = calls.calls.iter().filter_map(|call| {
            let ((start, end), source) = times(call)?;
            Some(timed(call, (start, end), call.issued.unwrap_or(start), source))
        });
        sorted(timed.collect())
    };
    ranks.iter().map(known).collect()
}

fn timed(call: &Call, (start, end): Interval, launch: i64, source: Source) -> Timed {
    Timed {
        function: call.function,
        group: Some(call.group),
        count: call.count,
        bytes: call.bytes,
        ready: launch,
        launch,
        start,
        end,
        source,
    }
}

fn sorted(mut timed: Vec<Timed>) -> Vec<Timed> {
    timed.sort_by_key(|call| (call.start, call.end, call.count));
    timed
}

/// Places collectives by how long they took. Those of a group run one after another, so the last one is placed first.
fn placed(
    ranks: &[&Calls],
    joined: &BTreeMap<(Comm, Function, u64), Members>,
    remarks: &mut Remarks,
) -> Vec<Vec<Timed>> {
    remarks.add(
        "the files say how long collectives took, and not when they ran; ranks end a collective together, so each is placed by its end, \
         which is as exact as hosts notice it; which rank was late does not depend on that",
    );
    let (can, cannot): (Vec<_>, Vec<_>) =
        joined.iter().partition(|((_, function, _), members)| can_place(ranks, *function, members));
    if !cannot.is_empty() {
        remarks.add(format!(
            "{} of {} collectives are left out: they did not end, do not wait for all ranks, or not all ranks say how long they took",
            cannot.len(),
            joined.len()
        ));
    }
    let mut last_first = can;
    let order = |members: &Members| members.iter().map(|&(_, at)| at).max();
    last_first.sort_by_key(|((comm, function, count), members)| {
        (*comm, std::cmp::Reverse((order(members), *count, *function)))
    });
    let mut next: HashMap<(Comm, usize), i64> = HashMap::new();
    let mut found = vec![Vec::new(); ranks.len()];
    for ((comm, ..), members) in last_first {
        let call = |&(rank, at): &(usize, usize)| &ranks[rank].calls[at];
        let limits =
            members.iter().flat_map(|member| [call(member).seen, next.get(&(*comm, member.0)).copied()]);
        let end = limits.flatten().min().unwrap_or(0);
        for member in members {
            let took = i64::try_from(call(member).took.unwrap_or(0)).unwrap_or(i64::MAX);
            let start = end.saturating_sub(took);
            next.insert((*comm, member.0), start);
            found[member.0].push(timed(call(member), (start, end), start, Source::DeviceEvent));
        }
    }
    found.into_iter().map(sorted).collect()
}

#[cfg(test)]
mod tests {
    use wire::event::SpanKind;

    use super::*;

    /// An all-reduce of both ranks: how long it took, and when that was noticed.
    fn call(count: u64, took: u64, seen: i64) -> Call {
        let (function, issued) = (Function::AllReduce, Some(0));
        Call { function, group: 0, count, bytes: 8, issued, took: Some(took), seen: Some(seen), ran: None }
    }

    fn rank(calls: &[Call]) -> Calls {
        let group = Group { name: "0".into(), ranks: None, size: Some(2) };
        Calls { calls: calls.to_vec(), groups: vec![group] }
    }

    fn times(timeline: &Timeline) -> Vec<(i64, i64)> {
        timeline.steps[0].collectives.iter().map(|call| (call.start, call.end)).collect()
    }

    #[test]
    fn durations_say_who_was_late_whatever_the_hosts_noticed_when() {
        // Both collectives are noticed at once, long after. The second rank comes 30 later to the first one.
        let first = rank(&[call(1, 40, 1_000), call(2, 10, 1_000)]);
        let second = rank(&[call(1, 10, 900), call(2, 10, 970)]);
        let (timelines, remarks) = timelines(&[&first, &second], 2);
        assert_eq!(times(&timelines[0]), [(860, 900), (960, 970)]);
        assert_eq!(times(&timelines[1]), [(890, 900), (960, 970)]);
        let source = timelines[0].steps[0].collectives[0].source;
        assert_eq!((source, remarks.iter().count()), (Source::DeviceEvent, 2));
    }

    #[test]
    fn collectives_of_a_group_do_not_overlap() {
        let (timelines, _) = timelines(&[&rank(&[call(1, 40, 100), call(2, 30, 100)])], 2);
        assert_eq!(times(&timelines[0]), [(30, 70), (70, 100)]);
        assert_eq!(timelines[0].steps[0].window, (30, 100));
        assert_eq!(timelines[0].steps[0].spans, [(SpanKind::Unclear, (30, 100))]);
    }

    #[test]
    fn times_of_issuing_are_marked_as_such() {
        let issued = |at: i64| Call { issued: Some(at), took: None, seen: None, ..call(1, 0, 0) };
        let (timelines, remarks) = timelines(&[&rank(&[issued(5)]), &rank(&[issued(9)])], 2);
        assert_eq!(times(&timelines[1]), [(9, 9)]);
        assert_eq!(timelines[1].steps[0].collectives[0].source, Source::Derived);
        assert!(timelines[1].steps[0].spans.is_empty());
        assert!(remarks.iter().any(|(text, _)| text.contains("verdicts are missing")));
    }

    #[test]
    fn what_did_not_end_is_left_out_of_what_is_placed() {
        let open = Call { took: None, seen: None, ..call(3, 0, 0) };
        let (timelines, remarks) = timelines(&[&rank(&[call(1, 5, 50), call(2, 5, 60), open])], 2);
        assert_eq!(times(&timelines[0]), [(45, 50), (55, 60)]);
        assert!(remarks.iter().any(|(text, _)| text.starts_with("1 of 3 collectives")));
    }
}
