//! The clocks of traces, aligned by the collectives of all ranks. All times are on the clock of the first trace.

use std::collections::BTreeMap;

use timing::clocks::{AlignedCollective, ClockFit, tighten};
use wire::clock::{MonoNanos, Probe, ServerNanos};
use wire::event::{BucketRecord, Event, Function};
use wire::ids::{Comm, Seq};

/// By how much the clock of a trace may differ from that of the first one, in nanoseconds, before collectives say more.
const CLOCK_ERROR_NANOS: u64 = 10_000_000_000;
/// The time between the two probes of a clock, in nanoseconds: so long that the line through them is level.
const BETWEEN_PROBES_NANOS: i64 = 1_000_000_000_000;

/// The clock of a trace: what to add to its times, and by how much that may be wrong, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clock {
    pub(super) offset: i64,
    pub(super) bound: u64,
}

/// A collective that says something about clocks, because its ranks wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Proof {
    comm: Comm,
    seq: Seq,
    start: MonoNanos,
    end: MonoNanos,
}

/// What is known of the clock of a rank.
#[derive(Clone, Copy)]
pub(super) struct Recorded<'a> {
    pub(super) proofs: &'a [Proof],
    /// Whether they are of the file of the first rank, which has one clock.
    pub(super) is_of_first: bool,
    /// By how much times may be off against another rank's of that clock, in nanoseconds.
    pub(super) error_nanos: u64,
}

/// Aligns the clocks of the ranks.
pub(super) fn align(ranks: &[Recorded<'_>]) -> Vec<Clock> {
    let fit = |at: usize| ClockFit {
        clock: at as u32,
        reference: MonoNanos(0),
        offset_nanos: 0,
        drift_ppb: 0.0,
        bound_nanos: if ranks[at].is_of_first { 0 } else { CLOCK_ERROR_NANOS },
        device_nanos: 0,
    };
    let mut fits: Vec<Option<ClockFit>> = (0..ranks.len()).map(|at| Some(fit(at))).collect();
    let mut joined: BTreeMap<_, AlignedCollective> = BTreeMap::new();
    for (at, rank) in ranks.iter().enumerate() {
        for proof in rank.proofs {
            let times = (at, ServerNanos(proof.start.0), ServerNanos(proof.end.0));
            joined.entry((proof.comm, proof.seq)).or_default().push(times);
        }
    }
    tighten(&mut fits, &joined.into_values().collect::<Vec<_>>());
    let clock = |(fit, rank): (&ClockFit, &Recorded<'_>)| Clock {
        offset: fit.offset_nanos,
        bound: fit.bound_nanos.saturating_add(rank.error_nanos),
    };
    fits.iter().flatten().zip(ranks).map(clock).collect()
}

/// Returns the collectives of a rank whose ranks wait for each other.
pub(super) fn proofs(events: &[Event]) -> Vec<Proof> {
    let proof = |event: &Event| match event {
        Event::Bucket(bucket) if Function::from_seq(bucket.seq).waits_for_all() => {
            let BucketRecord { comm, seq, start, end, .. } = *bucket;
            Some(Proof { comm, seq, start, end })
        }
        _ => None,
    };
    events.iter().filter_map(proof).collect()
}

/// Returns two probes that say the same of a clock as `clock` does.
pub(super) fn probes(begin: MonoNanos, clock: Clock) -> Vec<Probe> {
    let bound = i64::try_from(clock.bound).unwrap_or(i64::MAX);
    let probe = |number: i64| {
        let at = begin + -number * BETWEEN_PROBES_NANOS;
        let server = ServerNanos(at.0.saturating_add(clock.offset));
        Probe { sent: at + -bound, server_received: server, server_sent: server, received: at + bound }
    };
    [1, 0].map(probe).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::event::Source;
    use wire::ids::{Bucket, Step};

    /// What an all-reduce per pair proves, from start to end, in nanoseconds.
    fn rank(collectives: &[(i64, i64)]) -> Vec<Proof> {
        let bucket = |(at, &(start, end)): (usize, &(i64, i64))| {
            Event::Bucket(BucketRecord {
                step: Step(1),
                comm: Comm(0),
                seq: Function::AllReduce.numbered(at as u64),
                bucket: Bucket(0),
                bytes: 0,
                ready: MonoNanos(start),
                launch: MonoNanos(start),
                start: MonoNanos(start),
                end: MonoNanos(end),
                source: Source::ActivityRecord,
            })
        };
        proofs(&collectives.iter().enumerate().map(bucket).collect::<Vec<_>>())
    }

    #[test]
    fn collectives_align_the_clocks_of_traces() {
        // The second clock is 5 s ahead. Each all-reduce ends on both ranks 2 us after its last start.
        let first = rank(&[(0, 9_000), (20_000, 22_000)]);
        let second = rank(&[(5_000_007_000, 5_000_009_000), (5_000_013_000, 5_000_022_000)]);
        fn of(proofs: &[Proof], is_of_first: bool) -> Recorded<'_> {
            Recorded { proofs, is_of_first, error_nanos: 0 }
        }
        let clocks = align(&[of(&first, true), of(&second, false)]);
        assert_eq!(clocks[0], Clock { offset: 0, bound: 0 });
        let error = (clocks[1].offset + 5_000_000_000).unsigned_abs();
        assert!(clocks[1].bound <= 2_000 && error <= clocks[1].bound, "{clocks:?}");
        let of_one_file = align(&[of(&first, true), of(&first, true)]);
        assert_eq!(of_one_file[1], Clock { offset: 0, bound: 0 });
        let noticed = Recorded { error_nanos: 500, ..of(&first, true) };
        assert_eq!(align(&[noticed, noticed])[1], Clock { offset: 0, bound: 500 });
    }

    #[test]
    fn probes_say_what_the_alignment_says() {
        for clock in [Clock { offset: 0, bound: 0 }, Clock { offset: -5_000_000_000, bound: 151_000 }] {
            let fit = timing::clocks::fit(0, &probes(MonoNanos(7_000_000_000), clock)).unwrap();
            assert!((fit.offset_nanos - clock.offset).abs() <= 1);
            assert!(
                (clock.bound..=clock.bound + clock.bound / 100 + 10).contains(&fit.bound_nanos),
                "{fit:?}"
            );
        }
    }
}
