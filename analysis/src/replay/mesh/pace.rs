//! What a rank's own work is replaced with.

use std::collections::BTreeMap;

use wire::views::Group;

use crate::replay::graph::{Durations, PHASES};

/// A place in a step that all ranks come to: the so manyth collective in a group of this shape.
pub(super) type Place = (Group, u32);

/// How own work is played.
#[derive(Clone)]
pub(super) enum Pace {
    /// Each phase takes so many times as long.
    Scaled(Durations),
    /// Own work up to the places of a step, in nanoseconds and ascending, and what it takes instead; in between evenly.
    Through(Vec<(f64, f64)>),
}

impl Pace {
    pub(super) const AS_MEASURED: Self = Self::Scaled([1.0; PHASES]);

    /// What so much own work takes, in nanoseconds.
    pub(super) fn of(&self, work: &Durations) -> f64 {
        match self {
            Self::Scaled(scale) => work.iter().zip(scale).map(|(work, scale)| work * scale).sum(),
            Self::Through(places) => between(places, work.iter().sum()),
        }
    }
}

fn between(places: &[(f64, f64)], own: f64) -> f64 {
    let after = places.partition_point(|(at, _)| *at <= own);
    let (from, to) = (places[after.saturating_sub(1)], places[after.min(places.len() - 1)]);
    let width = to.0 - from.0;
    if width > 0.0 { from.1 + (own - from.0) / width * (to.1 - from.1) } else { from.1 }
}

/// Own work up to each place of each rank, and in the whole step, in nanoseconds.
pub(super) struct Places {
    ranks: Vec<BTreeMap<Place, f64>>,
    totals: Vec<f64>,
    sums: BTreeMap<Place, f64>,
}

impl Places {
    /// `None` where ranks come to different places: then their steps cannot be compared piece by piece.
    pub(super) fn of(ranks: Vec<BTreeMap<Place, f64>>, totals: Vec<f64>) -> Option<Self> {
        let first = ranks.first()?;
        if !ranks.iter().all(|rank| rank.keys().eq(first.keys())) {
            return None;
        }
        let mut sums = BTreeMap::new();
        for (place, work) in ranks.iter().flatten() {
            *sums.entry(*place).or_default() += work;
        }
        Some(Self { ranks, totals, sums })
    }

    /// `rank` as the mean of those that are not `among`.
    pub(super) fn as_others(&self, rank: usize, among: &[usize]) -> Pace {
        let others = self.ranks.len().saturating_sub(among.len()).max(1) as f64;
        let mean = |sum: f64, those: f64| (sum - those).max(0.0) / others;
        let place = |(place, own): (&Place, &f64)| {
            let those = among.iter().filter_map(|&one| self.ranks[one].get(place)).sum();
            (*own, mean(self.sums[place], those))
        };
        let total = mean(self.totals.iter().sum(), among.iter().map(|&one| self.totals[one]).sum());
        let mut places: Vec<(f64, f64)> = self.ranks[rank].iter().map(place).collect();
        places.extend([(0.0, 0.0), (self.totals[rank], total)]);
        places.sort_by(|a, b| a.0.total_cmp(&b.0));
        // What was enqueued ahead of its turn may lie the other way round among the others.
        let mut furthest = 0.0;
        for (_, instead) in &mut places {
            furthest = instead.max(furthest);
            *instead = furthest;
        }
        Pace::Through(places)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORLD: Group = Group { ranks: 3, stride: 1 };

    #[test]
    fn a_rank_is_replaced_piece_by_piece() {
        let rank = |first: f64, second: f64| BTreeMap::from([((WORLD, 0), first), ((WORLD, 1), second)]);
        let places =
            Places::of(vec![rank(10.0, 20.0), rank(30.0, 40.0), rank(14.0, 24.0)], vec![30.0, 60.0, 34.0]);
        let pace = places.unwrap().as_others(1, &[1]);
        let played = |own: f64| {
            let mut work = [0.0; PHASES];
            work[1] = own;
            pace.of(&work)
        };
        assert_eq!([0.0, 15.0, 30.0, 40.0, 50.0, 60.0].map(played), [0.0, 6.0, 12.0, 22.0, 27.0, 32.0]);
    }

    #[test]
    fn ranks_that_come_to_different_places_are_not_compared_so() {
        let of = |count: u32| (0..count).map(|at| ((WORLD, at), f64::from(at))).collect();
        assert!(Places::of(vec![of(2), of(3)], vec![5.0, 5.0]).is_none());
    }
}
