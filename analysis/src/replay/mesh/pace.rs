//! What a rank's own work is replaced with.

use std::collections::BTreeMap;

use wire::views::Group;

use crate::replay::graph::{Durations, PHASES};

/// A place in a step that ranks come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// A collective in a group of this shape,
    pub(super) group: Group,
    /// or a message with an earlier rank, or a later one: a stage of a pipeline that has both does something else
    /// than the first.
    pub(super) message_with_earlier: Option<bool>,
    /// the so manyth.
    pub(super) count: u32,
}

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
    /// By rank, which of `kinds` it is of.
    kind: Vec<usize>,
    kinds: Vec<Kind>,
}

/// Ranks that come to the same places; sums over them.
struct Kind {
    ranks: usize,
    places: BTreeMap<Place, f64>,
    total: f64,
}

impl Places {
    pub(super) fn of(ranks: Vec<BTreeMap<Place, f64>>, totals: Vec<f64>) -> Self {
        let (mut kind, mut kinds) = (Vec::with_capacity(ranks.len()), Vec::<Kind>::new());
        for (places, total) in ranks.iter().zip(&totals) {
            let known = kinds.iter().position(|known| known.places.keys().eq(places.keys()));
            kind.push(known.unwrap_or(kinds.len()));
            match known.map(|known| &mut kinds[known]) {
                Some(known) => known.add(places, *total),
                None => kinds.push(Kind { ranks: 1, places: places.clone(), total: *total }),
            }
        }
        Self { ranks, totals, kind, kinds }
    }

    /// `rank` as the mean of those that come to the same places and are not `among`; `None` where there are none,
    /// since then its step cannot be compared piece by piece.
    pub(super) fn as_others(&self, rank: usize, among: &[usize]) -> Option<Pace> {
        let kind = &self.kinds[self.kind[rank]];
        let alike: Vec<usize> =
            among.iter().copied().filter(|&one| self.kind[one] == self.kind[rank]).collect();
        let others = kind.ranks.checked_sub(alike.len()).filter(|others| *others > 0)? as f64;
        let mean = |sum: f64, those: f64| (sum - those).max(0.0) / others;
        let place = |(place, own): (&Place, &f64)| {
            let those = alike.iter().filter_map(|&one| self.ranks[one].get(place)).sum();
            (*own, mean(kind.places[place], those))
        };
        let total = mean(kind.total, alike.iter().map(|&one| self.totals[one]).sum());
        let mut places: Vec<(f64, f64)> = self.ranks[rank].iter().map(place).collect();
        places.extend([(0.0, 0.0), (self.totals[rank], total)]);
        places.sort_by(|a, b| a.0.total_cmp(&b.0));
        // What was enqueued ahead of its turn may lie the other way round among the others.
        let mut furthest = 0.0;
        for (_, instead) in &mut places {
            furthest = instead.max(furthest);
            *instead = furthest;
        }
        Some(Pace::Through(places))
    }
}

impl Kind {
    fn add(&mut self, places: &BTreeMap<Place, f64>, total: f64) {
        self.ranks += 1;
        self.total += total;
        self.places.iter_mut().zip(places.values()).for_each(|((_, sum), work)| *sum += work);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(count: u32) -> Place {
        Place { group: Group { ranks: 3, stride: 1 }, message_with_earlier: None, count }
    }

    #[test]
    fn a_rank_is_replaced_piece_by_piece() {
        let rank = |first: f64, second: f64| BTreeMap::from([(place(0), first), (place(1), second)]);
        let places =
            Places::of(vec![rank(10.0, 20.0), rank(30.0, 40.0), rank(14.0, 24.0)], vec![30.0, 60.0, 34.0]);
        let pace = places.as_others(1, &[1]).unwrap();
        let played = |own: f64| {
            let mut work = [0.0; PHASES];
            work[1] = own;
            pace.of(&work)
        };
        assert_eq!([0.0, 15.0, 30.0, 40.0, 50.0, 60.0].map(played), [0.0, 6.0, 12.0, 22.0, 27.0, 32.0]);
    }

    #[test]
    fn ranks_are_compared_with_those_that_come_to_the_same_places() {
        let of = |count: u32| (0..count).map(|at| (place(at), f64::from(at))).collect();
        let places = Places::of(vec![of(2), of(3), of(3)], vec![5.0, 6.0, 8.0]);
        assert!(places.as_others(0, &[0]).is_none(), "there is none");
        let Some(Pace::Through(through)) = places.as_others(1, &[1]) else { panic!("rank 2 is") };
        assert_eq!(through.last(), Some(&(6.0, 8.0)));
    }
}
