//! The pace that replaces the local work of a rank.

use std::collections::BTreeMap;

use wire::views::Group;

use crate::replay::graph::{Durations, PHASES};
use crate::replay::never_longer;

/// A position in a step that ranks reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Waypoint {
    /// The shape of the group whose collective or message this is.
    pub(super) group: Group,
    /// For a message, whether the other rank is an earlier one. A pipeline stage that has messages with both earlier
    /// and later ranks does something else than the first stage. `None` for a collective.
    pub(super) message_with_earlier: Option<bool>,
    /// The index among the collectives or messages of this kind.
    pub(super) count: u32,
}

/// The local work up to a position of a step, and the time that replaces it, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Position {
    work: f64,
    instead: f64,
}

/// The pace at which local work is replayed.
#[derive(Clone)]
pub(super) enum Pace {
    /// Each phase is scaled by a factor.
    Scaled(Durations),
    /// Positions of a step, ascending. In between, it is interpolated linearly.
    Through(Vec<Position>),
}

impl Pace {
    pub(super) const AS_MEASURED: Self = Self::Scaled([1.0; PHASES]);

    /// Returns the pace at which no segment takes longer than it did.
    pub(super) fn never_longer(self) -> Self {
        match self {
            Self::Scaled(scale) => Self::Scaled(never_longer(scale)),
            Self::Through(mut positions) => {
                let (mut before, mut instead) = (Position::default(), 0.0);
                for position in &mut positions {
                    let whole = *position;
                    instead += (whole.work - before.work).min(whole.instead - before.instead);
                    (before, position.instead) = (whole, instead);
                }
                Self::Through(positions)
            }
        }
    }

    /// Returns the time that this local work takes, in nanoseconds.
    pub(super) fn nanos(&self, work: &Durations) -> f64 {
        match self {
            Self::Scaled(scale) => work.iter().zip(scale).map(|(work, scale)| work * scale).sum(),
            Self::Through(positions) => interpolated(positions, work.iter().sum()),
        }
    }
}

fn interpolated(positions: &[Position], work: f64) -> f64 {
    let next = positions.partition_point(|position| position.work <= work);
    let (from, to) = (positions[next.saturating_sub(1)], positions[next.min(positions.len() - 1)]);
    let width = to.work - from.work;
    if width > 0.0 {
        from.instead + (work - from.work) / width * (to.instead - from.instead)
    } else {
        from.instead
    }
}

/// The local work up to each position of each rank, and in the whole step, in nanoseconds.
pub(super) struct Waypoints {
    ranks: Vec<RankWork>,
    /// For each rank, the index of its kind in `kinds`.
    kind: Vec<usize>,
    kinds: Vec<AlikeRanks>,
}

struct RankWork {
    places: BTreeMap<Waypoint, f64>,
    total: f64,
}

/// Sums over the ranks that reach the same positions.
struct AlikeRanks {
    ranks: usize,
    places: BTreeMap<Waypoint, f64>,
    total: Durations,
}

impl Waypoints {
    /// Takes the local work of each rank up to its positions, and in the whole step by phase.
    pub(super) fn new(all: impl Iterator<Item = (BTreeMap<Waypoint, f64>, Durations)>) -> Self {
        let (mut ranks, mut kind, mut kinds) = (Vec::new(), Vec::new(), Vec::<AlikeRanks>::new());
        for (places, total) in all {
            let known = kinds.iter().position(|known| known.places.keys().eq(places.keys()));
            kind.push(known.unwrap_or(kinds.len()));
            match known.map(|known| &mut kinds[known]) {
                Some(known) => known.add(&places, &total),
                None => kinds.push(AlikeRanks { ranks: 1, places: places.clone(), total }),
            }
            ranks.push(RankWork { places, total: total.iter().sum() });
        }
        Self { ranks, kind, kinds }
    }

    /// Returns true if all ranks reach the same positions.
    pub(super) fn are_all_alike(&self) -> bool {
        self.kinds.len() == 1
    }

    /// Returns the local work of a step by phase, averaged over the ranks that reach the same positions as `rank`; `None`
    /// if no other one does.
    pub(super) fn mean_work(&self, rank: usize) -> Option<Durations> {
        let kind = &self.kinds[self.kind[rank]];
        (kind.ranks > 1).then(|| kind.total.map(|total| total / kind.ranks as f64))
    }

