//! By how much the last rank of a collective is late, and which part of that is new.

use wire::event::Source;

use crate::join::{JoinedCollective, Member};

/// The time after the end of a collective within which the next one starts if it was enqueued before, in nanoseconds: gaps of some tens
/// of microseconds lie between kernels of a stream that is busy.
const AT_ONCE_NANOS: i64 = 30_000;

/// Returns by how much the last rank started after the one before it, in nanoseconds; `None` if their clocks may be wrong by
/// as much.
pub(super) fn last_by(collective: &JoinedCollective<'_>) -> Option<u64> {
    let last = collective.latest?;
    let others = collective.members.iter().filter(|member| member.rank != last.rank);
    let (before, bound) = others.filter_map(|member| Some((member.start?, member.wait.bound))).max()?;
    Some((last.start - before).max(0).unsigned_abs()).filter(|&nanos| nanos >= bound)
}

/// Returns the part of [`last_by`] that is new. A rank that was last in the collective before as well, and fell no further behind since, is
/// late once and not twice, if the others had enqueued this collective when that one ended.
pub(super) fn newly_late(
    collective: &JoinedCollective<'_>,
    previous: Option<&JoinedCollective<'_>>,
) -> Option<u64> {
    let lateness = last_by(collective)?;
    let rank = collective.latest?.rank;
    let is_of_same = |previous: &&JoinedCollective<'_>| {
        previous.comm == collective.comm && previous.latest.is_some_and(|last| last.rank == rank)
    };
    let Some(previous) =
        previous.filter(is_of_same).filter(|previous| is_enqueued_behind(collective, previous, rank))
    else {
        return Some(lateness);
    };
    let more = lag(collective, rank)?.saturating_sub(lag(previous, rank)?);
    Some(lateness.min(more.max(0).unsigned_abs()))
}

/// Returns true if most ranks other than the last one started a collective as soon as they had ended the one before it.
fn is_enqueued_behind(
    collective: &JoinedCollective<'_>,
    previous: &JoinedCollective<'_>,
    last: usize,
) -> bool {
    let pairs = || collective.members.iter().zip(&previous.members);
    let starts_at_once = |(own, previous): &(&Member<'_>, &Member<'_>)| {
        own.record.start - previous.record.end <= AT_ONCE_NANOS
    };
    let is_measured = |(own, previous): (&Member<'_>, &Member<'_>)| {
        own.rank == previous.rank && own.record.source == Source::ActivityRecord
    };
    let others = || pairs().filter(|(own, _)| own.rank != last);
    pairs().all(is_measured) && 2 * others().filter(starts_at_once).count() > others().count()
}

/// Returns by how much later than all others a rank was ready for a collective, in nanoseconds.
fn lag(collective: &JoinedCollective<'_>, rank: usize) -> Option<i64> {
    // The clock does not drift noticeably from ready to start.
    let ready = |member: &Member<'_>| Some(member.start? + (member.record.ready - member.record.start));
    let members =
        |is_own: bool| collective.members.iter().filter(move |member| (member.rank == rank) == is_own);
    Some(members(true).filter_map(ready).max()? - members(false).filter_map(ready).max()?)
}

#[cfg(test)]
mod tests {
    use timing::clocks::ClockFit;
    use wire::clock::MonoNanos;
    use wire::event::{BucketRecord, Function, StepRecord};
    use wire::ids::{Bucket, Comm, Step};

    use super::*;
    use crate::join::Joined;
    use crate::records::{RankStep, StepRecords};

    const US: i64 = 1_000;

    /// Returns by how much the last rank is newly late in each of two collectives, in microseconds, given when each of three ranks was
    /// ready for them and started them. They end at 1,000 and at 2,000.
    fn newly(of_ranks: [[(i64, i64); 2]; 3], source: Source) -> Vec<Option<u64>> {
        let step = Step(3);
        let bucket = |(number, (ready, start)): (usize, (i64, i64))| BucketRecord {
            step,
            comm: Comm(0),
            seq: Function::AllReduce.numbered(number as u64),
            bucket: Bucket(0),
            bytes: 0,
            ready: MonoNanos(ready * US),
            launch: MonoNanos(ready * US),
            start: MonoNanos(start * US),
            end: MonoNanos(1_000 * US * (number as i64 + 1)),
            source,
        };
        let rank = |times: [(i64, i64); 2]| {
            let (begin, end) = (MonoNanos(0), MonoNanos(2_000 * US));
            let record = StepRecord { step, begin, end, samples: 0, shadow: false };
            let buckets = times.into_iter().enumerate().map(bucket).collect();
            Some(Box::new(RankStep { record, spans: Vec::new(), buckets }))
        };
        let records = StepRecords { step, ranks: of_ranks.map(rank).to_vec(), absent: 0 };
        let fits = vec![Some(ClockFit::exact()); 3];
        let joined = Joined::new(&records, &fits);
        let previous = std::iter::once(None).chain(joined.collectives.iter().map(Some));
        let newly = joined
            .collectives
            .iter()
            .zip(previous)
            .map(|(collective, previous)| newly_late(collective, previous));
        newly.map(|nanos| Some(nanos? / US.unsigned_abs())).collect()
    }

    #[test]
    fn a_rank_that_fell_behind_once_is_late_once_in_collectives_that_were_enqueued() {
        let on_time = [(100, 100), (200, 1_005)];
        let behind = [(600, 600), (700, 1_500)];
        assert_eq!(newly([on_time, behind, on_time], Source::ActivityRecord), [Some(500), Some(0)]);
        // It falls another 300 behind.
        let further = [(600, 600), (1_000, 1_500)];
        assert_eq!(newly([on_time, on_time, further], Source::ActivityRecord), [Some(500), Some(300)]);
        // It is another rank that is late then.
        let late = [(100, 100), (1_400, 1_400)];
        assert_eq!(
            newly([[(600, 600), (200, 1_005)], late, on_time], Source::ActivityRecord),
            [Some(500), Some(395)]
        );
    }

    #[test]
    fn a_rank_that_is_late_again_after_all_went_on_is_late_twice() {
        let on_time = [(100, 100), (1_200, 1_200)];
        let behind = [(600, 600), (1_700, 1_700)];
        assert_eq!(newly([on_time, behind, on_time], Source::ActivityRecord), [Some(500), Some(500)]);
        // Hosts notice ends late, so that nothing is known of what was enqueued.
        let at_once = [(100, 100), (200, 1_005)];
        assert_eq!(newly([at_once, behind, at_once], Source::DeviceEvent), [Some(500), Some(695)]);
    }
}
