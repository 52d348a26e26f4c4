//! The cost of collectives by group of ranks.
//!
//! Where data, tensor, pipeline and expert parallelism share a job, each has groups of its own shape, and a slow rank
//! delays its own groups first.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use wire::event::Function;
use wire::ids::{Comm, Rank, Step};
use wire::views::{CollectiveCost, Group, GroupStats, OneGroup};

use crate::overlap;
use crate::step::{CollectiveAnalysis, StepAnalysis};

/// A group: its shape, its lowest rank and, if its ranks are unevenly spaced, its communicator.
type Key = (Reverse<Group>, usize, Option<Comm>);

fn key(collective: &CollectiveAnalysis) -> Key {
    let CollectiveAnalysis { group, first, comm, .. } = *collective;
    (Reverse(group), first, (group.stride == 0).then_some(comm))
}

/// Sums over the collectives of some groups and over ranks; times in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    /// The number of (rank, step) pairs in which the rank takes part in a collective of the group.
    rank_steps: u64,
    collectives: u64,
    bytes: u64,
    comm: u64,
    hidden: u64,
    unclear: u64,
    wait: f64,
}

impl Sum {
    fn add(&mut self, collective: &CollectiveAnalysis) {
        let ranks = u64::from(collective.group.ranks);
        self.collectives += ranks;
        self.bytes += collective.bytes * ranks;
        self.comm += collective.duration_nanos;
        self.hidden += collective.hidden_nanos;
        self.unclear += collective.unclear_nanos;
        self.wait += wait(collective);
    }

    fn plus(self, other: &Self) -> Self {
        Self {
            rank_steps: self.rank_steps + other.rank_steps,
            collectives: self.collectives + other.collectives,
            bytes: self.bytes + other.bytes,
            comm: self.comm + other.comm,
            hidden: self.hidden + other.hidden,
            unclear: self.unclear + other.unclear,
            wait: self.wait + other.wait,
        }
    }

    fn cost(&self) -> CollectiveCost {
        let mean = |sum: f64| sum / self.rank_steps as f64;
        let is_known = !overlap::is_assumed(self.unclear, self.comm);
        CollectiveCost {
            collectives: mean(self.collectives as f64),
            bytes: mean(self.bytes as f64),
            comm_nanos: mean(self.comm as f64),
            exposed_nanos: is_known.then(|| mean(self.comm.saturating_sub(self.hidden) as f64)),
            wait_nanos: mean(self.wait),
        }
    }
}

/// Returns the wait in a collective, summed over ranks, in nanoseconds.
fn wait(collective: &CollectiveAnalysis) -> f64 {
    let mean = collective.wait_nanos.unwrap_or(collective.wait_clock_free_nanos);
    mean * f64::from(collective.group.ranks)
}

#[derive(Default)]
struct OverSteps {
    sum: Sum,
    last_step: Option<Step>,
    /// By rank, the time that the other ranks waited for it, in nanoseconds.
    caused: BTreeMap<usize, f64>,
}

impl OverSteps {
    fn add(&mut self, step: Step, collective: &CollectiveAnalysis) {
        if self.last_step.replace(step) != Some(step) {
            self.sum.rank_steps += u64::from(collective.group.ranks);
        }
        self.sum.add(collective);
        if let Some(culprit) = collective.culprit {
            *self.caused.entry(culprit).or_default() += wait(collective);
        }
    }

    fn to_view(&self, first: usize) -> OneGroup {
        let latest = self.caused.iter().max_by(|a, b| a.1.total_cmp(b.1));
        let latest = latest.filter(|(_, caused)| **caused > 0.0);
        let latest = latest.map(|(rank, caused)| (Rank(*rank as u32), caused / self.sum.wait));
        OneGroup { first: Rank(first as u32), cost: self.sum.cost(), latest }
    }
}

/// Returns the cost of groups by shape. The largest groups, which reduce the gradients, come first. `function` returns
/// the function of a collective.
pub(crate) fn groups(
    steps: &[&StepAnalysis],
    function: impl Fn(&CollectiveAnalysis) -> Function,
) -> Vec<GroupStats> {
    let mut groups: BTreeMap<Key, OverSteps> = BTreeMap::new();
    let mut functions: BTreeMap<Group, Vec<Function>> = BTreeMap::new();
    for (step, collective) in
        steps.iter().flat_map(|step| step.collectives.iter().map(|collective| (step.step, collective)))
    {
        groups.entry(key(collective)).or_default().add(step, collective);
        let known = functions.entry(collective.group).or_default();
        let function = function(collective);
        if !known.contains(&function) {
            known.push(function);
        }
    }
    let stats = |(group, functions): (Group, Vec<Function>)| {
        let alike = groups.range((Reverse(group), 0, None)..).take_while(|(key, _)| key.0.0 == group);
        let alike: Vec<_> = alike.collect();
        let cost = alike.iter().fold(Sum::default(), |sum, (_, costs)| sum.plus(&costs.sum)).cost();
        let count = alike.len() as u32;
        let mut worst: Vec<OneGroup> =
            alike.into_iter().map(|((_, first, _), costs)| costs.to_view(*first)).collect();
        worst.sort_by(|a, b| b.cost.wait_nanos.total_cmp(&a.cost.wait_nanos));
        worst.truncate(GroupStats::MAX_WORST);
        GroupStats { group, functions, cost, count, worst }
    };
    functions.into_iter().rev().map(stats).collect()
}

