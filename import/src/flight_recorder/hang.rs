//! Which ranks of a hang are behind, and in which collective: in sentences.
//!
//! Collectives of a group are numbered alike on all of its ranks. A rank that did not issue a number is behind the others; a
//! rank that issued something else under a number, or other sizes or types, will not end it. Both need no clock.

use std::collections::{BTreeMap, BTreeSet};

use super::dump::{Dump, Entry, State, is_world};
use crate::group::Group;
use crate::listed::ranks as listed;

/// The largest number of groups that have a sentence of each kind.
const GROUPS: usize = 8;
/// The number of collectives from which it is worth a sentence which rank issued most of them last.
const FEWEST: usize = 3;

/// A group over its ranks.
struct Joined<'a> {
    group: &'a Group,
    /// The ranks of the group, if they are known.
    members: Option<BTreeSet<u32>>,
    /// The collectives of each rank that has some, by number.
    entries: BTreeMap<u32, BTreeMap<u64, &'a Entry>>,
    /// The number of the last collective that each other rank says it issued, though its dump does not hold it.
    counted: BTreeMap<u32, u64>,
}

/// What the dumps of a job say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// All of it, the most important first.
    pub sentences: Vec<String>,
    /// The hang; `None` if none is visible.
    pub hang: Option<Hang>,
}

/// A hang that dumps show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hang {
    /// The ranks that the others wait for, as far as dumps say it.
    pub ranks: Vec<u32>,
    /// What is known of it.
    pub sentence: String,
}

/// Returns what the dumps of a job's ranks say about a hang: one group after another, the most important first.
#[must_use]
pub fn findings(dumps: &[(u32, &Dump)], world_size: u32) -> Findings {
    let have: BTreeSet<u32> = dumps.iter().map(|&(rank, _)| rank).collect();
    let joined = join(dumps, world_size);
    let each_group = |kind: fn(&Joined<'_>, &BTreeSet<u32>) -> Option<String>| {
        let mut sentences: Vec<String> = joined.values().filter_map(|group| kind(group, &have)).collect();
        let more = sentences.len().saturating_sub(GROUPS);
        sentences.truncate(GROUPS);
        sentences.extend((more > 0).then(|| format!("the same holds in {more} more groups")));
        sentences
    };
    let mut sentences = each_group(|group, have| group.differs(have));
    sentences.extend(each_group(|group, have| Some(group.lagging(have)?.sentence)));
    sentences.extend(each_group(|group, have| group.waiting(have)));
    let hang = sentences.first().map(|first| hang(dumps, &joined, &have, first));
    let holds_any = !joined.is_empty();
    if hang.is_none() && holds_any {
        let what = if have.len() as u32 == world_size { "all ranks" } else { "all ranks that have a dump" };
        sentences.push(format!(
            "no hang is visible: in each group, {what} issued the same collectives, and none is open on some ranks only"
        ));
    }
    sentences.extend(
        (!holds_any).then(|| "no dump holds a collective: whether the job hung does not show".to_owned()),
    );
    let absent: Vec<u32> = (0..world_size).filter(|rank| !have.contains(rank)).collect();
    if !absent.is_empty() {
        sentences.push(format!(
            "nothing says what {} did: there is no dump of {}",
            listed(&absent),
            if absent.len() == 1 { "it" } else { "them" }
        ));
    }
    let largest = joined
        .values()
        .max_by_key(|group| (group.entries.len(), group.entries.values().map(BTreeMap::len).sum::<usize>()));
    sentences.extend(largest.and_then(|group| group.issues_last(&have)));
    Findings { sentences, hang }
}

/// Returns the hang. Ranks that are behind in a group while they are in a collective of another group wait themselves: others are to be
/// looked at, if there are any. `first` is what is most important.
fn hang(
    dumps: &[(u32, &Dump)],
    joined: &BTreeMap<&Group, Joined<'_>>,
    have: &BTreeSet<u32>,
    first: &str,
) -> Hang {
    let lagging: Vec<LaggingRanks> = joined.values().filter_map(|group| group.lagging(have)).collect();
    let all: BTreeSet<u32> = lagging.iter().flat_map(|lagging| lagging.ranks.iter().copied()).collect();
    let waits = |rank: &u32| {
        let is_its = |(holder, _): &&(u32, &Dump)| holder == rank;
        let is_open = |entry: &Entry| entry.state != State::Ended;
        dumps.iter().find(is_its).is_some_and(|(_, dump)| dump.entries.iter().any(is_open))
    };
    let free: BTreeSet<u32> = all.iter().copied().filter(|rank| !waits(rank)).collect();
    let ranks = if free.is_empty() { all } else { free };
    let named = |lagging: &&LaggingRanks| lagging.ranks.iter().filter(|rank| ranks.contains(rank)).count();
    // Of several groups that name equally many, the first one.
    let most = lagging.iter().rev().max_by_key(named).filter(|lagging| named(lagging) > 0);
    let mut sentence = most.map_or_else(|| first.to_owned(), |lagging| lagging.sentence.clone());
    let others: Vec<u32> =
        ranks.iter().copied().filter(|rank| most.is_some_and(|most| !most.ranks.contains(rank))).collect();
    if !others.is_empty() {
        let is = if others.len() == 1 { "is" } else { "are" };
        sentence += &format!("; in other groups, {} {is} behind as well", listed(&others));
    }
    Hang { ranks: ranks.into_iter().collect(), sentence: capitalized(&sentence) }
}

