//! The cost of collectives by group, in words: a row per shape, followed by a row per group of that shape.

use wire::event::Function;
use wire::views::{CollectiveCost, Group, GroupStats, OneGroup};

/// The largest number of ranks of a group that are named one by one.
const MAX_NAMED: u32 = 8;

/// A row: a shape of groups, or one group.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupRow {
    /// The shape of the groups, or the ranks of the group.
    pub name: String,
    /// The functions, if the row is of a shape.
    pub functions: String,
    /// The mean cost per rank and step.
    pub cost: CollectiveCost,
    /// The rank that the others wait for most, with its share of all waiting; empty for a shape of several groups.
    pub latest: String,
}

/// Returns the rows of all groups in a job of `world` ranks; none if all collectives are among all ranks.
#[must_use]
pub fn rows(groups: &[GroupStats], world: u32) -> Vec<GroupRow> {
    if groups.iter().all(|stats| stats.group.ranks == world) {
        return Vec::new();
    }
    groups.iter().flat_map(|stats| shape_rows(stats, world)).collect()
}

/// Returns the number of groups without a row of their own.
#[must_use]
pub fn left_out(groups: &[GroupStats]) -> usize {
    groups.iter().map(|stats| stats.count as usize - stats.worst.len()).sum()
}

fn shape_rows(stats: &GroupStats, world: u32) -> Vec<GroupRow> {
    let functions: Vec<&str> = stats.functions.iter().map(|function| Function::name(*function)).collect();
    let shape = stats.group.name(world);
    let row = |name: String, functions: String, cost: CollectiveCost, latest: String| GroupRow {
        name,
        functions,
        cost,
        latest,
    };
    let whole_row = |name: String, latest: String| row(name, functions.join(", "), stats.cost, latest);
    if let [only] = &stats.worst[..] {
        let name =
            if stats.group.ranks == world { shape } else { format!("{shape}: {}", ranks(stats.group, only)) };
        return vec![whole_row(name, latest(only))];
    }
    let group_row =
        |single: &OneGroup| row(ranks(stats.group, single), String::new(), single.cost, latest(single));
    let mut rows =
        vec![whole_row(format!("{shape}, {} groups", units::count(stats.count.into())), String::new())];
    rows.extend(stats.worst.iter().map(group_row));
    rows
}

/// Returns the ranks of a group as text, as far as its shape determines them.
fn ranks(group: Group, single: &OneGroup) -> String {
    let Group { ranks, stride } = group;
    let at = |position: u32| single.first.0 + position * stride;
    match (ranks, stride) {
        (1, _) => format!("rank {}", single.first),
        (_, 0) => format!("{} ranks from {} on", units::count(ranks.into()), single.first),
        (_, 1) => format!("ranks {} to {}", single.first, at(ranks - 1)),
        (..=MAX_NAMED, _) => {
            let named: Vec<String> = (0..ranks).map(|position| at(position).to_string()).collect();
            format!("ranks {}", named.join(", "))
        }
        _ => format!("ranks {}, {}, … {}", single.first, at(1), at(ranks - 1)),
    }
}

/// Returns the rank that the others wait for most, with its share of all waiting.
fn latest(single: &OneGroup) -> String {
    single.latest.map_or_else(String::new, |(rank, share)| format!("rank {rank} ({})", units::percent(share)))
}