#[cfg(test)]
mod tests {
    use wire::ids::Seq;

    use super::*;
    use crate::fixtures;

    /// A collective of 100 ns on each of its ranks, 40 of them hidden behind compute.
    fn collective(group: Group, first: usize, wait: f64, culprit: Option<usize>) -> CollectiveAnalysis {
        CollectiveAnalysis {
            group,
            first,
            comm: Comm(7),
            seq: Function::AllGather.numbered(0),
            bytes: 1_000,
            culprit,
            wait_nanos: Some(wait),
            transfer_nanos: Some(100.0 - wait),
            transfer_clock_free_nanos: 100.0,
            hidden_nanos: 40 * u64::from(group.ranks),
            duration_nanos: 100 * u64::from(group.ranks),
            ..fixtures::collective()
        }
    }

    fn step(number: u64, collectives: Vec<CollectiveAnalysis>) -> StepAnalysis {
        StepAnalysis { collectives, ..fixtures::step(number) }
    }

    const TENSOR: Group = Group { ranks: 2, stride: 1 };
    const DATA: Group = Group { ranks: 2, stride: 2 };

    /// Four ranks: tensor parallel in pairs of neighbors, twice per step, and data parallel across the pairs. Rank 3 is
    /// late, and its neighbor waits for it.
    fn mesh() -> Vec<StepAnalysis> {
        let collectives = || {
            vec![
                collective(TENSOR, 0, 0.0, Some(1)),
                collective(TENSOR, 0, 2.0, Some(0)),
                collective(TENSOR, 2, 30.0, Some(3)),
                collective(TENSOR, 2, 10.0, Some(2)),
                collective(DATA, 0, 1.0, None),
                collective(DATA, 1, 5.0, Some(3)),
            ]
        };
        (0..3).map(|number| step(number, collectives())).collect()
    }

    #[test]
    fn each_group_shape_has_its_own_costs_and_names_the_latest_rank() {
        let steps = mesh();
        let found =
            groups(&steps.iter().collect::<Vec<_>>(), |collective| Function::from_seq(collective.seq));
        let [data, tensor] = &found[..] else { panic!("two shapes: {found:?}") };
        assert_eq!((data.group, tensor.group), (DATA, TENSOR));
        assert_eq!((data.count, tensor.count), (2, 2));
        assert_eq!(tensor.functions, [Function::AllGather]);
        let cost = |collectives: f64, wait_nanos: f64| CollectiveCost {
            collectives,
            bytes: 1_000.0 * collectives,
            comm_nanos: 100.0 * collectives,
            exposed_nanos: Some(60.0 * collectives),
            wait_nanos,
        };
        assert_eq!((tensor.cost, data.cost), (cost(2.0, 21.0), cost(1.0, 3.0)));
        let late = OneGroup { first: Rank(2), cost: cost(2.0, 40.0), latest: Some((Rank(3), 0.75)) };
        let other = OneGroup { first: Rank(0), cost: cost(2.0, 2.0), latest: Some((Rank(0), 1.0)) };
        assert_eq!(tensor.worst, [late, other]);
        assert_eq!(data.worst[1].latest, None, "without aligned clocks no rank is named");
    }

    #[test]
    fn a_group_is_averaged_over_the_steps_in_which_it_works() {
        let mut steps = mesh();
        steps[1].collectives.clear();
        let found =
            groups(&steps.iter().collect::<Vec<_>>(), |collective| Function::from_seq(collective.seq));
        assert_eq!(found[1].cost.collectives, 2.0);
    }

    #[test]
    fn uneven_groups_are_distinguished_by_communicator_and_only_the_worst_are_listed() {
        let uneven = Group { ranks: 3, stride: 0 };
        let uneven_collective = |comm: u32| CollectiveAnalysis {
            comm: Comm(comm),
            seq: Seq(4),
            ..collective(uneven, 0, f64::from(comm), None)
        };
        let step = step(0, (0..20).map(uneven_collective).collect());
        let found = groups(&[&step], |_| Function::AllReduce);
        assert_eq!((found.len(), found[0].count), (1, 20));
        let waits: Vec<f64> = found[0].worst.iter().map(|group| group.cost.wait_nanos).collect();
        assert_eq!(waits, (4..20).rev().map(f64::from).collect::<Vec<_>>());
    }
}
