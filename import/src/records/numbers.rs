//! The communicator and the number of each collective, which join the records of all ranks.
//!
//! Traces rarely number collectives, and some miss the first kernels of a step. Collectives of one function in one group
//! therefore count from the end of their step.

use std::collections::BTreeMap;

use wire::event::Function;
use wire::ids::{Comm, Seq, Step};

use super::function;
use crate::kineto::{Trace, Work};

/// The largest number of collectives of one function and group in a step.
const MOST_PER_STEP: u64 = 1 << 20;

/// Numbers the collectives of a rank.
pub(super) struct Numbers<'a> {
    trace: &'a Trace,
    /// The communicator of each group of the trace.
    comms: Vec<Comm>,
}

impl<'a> Numbers<'a> {
    /// Prepares to number the collectives of a trace of a job with `world_size` ranks.
    pub(super) fn new(trace: &'a Trace, world_size: u32) -> Self {
        let comms = trace.groups.iter().map(|group| group.comm(world_size)).collect();
        Self { trace, comms }
    }

    /// Returns the communicator and the number of each collective of a step, in order of time.
    pub(super) fn collectives(&self, step: Step, collectives: &[&Work]) -> Vec<(Comm, Seq)> {
        let keys: Vec<(Comm, Function)> = collectives.iter().map(|work| self.key(work)).collect();
        let mut left: BTreeMap<(Comm, Function), u64> = BTreeMap::new();
        keys.iter().for_each(|key| *left.entry(*key).or_default() += 1);
        let numbered = |key: &(Comm, Function)| {
            let left = left.entry(*key).or_default();
            let count = (step.0 + 1).saturating_mul(MOST_PER_STEP).saturating_sub((*left).min(MOST_PER_STEP));
            *left -= 1;
            (key.0, key.1.numbered(count))
        };
        keys.iter().map(numbered).collect()
    }

    /// Returns sequence numbers for parts of collectives that belong to other steps, in order of time. No other rank has these numbers, so
    /// the parts are never joined.
    pub(super) fn parts(&self, step: Step, parts: &[&Work]) -> Vec<Seq> {
        let end = (step.0 + 1).saturating_mul(MOST_PER_STEP);
        let count = |at: usize| end.saturating_sub((parts.len() - at) as u64);
        parts.iter().enumerate().map(|(at, work)| function(self.trace, work).numbered(count(at))).collect()
    }

    fn key(&self, work: &Work) -> (Comm, Function) {
        let group = work.carried.and_then(|at| self.trace.carried[at as usize].group);
        // Older traces do not say the group. All ranks are in it more often than not.
        let comm = group.map_or(Comm(0), |group| self.comms[group as usize]);
        (comm, function(self.trace, work))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::Group;
    use crate::kineto::{Carried, Kind};

    fn work(carried: u32) -> Work {
        let kind = Kind::Collective(Function::AllReduce);
        Work { kind, begin: 0, end: 1, stream: 7, correlation: 1, name: 0, carried: Some(carried) }
    }

    fn numbered(groups: &[(&str, Option<Vec<u32>>, u32)], collectives: &[u32]) -> Vec<(Comm, Seq)> {
        let group = |(name, ranks, size): &(&str, Option<Vec<u32>>, u32)| Group {
            name: (*name).into(),
            ranks: ranks.clone(),
            size: Some(*size),
        };
        let carried = |at: u32| Carried { group: Some(at), ..Carried::default() };
        let trace = Trace {
            groups: groups.iter().map(group).collect(),
            carried: (0..groups.len() as u32).map(carried).collect(),
            ..Trace::default()
        };
        let all: Vec<Work> = collectives.iter().map(|&at| work(at)).collect();
        Numbers::new(&trace, 4).collectives(Step(5), &all.iter().collect::<Vec<_>>())
    }

    #[test]
    fn a_rank_that_misses_the_first_collectives_numbers_the_others_alike() {
        let world = ("0", Some(vec![0, 1, 2, 3]), 4);
        let whole = numbered(std::slice::from_ref(&world), &[0, 0, 0]);
        let cut = numbered(&[world], &[0, 0]);
        assert_eq!(whole[1..], cut[..]);
        assert_eq!(whole[0].0, Comm(0));
        assert!(whole[0].1 < whole[1].1);
    }

    #[test]
    fn groups_of_one_name_and_other_ranks_are_told_apart() {
        let both = numbered(&[("1", Some(vec![0, 1]), 2), ("1", Some(vec![2, 3]), 2)], &[0, 1]);
        assert_ne!(both[0].0, both[1].0);
        assert!(both.iter().all(|(comm, _)| *comm != Comm(0)));
    }
}
