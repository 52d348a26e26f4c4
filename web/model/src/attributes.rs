//! Labels and software versions: those of the list of runs, and those that differ between ranks.

use std::collections::BTreeMap;

use wire::views::{AttributeKind, AttributeRanks, RunSummary};

use crate::ranks::Difference;

/// Returns every label of the runs as `key=value` in alphabetical order, each with its number of runs.
#[must_use]
pub fn labels(runs: &[RunSummary]) -> Vec<(String, usize)> {
    let mut counts = BTreeMap::new();
    for label in runs.iter().flat_map(written) {
        *counts.entry(label).or_insert(0) += 1;
    }
    counts.into_iter().collect()
}

/// Returns the labels of a run, each as `key=value`.
pub fn written(run: &RunSummary) -> impl Iterator<Item = String> {
    run.labels.iter().map(|(name, value)| format!("{name}={value}"))
}

/// Returns the values that selected ranks have of labels and components that are not the same on all ranks, as shares
/// of the selected and of the other ranks that have named theirs.
#[must_use]
pub fn attributes_that_differ(attributes: &[AttributeRanks], selected: &[u32]) -> Vec<Difference> {
    attributes
        .chunk_by(|a, b| (a.kind, &a.name) == (b.kind, &b.name))
        .filter(|ranges| ranges.iter().any(|range| range.value != ranges[0].value))
        .flat_map(|ranges| values_that_differ(ranges, selected))
        .collect()
}

/// How many ranks have a value.
#[derive(Default)]
struct Counts {
    selected: usize,
    others: usize,
}

/// Does the same for the ranges of one attribute.
fn values_that_differ(ranges: &[AttributeRanks], selected: &[u32]) -> Vec<Difference> {
    let mut counts: BTreeMap<&str, Counts> = BTreeMap::new();
    for range in ranges {
        let (first, last) = range.ranks;
        let chosen = selected.iter().filter(|rank| (first..=last).contains(rank)).count();
        let count = counts.entry(range.value.as_str()).or_default();
        count.selected += chosen;
        count.others += (last - first + 1) as usize - chosen;
    }
    let chosen = counts.values().map(|count| count.selected).sum();
    let others = counts.values().map(|count| count.others).sum();
    let share = |count: usize, all: usize| count as f64 / all.max(1) as f64;
    let kind = match ranges[0].kind {
        AttributeKind::Label => "label ",
        AttributeKind::Software => "",
    };
    let held = counts.into_iter().filter(|(_, count)| count.selected > 0);
    held.map(|(value, count)| Difference {
        name: format!("{kind}{} {value}", ranges[0].name),
        selected: share(count.selected, chosen),
        others: share(count.others, others),
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::order::tests::run;
    use wire::views::RunState;

    fn range(kind: AttributeKind, name: &str, value: &str, ranks: (u32, u32)) -> AttributeRanks {
        AttributeRanks { kind, name: name.into(), value: value.into(), ranks }
    }

    #[test]
    fn labels_of_runs_are_counted() {
        let run_with = |labels: &[(&str, &str)]| RunSummary {
            labels: labels.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
            ..run("r", "r", RunState::Running)
        };
        let runs = [run_with(&[("team", "nlp"), ("exp", "7")]), run_with(&[("team", "nlp")]), run_with(&[])];
        assert_eq!(labels(&runs), [("exp=7".into(), 1), ("team=nlp".into(), 2)]);
    }

    #[test]
    fn a_version_of_one_rank_only_differs_and_one_that_all_share_does_not() {
        let software = AttributeKind::Software;
        let attributes = [
            range(AttributeKind::Label, "rack", "a", (0, 3)),
            range(AttributeKind::Label, "rack", "b", (4, 7)),
            range(software, "kernel", "6.1", (0, 7)),
            range(software, "nccl", "2.28.9", (0, 2)),
            range(software, "nccl", "2.27.3", (3, 3)),
            range(software, "nccl", "2.28.9", (4, 7)),
        ];
        let differ = |selected: &[u32]| {
            let found = attributes_that_differ(&attributes, selected).into_iter();
            found.map(|found| (found.name, found.selected, found.others)).collect::<Vec<_>>()
        };
        assert_eq!(
            differ(&[3]),
            [("label rack a".into(), 1.0, 3.0 / 7.0), ("nccl 2.27.3".into(), 1.0, 0.0),]
        );
        assert_eq!(differ(&[3, 4])[3].0, "nccl 2.28.9");
    }
}