/// Returns a remark as a sentence of its own.
fn capitalized(remark: &str) -> String {
    let mut letters = remark.chars();
    letters.next().map_or_else(String::new, |first| format!("{}{}.", first.to_uppercase(), letters.as_str()))
}

fn join<'a>(dumps: &[(u32, &'a Dump)], world_size: u32) -> BTreeMap<&'a Group, Joined<'a>> {
    let mut joined: BTreeMap<&Group, Joined<'_>> = BTreeMap::new();
    let mut with_messages: BTreeSet<&Group> = BTreeSet::new();
    for &(rank, dump) in dumps {
        for entry in &dump.entries {
            let group = &dump.groups[entry.group as usize];
            if entry.is_message {
                with_messages.insert(group);
                continue;
            }
            let members = || match &group.ranks {
                Some(ranks) => Some(ranks.iter().copied().collect()),
                None => is_world(group).then(|| (0..world_size).collect()),
            };
            let joined = joined.entry(group).or_insert_with(|| Joined {
                group,
                members: members(),
                entries: BTreeMap::new(),
                counted: BTreeMap::new(),
            });
            joined.entries.entry(rank).or_default().insert(entry.number, entry);
        }
    }
    for &(rank, dump) in dumps {
        for counted in &dump.counted {
            let group = &dump.groups[counted.group as usize];
            // Messages count as well, on the ranks that send or get them.
            let joined = joined.get_mut(group).filter(|_| !with_messages.contains(group));
            if let Some(joined) = joined.filter(|joined| !joined.entries.contains_key(&rank)) {
                joined.counted.insert(rank, counted.issued);
            }
        }
    }
    joined
}

/// The ranks that did not issue what others of their group did.
struct LaggingRanks {
    ranks: Vec<u32>,
    sentence: String,
}

