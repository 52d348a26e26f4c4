//! Joins the collectives of a step over all ranks by (communicator, sequence number), and computes every rank's wait in
//! each (`docs/metrics.md`, "One bucket on one rank").
//!
//! Matching a collective needs no clock; only placing it in time does. Each step is joined once, and every other
//! analysis reads the result.

use std::collections::BTreeMap;

use wire::clock::{MonoNanos, ServerNanos};
use wire::event::BucketRecord;
use wire::ids::{Comm, Seq};

use crate::records::StepRecords;
use timing::clocks::ClockFit;
use timing::parts::is_part;

/// One rank's record of a collective.
pub(crate) struct Member<'a> {
    pub(crate) rank: usize,
    pub(crate) record: &'a BucketRecord,
    /// The start on the server's clock; `None` if the rank's clock is not aligned.
    pub(crate) start: Option<ServerNanos>,
    pub(crate) wait: Wait,
}

/// The wait of one rank in one collective, in both forms, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Wait {
    /// The wait by aligned clocks; `None` if a clock is not aligned or a rank is missing.
    pub(crate) aligned: Option<i64>,
    /// The wait by durations: the duration on this rank less the shortest on any rank.
    pub(crate) clock_free: i64,
    /// The error bound of `aligned`.
    pub(crate) bound: u64,
}

impl Wait {
    /// Returns the wait by which to split exposed time, and whether it is the clock-free one. The aligned wait is used
    /// unless its error bound exceeds it. The clock-free one takes all ranks to end together, which those of a large
    /// all-to-all do not, so it is never longer than the clocks allow.
    pub(crate) fn best(&self) -> (i64, bool) {
        match self.aligned {
            Some(wait) if wait.unsigned_abs() >= self.bound => (wait, false),
            Some(wait) => (self.clock_free.min(wait.saturating_add_unsigned(self.bound)), true),
            None => (self.clock_free, true),
        }
    }
}

/// The rank that starts a collective last, and when.
#[derive(Clone, Copy)]
pub(crate) struct LastStart {
    pub(crate) rank: usize,
    pub(crate) start: ServerNanos,
}

/// One collective over all ranks.
pub(crate) struct JoinedCollective<'a> {
    pub(crate) comm: Comm,
    pub(crate) seq: Seq,
    /// The ranks that took part, in ascending order.
    pub(crate) members: Vec<Member<'a>>,
    /// `None` unless all members have records and aligned clocks.
    pub(crate) latest: Option<LastStart>,
    /// The shortest duration on any rank, in nanoseconds.
    pub(crate) shortest: i64,
}

/// All collectives of a step.
pub(crate) struct Joined<'a> {
    /// The collectives that the step launched, ordered by communicator and then by start. Sequence numbers do not give the
    /// order, because each function has its own.
    pub(crate) collectives: Vec<JoinedCollective<'a>>,
    /// The waits by rank, in the order of the rank's bucket records.
    pub(crate) waits: Vec<Vec<Wait>>,
}

impl<'a> Joined<'a> {
    /// Joins the records of a step. `fits` is indexed by rank, as the records are.
    pub(crate) fn new(records: &'a StepRecords, fits: &[Option<ClockFit>]) -> Self {
        let mut waits: Vec<Vec<Wait>> = records
            .ranks
            .iter()
            .map(|step| vec![Wait::default(); step.as_ref().map_or(0, |step| step.buckets.len())])
            .collect();
        let mut collectives = Vec::new();
        let found = matched(records, fits);
        let sizes = sizes(records, &found);
        for (collective, positions) in found {
            let size = sizes.get(&collective.comm).copied();
            let collective = collective.measured(fits, size);
            for (member, position) in collective.members.iter().zip(positions) {
                waits[member.rank][position] = member.wait;
            }
            if !collective.is_part() {
                collectives.push(collective);
            }
        }
        collectives.sort_by_key(|collective| (collective.comm, collective.first_start(), collective.seq));
        Self { collectives, waits }
    }
}

