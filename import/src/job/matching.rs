//! Which collectives of ranks are the same, where their traces do not have equally many.
//!
//! Traces rarely number collectives, so they count from the end of each step: some traces miss the first kernels of a step. A trace
//! that was cut misses the last ones, and a damaged event is missing in the middle. A collective whose ranks wait for each other ends at
//! one moment on all of them, so that the ends of a rank say which of its collectives is which, whatever its clock says. What some rank
//! does not have is not a collective of all then: it becomes a part ([`timing::parts`]), which shows what the other ranks did.

use std::collections::BTreeMap;

use wire::event::{BucketRecord, Function};
use wire::ids::{Bucket, Comm, Seq, Step};

use super::clocks::{APART_NANOS, Clock, Proof};

/// How far apart the ends of one collective may lie on two ranks, in nanoseconds. Ends farther apart are of different collectives.
const APART: i64 = 8 * APART_NANOS as i64;
/// Ends agree if the clocks that they say differ by at most this many nanoseconds.
const AGREE: i64 = 4 * APART_NANOS as i64;
/// How many times as many ends must agree for ranks with equally many collectives to be matched otherwise.
const CLEARLY: usize = 2;
/// The least number of ends that agree for them to say which collectives are the same, if clocks are not known otherwise.
const COMMON: usize = 3;
/// The largest number of ways in which the collectives of two ranks in a step are laid side by side.
const MOST_LAGS: usize = 4_096;

/// What is taken from the number of a collective that becomes a part, so that no other part has it. A step has fewer of them.
const AWAY: u64 = 1 << 19;

/// The collectives of one function in one group that a step launched.
type Key = (Step, Comm, Function);

/// What becomes of a collective of a rank: the place that it has on all ranks, or a part.
pub(super) type Places = BTreeMap<(Comm, Seq), Option<(Seq, Bucket)>>;

/// Finds out which collectives are the same. Changes the numbers of `ranks` accordingly, and returns what changes for each of them. `clocks`
/// are the clocks of ranks as far as they are known.
pub(super) fn matched(ranks: &mut [Vec<Proof>], clocks: &[Option<Clock>]) -> Vec<Places> {
    let mut changes = vec![Places::new(); ranks.len()];
    for places_by_rank in grouped(ranks).into_values() {
        let Some(matched) =
            Matching::new(ranks, &places_by_rank, clocks).and_then(|matching| matching.find())
        else {
            continue;
        };
        for (rank, places) in matched {
            changes[rank].extend(places);
        }
    }
    for (proofs, places) in ranks.iter_mut().zip(&changes) {
        apply(proofs, places);
    }
    changes
}

/// Returns the clocks by the collectives of steps that all their ranks have equally many of.
pub(super) fn alike(ranks: &[Vec<Proof>]) -> Vec<Vec<Proof>> {
    let mut alike = vec![Vec::new(); ranks.len()];
    for places_by_rank in grouped(ranks).into_values() {
        let mut counts = places_by_rank.values().map(Vec::len);
        let first = counts.next();
        if counts.all(|count| Some(count) == first) {
            for (rank, places) in places_by_rank {
                alike[rank].extend(places.into_iter().map(|at| ranks[rank][at]));
            }
        }
    }
    alike
}

fn apply(proofs: &mut Vec<Proof>, places: &Places) {
    if places.is_empty() {
        return;
    }
    proofs.retain_mut(|proof| match places.get(&(proof.comm, proof.seq)) {
        Some(Some((seq, bucket))) => {
            (proof.seq, proof.bucket) = (*seq, *bucket);
            true
        }
        Some(None) => false,
        None => true,
    });
}

/// Returns the collectives by step, group and function, and by rank, as indices in order of their numbers.
fn grouped(ranks: &[Vec<Proof>]) -> BTreeMap<Key, BTreeMap<usize, Vec<usize>>> {
    let mut groups: BTreeMap<Key, BTreeMap<usize, Vec<usize>>> = BTreeMap::new();
    for (rank, proofs) in ranks.iter().enumerate() {
        for (at, proof) in proofs.iter().enumerate() {
            let key = (proof.step, proof.comm, Function::from_seq(proof.seq));
            groups.entry(key).or_default().entry(rank).or_default().push(at);
        }
    }
    groups.retain(|_, places_by_rank| places_by_rank.len() > 1);
    groups
}