impl Joined<'_> {
    /// Returns the ranks that have a dump and belong to the group, as far as that is known.
    fn present(&self, have: &BTreeSet<u32>) -> Vec<u32> {
        match &self.members {
            Some(members) => members.intersection(have).copied().collect(),
            None => self
                .entries
                .keys()
                .chain(self.counted.keys())
                .copied()
                .collect::<BTreeSet<u32>>()
                .into_iter()
                .collect(),
        }
    }

    /// Returns the number of the last collective that a rank issued; 0 if it issued none that is known.
    fn issued(&self, rank: u32) -> u64 {
        let held = self.last(rank).map(|(number, _)| number);
        held.or_else(|| self.counted.get(&rank).copied()).unwrap_or(0)
    }

    fn last(&self, rank: u32) -> Option<(u64, &Entry)> {
        self.entries.get(&rank)?.last_key_value().map(|(&number, &entry)| (number, entry))
    }

    /// Says in which collective ranks called something else. The recorder keeps only the newest ones, so the first one that
    /// is kept may not be the first that differs.
    fn differs(&self, have: &BTreeSet<u32>) -> Option<String> {
        let present = self.present(have);
        let numbers: BTreeSet<u64> =
            self.entries.values().flat_map(|entries| entries.keys().copied()).collect();
        numbers.into_iter().find_map(|number| {
            let called =
                present.iter().filter_map(|&rank| Some((rank, *self.entries.get(&rank)?.get(&number)?)));
            let mut by_call: BTreeMap<String, Vec<u32>> = BTreeMap::new();
            called.clone().for_each(|(rank, entry)| by_call.entry(call(entry)).or_default().push(rank));
            (by_call.len() > 1).then(|| {
                let mut calls: Vec<_> = by_call.into_iter().collect();
                calls.sort_by_key(|(_, ranks)| (std::cmp::Reverse(ranks.len()), ranks.first().copied()));
                let parts: Vec<String> =
                    calls.iter().map(|(call, ranks)| format!("{call} on {}", listed(ranks))).collect();
                format!(
                    "in group {}, collective {number} differs among ranks: {}",
                    self.group.name,
                    parts.join("; ")
                )
            })
        })
    }

    /// Says which ranks did not issue what others did.
    fn lagging(&self, have: &BTreeSet<u32>) -> Option<LaggingRanks> {
        let present = self.present(have);
        let issued = |rank: &u32| self.issued(*rank);
        let furthest = present.iter().map(issued).max()?;
        let (ahead, lagging): (Vec<u32>, Vec<u32>) =
            present.iter().partition(|rank| issued(rank) == furthest);
        if lagging.is_empty() {
            return None;
        }
        let (_, entry) = ahead.iter().find_map(|&rank| self.last(rank))?;
        let mut by_last: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        lagging.iter().for_each(|rank| by_last.entry(issued(rank)).or_default().push(*rank));
        let parts = by_last.iter().map(|(last, ranks)| {
            let (whom, has) = (listed(ranks), if ranks.len() == 1 { "has" } else { "have" });
            match last {
                0 => format!("{whom} {has} issued none of its collectives that is kept"),
                _ => format!("{whom} {has} issued {last} and none after it"),
            }
        });
        let parts: Vec<String> = parts.collect();
        let wait = if entry.state == State::Ended { "" } else { ", and it has not ended" };
        let (whom, has) = (listed(&ahead), if ahead.len() == 1 { "has" } else { "have" });
        let group = &self.group.name;
        let name = &entry.name;
        let sentence = format!(
            "in group {group}, {whom} {has} issued collective {furthest} ({name}){wait}; {} behind: {}",
            if lagging.len() == 1 { "one rank is" } else { "some ranks are" },
            parts.join("; ")
        );
        Some(LaggingRanks { ranks: lagging, sentence })
    }

    /// Says which ranks have begun, and which have not begun, a collective that all have issued.
    fn waiting(&self, have: &BTreeSet<u32>) -> Option<String> {
        let present = self.present(have);
        let numbers: BTreeSet<u64> =
            self.entries.values().flat_map(|entries| entries.keys().copied()).collect();
        numbers.into_iter().find_map(|number| {
            let entries: Option<Vec<(u32, &Entry)>> =
                present.iter().map(|&rank| Some((rank, *self.entries.get(&rank)?.get(&number)?))).collect();
            let entries = entries?;
            let in_state = |state: State| -> Vec<u32> {
                entries.iter().filter(|(_, entry)| entry.state == state).map(|&(rank, _)| rank).collect()
            };
            let (issued, started, ended) =
                (in_state(State::Issued), in_state(State::Started), in_state(State::Ended));
            if ended.len() == entries.len() || entries.len() < 2 {
                return None;
            }
            let name = &entries[0].1.name;
            let parts: Vec<String> =
                [("ended", &ended), ("started and not ended", &started), ("issued and not started", &issued)]
                    .into_iter()
                    .filter(|(_, ranks)| !ranks.is_empty())
                    .map(|(what, ranks)| format!("{what} on {}", listed(ranks)))
                    .collect();
            Some(format!(
                "in group {}, collective {number} ({name}) is the first that is open: {}",
                self.group.name,
                parts.join("; ")
            ))
        })
    }

    /// Says which rank issues collectives last, and by how much, by the clocks of the hosts. Nothing is said of few collectives, nor if the
    /// dump of a rank holds none of them: which rank was last is not known then.
    fn issues_last(&self, have: &BTreeSet<u32>) -> Option<String> {
        if self.present(have).iter().any(|rank| !self.entries.contains_key(rank)) {
            return None;
        }
        let (first, others) =
            self.entries.values().collect::<Vec<_>>().split_first().map(|(a, b)| (*a, b.to_vec()))?;
        if others.is_empty() {
            return None;
        }
        let mut last: BTreeMap<u32, Vec<i64>> = BTreeMap::new();
        let mut all = 0_usize;
        for number in first.keys().filter(|number| others.iter().all(|entries| entries.contains_key(number)))
        {
            let mut at: Vec<(i64, u32)> =
                self.entries.iter().map(|(&rank, entries)| (entries[number].created, rank)).collect();
            at.sort_unstable();
            let ((late, rank), (before, _)) = (at[at.len() - 1], at[at.len() - 2]);
            last.entry(rank).or_default().push(late.saturating_sub(before));
            all += 1;
        }
        let (rank, mut delays) = last.into_iter().max_by_key(|(_, delays)| delays.len())?;
        if all < FEWEST || 2 * delays.len() <= all {
            return None;
        }
        delays.sort_unstable();
        let median = delays[delays.len() / 2] as f64 / 1e6;
        (median > 0.0).then(|| format!(
            "in group {}, rank {rank} issued {} of {all} collectives last, {median:.3} ms after the rank before it in the median, by the clocks \
             of the hosts, which may differ",
            self.group.name,
            delays.len(),
        ))
    }
}

/// Returns a text that is the same on all ranks whose calls fit together.
fn call(entry: &Entry) -> String {
    let types = if entry.types.is_empty() { String::new() } else { format!(" {}", entry.types) };
    let elements = match &*entry.name {
        // The parts of ranks may differ, and what only one rank passes or gets.
        "all_to_all"
        | "alltoall_base"
        | "all_to_all_single"
        | "all_to_all_v_single"
        | "all_gather_v"
        | "reduce_scatter_v"
        | "gather"
        | "scatter"
        | "barrier"
        | "all_reduce_barrier" => return entry.name.clone(),
        name if name.contains("reduce_scatter") => entry.elements.1,
        _ => entry.elements.0,
    };
    let plural = if elements == 1 { "" } else { "s" };
    format!("{} of {elements}{types} element{plural}", entry.name)
}