/// Returns the collectives without their waits, each with the positions of its members among the bucket records of
/// their ranks.
fn matched<'a>(
    records: &'a StepRecords,
    fits: &[Option<ClockFit>],
) -> Vec<(JoinedCollective<'a>, Vec<usize>)> {
    let mut found: Vec<(JoinedCollective<'a>, Vec<usize>)> = Vec::new();
    let mut places: BTreeMap<(Comm, Seq), usize> = BTreeMap::new();
    for (rank, step) in records.ranks.iter().enumerate() {
        let fit = fits.get(rank).and_then(Option::as_ref);
        for (position, record) in step.iter().flat_map(|step| step.buckets.iter().enumerate()) {
            let is_here = |(collective, _): &(JoinedCollective<'_>, _)| {
                (collective.comm, collective.seq) == (record.comm, record.seq)
            };
            // No search is needed where ranks run the same collectives in the same order, as nearly all do.
            let place = if found.get(position).is_some_and(is_here) {
                position
            } else {
                *places.entry((record.comm, record.seq)).or_insert_with(|| {
                    found.push((JoinedCollective::new(record), Vec::new()));
                    found.len() - 1
                })
            };
            let start = fit.map(|fit| fit.align(record.start));
            found[place].0.members.push(Member { rank, record, start, wait: Wait::default() });
            found[place].1.push(position);
        }
    }
    found
}

/// Returns the number of ranks in each communicator. The world has all ranks; the size of any other communicator is
/// known only if no rank is missing.
fn sizes(records: &StepRecords, found: &[(JoinedCollective<'_>, Vec<usize>)]) -> BTreeMap<Comm, usize> {
    let mut sizes = BTreeMap::from([(Comm(0), records.ranks.len())]);
    if records.ranks.iter().all(Option::is_some) {
        for (collective, _) in found {
            let size = sizes.entry(collective.comm).or_default();
            *size = collective.members.len().max(*size);
        }
    }
    sizes
}

impl<'a> JoinedCollective<'a> {
    /// Allocates nothing for members: a large world may have many collectives of few ranks each.
    fn new(record: &BucketRecord) -> Self {
        let members = Vec::new();
        Self { comm: record.comm, seq: record.seq, members, latest: None, shortest: i64::MAX }
    }

    /// Returns true for the part of a collective that another step launched. No rank waits in it for another.
    fn is_part(&self) -> bool {
        self.members.iter().all(|member| is_part(member.rank as u32, member.record))
    }

    /// Fills in the last start, the shortest duration and every member's wait. `size` is the number of ranks in the
    /// communicator, if known.
    fn measured(mut self, fits: &[Option<ClockFit>], size: Option<usize>) -> Self {
        self.shortest = self.members.iter().map(|member| duration(member.record)).min().unwrap_or(0);
        self.latest = self.last_start(size);
        let fit = |rank: usize| fits.get(rank).and_then(Option::as_ref);
        let last_rank = self.latest.map(|last| last.rank);
        let last_fit = last_rank.and_then(fit);
        let bound = |rank: usize| last_fit.zip(fit(rank)).map_or(0, |(last, own)| own.bound_between(last));
        for member in &mut self.members {
            let duration = duration(member.record);
            let aligned = |last: LastStart| Some((last.start - member.start?).clamp(0, duration));
            member.wait = Wait {
                aligned: self.latest.and_then(aligned),
                clock_free: duration - self.shortest,
                // The last rank to start waits for no other rank, whatever the clocks say.
                bound: if last_rank == Some(member.rank) { 0 } else { bound(member.rank) },
            };
        }
        self
    }

    /// Returns the start on the first member's own clock. It orders the collectives of one communicator, because they
    /// all have the same members.
    fn first_start(&self) -> Option<MonoNanos> {
        self.members.first().map(|member| member.record.start)
    }

    /// Returns the ranks with their caused waits in nanoseconds (`docs/metrics.md`): in the order of their starts, how long
    /// after the rank before it each rank started. They sum to the longest wait. Empty without aligned starts of all
    /// members.
    pub(crate) fn caused_waits(&self) -> Vec<(usize, i64)> {
        let Some(last) = self.latest else { return Vec::new() };
        let longest = self.members.iter().filter_map(|member| member.wait.aligned).max().unwrap_or(0);
        // A start so early that the rank left before the last one came is an error of the clocks.
        let earliest = last.start + -longest;
        let start = |member: &Member<'_>| Some((member.start?.max(earliest), member.rank));
        let mut starts: Vec<(ServerNanos, usize)> = self.members.iter().filter_map(start).collect();
        starts.sort_unstable();
        let delay = |previous: &mut ServerNanos, (start, rank): (ServerNanos, usize)| {
            Some((rank, start - std::mem::replace(previous, start)))
        };
        starts.into_iter().scan(earliest, delay).collect()
    }

    fn last_start(&self, size: Option<usize>) -> Option<LastStart> {
        if self.members.len() < size? {
            return None;
        }
        let mut latest: Option<LastStart> = None;
        for member in &self.members {
            let start = member.start?;
            if latest.is_none_or(|last| start >= last.start) {
                latest = Some(LastStart { rank: member.rank, start });
            }
        }
        latest
    }
}

/// Returns the duration of a collective on one rank, in nanoseconds.
pub(crate) fn duration(record: &BucketRecord) -> i64 {
    (record.end - record.start).max(0)
}
