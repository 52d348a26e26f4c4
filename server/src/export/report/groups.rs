//! The table of groups: the cost of collectives in jobs with several kinds of parallelism.

use wire::event::Function;
use wire::views::{CollectiveCost, Group, GroupStats, OneGroup, Report};

use super::tables::{head, section};
use super::{Cell, Section, Table};
use units::{bytes, nanos, percent};

/// The largest number of ranks of a group that are named one by one.
const MAX_NAMED: u32 = 8;

/// Returns the table of groups: a row per shape, followed by a row per group of that shape. Returns `None` if all
/// collectives are among all ranks.
pub(super) fn groups(report: &Report) -> Option<Section> {
    if report.groups.iter().all(|stats| stats.group.ranks == report.ranks) {
        return None;
    }
    let rows = report.groups.iter().flat_map(|stats| rows(stats, report.ranks)).collect();
    let left_out = report.groups.iter().map(|stats| stats.count as usize - stats.worst.len()).sum();
    let names = ["group", "functions", "collectives", "size", "time", "exposed", "wait", "latest rank"];
    let about = "Means per rank and step, over all groups of a shape and then per group, longest wait first.";
    let table = Table { head: head(&names), rows, left_out, ..Table::default() };
    section("Groups", vec![about.to_owned()], false, table)
}

fn rows(stats: &GroupStats, world: u32) -> Vec<Vec<Cell>> {
    let functions: Vec<&str> = stats.functions.iter().map(|function| Function::name(*function)).collect();
    let shape = stats.group.name(world);
    let of_all = |name: String, latest: String| row(name, functions.join(", "), &stats.cost, latest);
    if let [only] = &stats.worst[..] {
        let name =
            if stats.group.ranks == world { shape } else { format!("{shape}: {}", ranks(stats.group, only)) };
        return vec![of_all(name, latest(only))];
    }
    let mut rows = vec![of_all(format!("{shape}, {} groups", stats.count), String::new())];
    rows.extend(
        stats.worst.iter().map(|one| row(ranks(stats.group, one), String::new(), &one.cost, latest(one))),
    );
    rows
}

fn row(name: String, functions: String, cost: &CollectiveCost, latest: String) -> Vec<Cell> {
    vec![
        name.into(),
        functions.into(),
        format!("{:.1}", cost.collectives).into(),
        bytes(cost.bytes.round() as u64).into(),
        nanos(cost.comm_nanos).into(),
        nanos(cost.exposed_nanos).into(),
        nanos(cost.wait_nanos).into(),
        latest.into(),
    ]
}

/// Returns the ranks of a group as text, as far as its shape determines them.
fn ranks(group: Group, one: &OneGroup) -> String {
    let Group { ranks, stride } = group;
    let at = |position: u32| one.first.0 + position * stride;
    match (ranks, stride) {
        (1, _) => format!("rank {}", one.first),
        (_, 0) => format!("{ranks} ranks from {} on", one.first),
        (_, 1) => format!("ranks {} to {}", one.first, at(ranks - 1)),
        (..=MAX_NAMED, _) => {
            let named: Vec<String> = (0..ranks).map(|position| at(position).to_string()).collect();
            format!("ranks {}", named.join(", "))
        }
        _ => format!("ranks {}, {}, … {}", one.first, at(1), at(ranks - 1)),
    }
}

/// Returns the rank that the others wait for most, with its share of all waiting.
fn latest(one: &OneGroup) -> String {
    one.latest.map_or_else(String::new, |(rank, share)| format!("rank {rank} ({})", percent(share)))
}