/// The collectives of a key on one rank, in order of their numbers.
struct RankProofs<'a> {
    rank: usize,
    proofs: Vec<&'a Proof>,
}

/// The collectives of a key over its ranks.
struct Matching<'a> {
    /// Of each rank.
    collectives: Vec<RankProofs<'a>>,
    /// The rank with the most collectives, as an index of them.
    reference: usize,
    clocks: &'a [Option<Clock>],
}

impl<'a> Matching<'a> {
    fn new(
        ranks: &'a [Vec<Proof>],
        places_by_rank: &BTreeMap<usize, Vec<usize>>,
        clocks: &'a [Option<Clock>],
    ) -> Option<Self> {
        let proofs = |(&rank, places): (&usize, &Vec<usize>)| {
            let mut proofs: Vec<&Proof> = places.iter().map(|&at| &ranks[rank][at]).collect();
            proofs.sort_unstable_by_key(|proof| proof.seq);
            RankProofs { rank, proofs }
        };
        let collectives: Vec<_> = places_by_rank.iter().map(proofs).collect();
        let reference =
            (0..collectives.len()).max_by_key(|&at| (collectives[at].proofs.len(), std::cmp::Reverse(at)))?;
        Some(Self { collectives, reference, clocks })
    }

    /// Returns what changes for each rank; `None` if nothing does, or if the ends do not say which collectives are the same.
    fn find(&self) -> Option<Vec<(usize, Places)>> {
        let reference = &self.collectives[self.reference].proofs;
        let counterparts: Vec<Vec<Option<usize>>> = self
            .collectives
            .iter()
            .map(|own| self.counterparts(own.rank, &own.proofs))
            .collect::<Option<_>>()?;
        let is_as_counted = |(own, counterparts): (&Vec<&Proof>, &Vec<Option<usize>>)| {
            own.len() == reference.len()
                && counterparts.iter().enumerate().all(|(at, counterpart)| *counterpart == Some(at))
        };
        if self.collectives.iter().map(|own| &own.proofs).zip(&counterparts).all(is_as_counted) {
            return None;
        }
        let mut members = vec![0_usize; reference.len()];
        counterparts.iter().flatten().flatten().for_each(|&at| members[at] += 1);
        let place = |at: &Option<usize>| {
            let at = (*at).filter(|&at| members[at] == self.collectives.len())?;
            Some((reference[at].seq, reference[at].bucket))
        };
        let places = |(own, counterparts): (&RankProofs<'_>, &Vec<Option<usize>>)| {
            let key = |proof: &Proof| (proof.comm, proof.seq);
            let changes = own.proofs.iter().zip(counterparts).map(|(proof, at)| (key(proof), place(at)));
            (own.rank, changes.collect())
        };
        Some(self.collectives.iter().zip(&counterparts).map(places).collect())
    }

    /// Returns which collective of the reference each one of a rank is; `None` for one that the reference does not have. `None` as a
    /// whole if the ends do not say it.
    fn counterparts(&self, rank: usize, own: &[&Proof]) -> Option<Vec<Option<usize>>> {
        let reference = &self.collectives[self.reference].proofs;
        let counted = || (0..own.len()).map(Some).collect();
        let known = self.ahead(rank);
        let has_all = own.len() == reference.len();
        if !has_all {
            return Some(nearest(reference, own, Lag::best(reference, own, known)?.ahead));
        }
        let default = Lag::new(reference, own, 0, known).map_or(0, |lag| lag.agreeing);
        if 2 * default >= own.len() {
            return Some(counted());
        }
        let best = Lag::best(reference, own, known).filter(|best| best.agreeing > CLEARLY * default);
        Some(best.map_or_else(counted, |best| nearest(reference, own, best.ahead)))
    }

