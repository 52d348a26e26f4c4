//! Bands over a time line: which steps a verdict covers, and in which lane its band lies.

use viz::span::Span;
use wire::views::{Verdict, VerdictState};

/// Returns the steps that a verdict covers. An active or recurring one extends to the newest step, which is `newest`.
#[must_use]
pub fn steps(verdict: &Verdict, newest: u64) -> (u64, u64) {
    let (first, last) = verdict.steps;
    let first = verdict.onset.map_or(first, |onset| onset.step.min(first));
    match verdict.state {
        VerdictState::Active => (first, last.max(newest)),
        VerdictState::Recurring | VerdictState::Resolved => (first, last),
    }
}

/// Returns a lane below `lanes` for each band, so that bands in one lane do not overlap. A band that fits in no lane
/// lies in the last one.
#[must_use]
pub fn lanes(bands: &[Span], lanes: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..bands.len()).collect();
    order.sort_by(|&a, &b| bands[a].start.total_cmp(&bands[b].start));
    let mut ends: Vec<f64> = Vec::new();
    let mut placed = vec![0; bands.len()];
    for band in order {
        let free = ends.iter().position(|&end| end <= bands[band].start);
        let lane = free.unwrap_or_else(|| {
            if ends.len() < lanes {
                ends.push(f64::NEG_INFINITY);
            }
            ends.len().saturating_sub(1)
        });
        if let Some(end) = ends.get_mut(lane) {
            *end = end.max(bands[band].end);
        }
        placed[band] = lane;
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_bands_lie_in_different_lanes() {
        let bands = [Span::new(50.0, 90.0), Span::new(0.0, 60.0), Span::new(60.0, 70.0)];
        assert_eq!(lanes(&bands, 3), [1, 0, 0]);
        assert_eq!(lanes(&bands, 1), [0, 0, 0]);
        assert_eq!(lanes(&[], 2), [0; 0]);
    }
}
