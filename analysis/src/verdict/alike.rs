//! Groups of ranks that run the same collectives and messages, such as the data-parallel ranks of a pipeline stage.

use std::collections::{BTreeMap, BTreeSet};

use wire::event::Function;
use wire::views::Group;

use crate::step::{CollectiveAnalysis, StepAnalysis};

/// A group with its lowest rank.
pub(super) type Placed = (Group, usize);

/// Returns the groups of some of the ranks whose ranks run the same collectives and messages.
pub(super) fn alike(step: &StepAnalysis) -> BTreeSet<Placed> {
    let mut run: BTreeMap<usize, BTreeMap<(Group, Function, bool), u32>> = BTreeMap::new();
    let mut groups = BTreeSet::new();
    for collective in step.collectives.iter().filter(|collective| is_known(collective)) {
        let function = Function::from_seq(collective.seq);
        let is_message = function == Function::SendReceive;
        for rank in members(collective.group, collective.first) {
            let with_earlier = is_message && rank > collective.first;
            *run.entry(rank).or_default().entry((collective.group, function, with_earlier)).or_default() += 1;
        }
        if !is_message && (collective.group.ranks as usize) < step.ranks.len() {
            groups.insert((collective.group, collective.first));
        }
    }
    let is_alike = |&(group, first): &Placed| {
        group.ranks >= 2 && members(group, first).all(|rank| run.get(&rank) == run.get(&first))
    };
    groups.retain(is_alike);
    groups
}

/// Returns true if the shape of the group says which ranks it has.
fn is_known(collective: &CollectiveAnalysis) -> bool {
    collective.group.stride > 0 || collective.group.ranks < 2
}

/// Returns the ranks of a group, in ascending order. The shape of the group must be known.
pub(super) fn members(group: Group, first: usize) -> impl Iterator<Item = usize> {
    (0..group.ranks as usize).map(move |at| first + at * group.stride as usize)
}