    /// Returns the pace of `rank` at the mean of the ranks that reach the same positions and are not in `among`.
    /// Returns `None` if there are no such ranks, because the step then cannot be compared piece by piece.
    pub(super) fn as_others(&self, rank: usize, among: &[usize]) -> Option<Pace> {
        let kind = &self.kinds[self.kind[rank]];
        let alike: Vec<usize> =
            among.iter().copied().filter(|&other| self.kind[other] == self.kind[rank]).collect();
        let others = kind.ranks.checked_sub(alike.len()).filter(|others| *others > 0)? as f64;
        let mean = |sum: f64, left_out: f64| (sum - left_out).max(0.0) / others;
        let place = |(place, own): (&Waypoint, &f64)| {
            let left_out = alike.iter().filter_map(|&other| self.ranks[other].places.get(place)).sum();
            Position { work: *own, instead: mean(kind.places[place], left_out) }
        };
        let total = mean(kind.total.iter().sum(), alike.iter().map(|&other| self.ranks[other].total).sum());
        let own = &self.ranks[rank];
        let mut positions: Vec<Position> = own.places.iter().map(place).collect();
        positions.extend([Position::default(), Position { work: own.total, instead: total }]);
        positions.sort_by(|a, b| a.work.total_cmp(&b.work));
        // A collective that was enqueued early may be in the opposite order on the other ranks.
        let mut furthest = 0.0;
        for position in &mut positions {
            furthest = position.instead.max(furthest);
            position.instead = furthest;
        }
        Some(Pace::Through(positions))
    }
}

impl AlikeRanks {
    fn add(&mut self, places: &BTreeMap<Waypoint, f64>, total: &Durations) {
        self.ranks += 1;
        self.total.iter_mut().zip(total).for_each(|(sum, work)| *sum += work);
        self.places.iter_mut().zip(places.values()).for_each(|((_, sum), work)| *sum += work);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(count: u32) -> Waypoint {
        Waypoint { group: Group { ranks: 3, stride: 1 }, message_with_earlier: None, count }
    }

    /// Returns local work in one phase.
    fn only(nanos: f64) -> Durations {
        let mut work = [0.0; PHASES];
        work[1] = nanos;
        work
    }

    fn positions<const N: usize>(pairs: [(f64, f64); N]) -> Vec<Position> {
        pairs.map(|(work, instead)| Position { work, instead }).to_vec()
    }

    #[test]
    fn no_segment_is_lengthened() {
        let pace =
            Pace::Through(positions([(0.0, 0.0), (10.0, 4.0), (20.0, 30.0), (30.0, 36.0)])).never_longer();
        let Pace::Through(shortened) = pace else { panic!("piece by piece") };
        assert_eq!(shortened, positions([(0.0, 0.0), (10.0, 4.0), (20.0, 14.0), (30.0, 20.0)]));
    }

    #[test]
    fn local_work_is_replaced_piece_by_piece() {
        let rank = |first: f64, second: f64| BTreeMap::from([(place(0), first), (place(1), second)]);
        let ranks = [(rank(10.0, 20.0), 30.0), (rank(30.0, 40.0), 60.0), (rank(14.0, 24.0), 34.0)];
        let places = Waypoints::new(ranks.into_iter().map(|(places, total)| (places, only(total))));
        let pace = places.as_others(1, &[1]).unwrap();
        let played = |own: f64| pace.nanos(&only(own));
        assert_eq!([0.0, 15.0, 30.0, 40.0, 50.0, 60.0].map(played), [0.0, 6.0, 12.0, 22.0, 27.0, 32.0]);
    }

    #[test]
    fn ranks_are_compared_with_ranks_that_reach_the_same_positions() {
        let places_of = |count: u32| (0..count).map(|at| (place(at), f64::from(at))).collect();
        let places = Waypoints::new(
            [(places_of(2), only(5.0)), (places_of(3), only(6.0)), (places_of(3), only(8.0))].into_iter(),
        );
        assert!(places.as_others(0, &[0]).is_none(), "no rank reaches the same positions");
        let Some(Pace::Through(through)) = places.as_others(1, &[1]) else { panic!("rank 2 reaches them") };
        assert_eq!(through.last(), Some(&Position { work: 6.0, instead: 8.0 }));
    }
}
