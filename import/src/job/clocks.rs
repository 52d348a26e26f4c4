//! The clocks of traces, aligned by the collectives of all ranks. All times are on the clock of the first trace.
//!
//! The ends of collectives place the clocks ([`ends`]). That no rank ends a collective before the last one starts it bounds them as well,
//! but alone this would not do: where one rank is late in every collective, it allows for clocks that are off by the lateness.

mod ends;

use std::collections::BTreeMap;

use timing::clocks::{AlignedCollective, ClockFit, tighten};
use wire::clock::{MonoNanos, Probe, ServerNanos};
use wire::event::{BucketRecord, Event, Function};
use wire::ids::{Bucket, Comm, Seq, Step};

pub(super) use ends::APART_NANOS;

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
    pub(super) step: Step,
    pub(super) comm: Comm,
    pub(super) seq: Seq,
    pub(super) bucket: Bucket,
    start: MonoNanos,
    pub(super) end: MonoNanos,
}

/// What is known of the clock of a rank.
#[derive(Clone, Copy)]
pub(super) struct Recorded<'a> {
    pub(super) proofs: &'a [Proof],
    /// Whether they are on the clock of the first rank.
    pub(super) is_of_first: bool,
    /// By how much times may be off against another rank's of that clock, in nanoseconds.
    pub(super) error_nanos: u64,
}

/// Aligns the clocks of the ranks.
pub(super) fn align(ranks: &[Recorded<'_>]) -> Vec<Clock> {
    let mut collectives = joined(ranks.iter().map(|rank| rank.proofs));
    let unknown = |rank: &Recorded<'_>| Clock {
        offset: 0,
        bound: if rank.is_of_first { 0 } else { CLOCK_ERROR_NANOS },
    };
    let placed = ends::place(&collectives, ranks.len());
    let placed: Vec<Clock> =
        placed.into_iter().zip(ranks).map(|(placed, rank)| placed.unwrap_or_else(|| unknown(rank))).collect();
    for (rank, start, end) in collectives.iter_mut().flatten() {
        let offset = placed[*rank].offset;
        (*start, *end) = (*start + offset, *end + offset);
    }
    let fit = |(at, clock): (usize, &Clock)| ClockFit {
        clock: at as u32,
        reference: MonoNanos(0),
        offset_nanos: 0,
        drift_ppb: 0.0,
        bound_nanos: clock.bound,
        device_nanos: 0,
    };
    let mut fits: Vec<Option<ClockFit>> = placed.iter().enumerate().map(|clock| Some(fit(clock))).collect();
    tighten(&mut fits, &collectives);
    let clock = |((fit, placed), rank): ((&ClockFit, &Clock), &Recorded<'_>)| Clock {
        offset: placed.offset.saturating_add(fit.offset_nanos),
        bound: fit.bound_nanos.saturating_add(rank.error_nanos),
    };
    fits.iter().flatten().zip(&placed).zip(ranks).map(clock).collect()
}

/// Returns the clocks that the ends of these collectives of ranks say; `None` for those that they do not place.
pub(super) fn from_ends(ranks: &[Vec<Proof>]) -> Vec<Option<Clock>> {
    ends::place(&joined(ranks.iter().map(Vec::as_slice)), ranks.len())
}

/// Returns the collectives whose ranks wait for each other, each with the times of its ranks on their own clocks.
fn joined<'a>(ranks: impl Iterator<Item = &'a [Proof]>) -> Vec<AlignedCollective> {
    let mut joined: BTreeMap<_, AlignedCollective> = BTreeMap::new();
    for (at, proofs) in ranks.enumerate() {
        for proof in proofs {
            let times = (at, ServerNanos(proof.start.0), ServerNanos(proof.end.0));
            joined.entry((proof.comm, proof.seq)).or_default().push(times);
        }
    }
    joined.into_values().collect()
}

/// Returns the collectives of a rank whose ranks wait for each other.
pub(super) fn proofs(events: &[Event]) -> Vec<Proof> {
    let proof = |event: &Event| match event {
        Event::Bucket(bucket) if Function::from_seq(bucket.seq).waits_for_all() => {
            let BucketRecord { step, comm, seq, bucket, start, end, .. } = *bucket;
            Some(Proof { step, comm, seq, bucket, start, end })
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

    fn recorded(proofs: &[Proof], is_of_first: bool) -> Recorded<'_> {
        Recorded { proofs, is_of_first, error_nanos: 0 }
    }

    #[test]
    fn collectives_align_the_clocks_of_traces() {
        // The second clock is 5 s ahead. Each all-reduce ends on both ranks 2 us after its last start.
        let first = rank(&[(0, 9_000), (20_000, 22_000)]);
        let second = rank(&[(5_000_007_000, 5_000_009_000), (5_000_013_000, 5_000_022_000)]);
        let clocks = align(&[recorded(&first, true), recorded(&second, false)]);
        let error = (clocks[1].offset - clocks[0].offset + 5_000_000_000).unsigned_abs();
        assert!(clocks[1].bound <= APART_NANOS && error <= clocks[0].bound + clocks[1].bound, "{clocks:?}");
        let clocks_of_one_file = align(&[recorded(&[], true), recorded(&[], true)]);
        assert_eq!(clocks_of_one_file[1], Clock { offset: 0, bound: 0 });
        let noticed = Recorded { error_nanos: 500, ..recorded(&[], true) };
        assert_eq!(align(&[noticed, noticed])[1], Clock { offset: 0, bound: 500 });
    }

    #[test]
    fn a_clock_that_shares_no_collective_is_not_known() {
        let (first, other) = (rank(&[(0, 9_000)]), Vec::new());
        let clocks = align(&[recorded(&first, true), recorded(&other, false)]);
        assert_eq!((clocks[0].bound, clocks[1].bound), (0, CLOCK_ERROR_NANOS));
    }

    /// The last of three ranks starts each of twelve all-reduces 20 ms after the others, which end it with it. Clocks are minutes apart.
    #[test]
    fn lateness_in_every_collective_is_no_error_of_the_clock() {
        let (late, apart) = (20_000_000, 70_000_000_000);
        let times = |rank: i64, starts_late: bool| -> Vec<(i64, i64)> {
            let begin = |number: i64| number * 30_000_000 + rank * apart;
            let start = |number: i64| begin(number) + if starts_late { late } else { 0 };
            // Devices see the end some microseconds apart.
            (0..12)
                .map(|number| (start(number), begin(number) + late + 300_000 + (number * rank) % 5 * 1_000))
                .collect()
        };
        let all: Vec<Vec<Proof>> =
            [(0, false), (1, false), (2, true)].map(|(at, is_late)| rank(&times(at, is_late))).into();
        for order in [[0, 1, 2], [2, 0, 1], [1, 2, 0], [2, 1, 0]] {
            let recorded: Vec<_> =
                order.iter().enumerate().map(|(at, &rank)| recorded(&all[rank], at == 0)).collect();
            let clocks = align(&recorded);
            for (first, second) in [(0, 1), (0, 2), (1, 2)] {
                let is = clocks[first].offset - clocks[second].offset;
                let should = (order[second] as i64 - order[first] as i64) * apart;
                let bound = clocks[first].bound + clocks[second].bound;
                assert!(
                    (is - should).unsigned_abs() <= bound && bound <= 2 * APART_NANOS,
                    "{order:?}: {clocks:?}"
                );
            }
        }
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