    /// Returns by how much the clock of the reference is ahead of that of a rank, if both are known.
    fn ahead(&self, rank: usize) -> Option<i64> {
        let offset = |rank: usize| Some(self.clocks.get(rank).copied().flatten()?.offset);
        Some(offset(rank)?.saturating_sub(offset(self.collectives[self.reference].rank)?))
    }
}

/// The collectives of a rank beside those of the reference, from some place on.
#[derive(Clone, Copy)]
struct Lag {
    /// By how much the clock of the reference is ahead, as most ends say.
    ahead: i64,
    /// The number of ends that agree with it.
    agreeing: usize,
    /// How well they agree: the nanoseconds that each has left to [`AGREE`]. Collectives that follow each other about equally often agree
    /// at several lags, and best at the right one.
    score: i64,
}

impl Lag {
    /// Returns the lag at which ends agree best, and of several, the one that counts from the end. `None` if too few ends agree to say
    /// which collectives are the same.
    fn best(reference: &[&Proof], own: &[&Proof], known: Option<i64>) -> Option<Self> {
        let first = -(own.len() as i64);
        let lags = (first..reference.len() as i64).take(MOST_LAGS);
        let best =
            lags.filter_map(|lag| Self::new(reference, own, lag, known)).max_by_key(|lag| lag.score)?;
        let fewest = if known.is_some() { 1 } else { COMMON };
        (best.agreeing >= fewest.max(own.len().min(reference.len()) / 3)).then_some(best)
    }

    /// Lays the first collective of a rank beside the one at `lag` of the reference. `known` is by how much the clock of the reference is
    /// ahead, if that is known. `None` if none lie beside each other.
    fn new(reference: &[&Proof], own: &[&Proof], lag: i64, known: Option<i64>) -> Option<Self> {
        let lead = |(at, own): (usize, &&Proof)| {
            let at = usize::try_from(at as i64 + lag).ok()?;
            Some(reference.get(at)?.end - own.end)
        };
        let mut all: Vec<i64> = own.iter().enumerate().filter_map(lead).collect();
        all.sort_unstable();
        let ahead = known.or_else(|| densest(&all))?;
        let left = all
            .iter()
            .map(|value| AGREE - value.saturating_sub(ahead).saturating_abs())
            .filter(|left| *left >= 0);
        Some(Self { ahead, agreeing: left.clone().count(), score: left.sum() })
    }
}

/// Returns the middle of the values that lie closest together. `values` are in ascending order.
fn densest(values: &[i64]) -> Option<i64> {
    let agreeing =
        |from: usize| values[from..].partition_point(|value| value.saturating_sub(values[from]) <= AGREE);
    let (count, from) =
        (0..values.len()).map(|from| (agreeing(from), from)).max_by_key(|&(count, _)| count)?;
    Some(values[from + count / 2])
}

/// Returns for each collective of a rank the one of the reference that ends next to it, each at most once.
fn nearest(reference: &[&Proof], own: &[&Proof], ahead: i64) -> Vec<Option<usize>> {
    let mut next = 0;
    let find = |own: &&Proof| {
        let end = own.end + ahead;
        let distance = |at: usize| (reference[at].end - end).saturating_abs();
        let next_later = next + reference[next..].partition_point(|record| record.end < end);
        let neighbors =
            [next_later.checked_sub(1).filter(|&at| at >= next), Some(next_later)].into_iter().flatten();
        let at = neighbors
            .filter(|&at| at < reference.len())
            .min_by_key(|&at| distance(at))
            .filter(|&at| distance(at) <= APART)?;
        next = at + 1;
        Some(at)
    };
    own.iter().map(find).collect()
}

/// Gives a record the place that it has on all ranks. `parts` is the communicator of the parts of its rank.
pub(super) fn replace(record: &mut BucketRecord, places: &Places, parts: Comm) {
    match places.get(&(record.comm, record.seq)) {
        Some(Some((seq, bucket))) => (record.seq, record.bucket) = (*seq, *bucket),
        Some(None) => {
            let count = Function::count_from_seq(record.seq).saturating_sub(AWAY);
            record.seq = Function::from_seq(record.seq).numbered(count);
            (record.comm, record.bytes) = (parts, 0);
        }
        None => {}
    }
}

#[cfg(test)]
mod tests;
