//! Distinguishes faults of the same ranks: a rank may be delayed by one cause at one time and by another cause later.

use std::ops::Range;

use super::excess;
use crate::step::StepAnalysis;

/// The least share of an episode's largest excess that the main fault's part must have for the episode to belong to the
/// main fault. Means over few steps scatter, so the largest part alone does not decide.
const SAME_FAULT: f64 = 0.5;

/// Groups the episodes of `ranks`, which are ranges of indices into `steps`, by the part of the step in which the ranks
/// take longest.
pub(super) fn faults(
    episodes: Vec<Range<usize>>,
    steps: &[&StepAnalysis],
    ranks: &[usize],
) -> Vec<Vec<Range<usize>>> {
    if episodes.len() < 2 {
        return vec![episodes];
    }
    let all: Vec<&StepAnalysis> = episodes.iter().cloned().flatten().map(|at| steps[at]).collect();
    let Some(main) = excess::parts(&all, ranks).map(|parts| largest(&parts)) else {
        return vec![episodes];
    };
    let mut faults: [Vec<Range<usize>>; excess::PARTS] = Default::default();
    for episode in episodes {
        let part = excess::parts(&steps[episode.clone()], ranks).map_or(main, |parts| {
            let own = largest(&parts);
            if parts[main] >= SAME_FAULT * parts[own] { main } else { own }
        });
        faults[part].push(episode);
    }
    faults.into_iter().filter(|fault| !fault.is_empty()).collect()
}

fn largest(parts: &[f64; excess::PARTS]) -> usize {
    (0..excess::PARTS).max_by(|&a, &b| parts[a].total_cmp(&parts[b])).unwrap_or(0)
}
