//! When a fault was there: the episodes in which fixing a rank would have saved time, dated to the step.
//!
//! A fault is there or it is not. The series of savings has therefore two levels, and the likeliest course of the two
//! states is found by dynamic programming (Viterbi 1967): each step speaks for the state whose level it is nearer to,
//! a step counts for at most one however far off it is, and a change of state must be paid for. What remains is
//! compared by its median: a stretch that saves at least half of what the fault usually costs has the fault.

use std::ops::Range;

use crate::stats;

/// A change of state must be borne out by this many steps that speak clearly for it. Two faults that are closer
/// together are one; a pause that is shorter is bridged.
pub(super) const CHANGE_STEPS: usize = 8;
/// The levels are looked for in running medians over this many steps: a lone pause is no level.
const SMOOTHED_OVER: usize = 9;
/// A lower level above this share of the usual step is a fault itself, not the state without one.
const FAULT_SHARE: f64 = 0.05;

/// The two levels of a series of savings, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Levels {
    without: f64,
    with: f64,
}

impl Levels {
    /// By the split with the largest variance between its sides (Otsu 1979). Where the lower side has the fault
    /// too, it is there all the time, and the state without it is a saving of nothing.
    fn of(savings: &[f64], usual_step: f64) -> Option<Self> {
        // A rank that is ahead, because another one is far behind, is as healthy as one that saves nothing.
        let not_ahead: Vec<f64> = savings.iter().map(|saving| saving.max(0.0)).collect();
        let mut sorted = smoothed(&not_ahead);
        sorted.sort_unstable_by(f64::total_cmp);
        let at = widest_split(&sorted)?;
        let median = |side: &[f64]| stats::median(side.iter().copied());
        let (without, with) = (median(&sorted[..at])?, median(&sorted[at..])?);
        let levels = if without > (FAULT_SHARE * usual_step).min(with / 2.0) {
            Self { without: 0.0, with: median(&sorted)? }
        } else {
            Self { without, with }
        };
        (levels.with > levels.without.max(0.0)).then_some(levels)
    }

    /// How a step speaks: 1 with the fault, -1 without it.
    fn evidence(self, saving: f64) -> f64 {
        let middle = f64::midpoint(self.without, self.with);
        ((saving - middle) / (self.with - middle)).clamp(-1.0, 1.0)
    }
}

/// The episodes of a fault in `savings`, what fixing it would save in each step; `usual_step` is what a step takes.
/// In nanoseconds; ranges of indices, ascending, apart from each other.
pub(super) fn episodes(savings: &[f64], usual_step: f64) -> Vec<Range<usize>> {
    let Some(levels) = Levels::of(savings, usual_step) else { return Vec::new() };
    let evidence: Vec<f64> = savings.iter().map(|&saving| levels.evidence(saving)).collect();
    let mut has_fault = likeliest(&evidence);
    let with_fault = savings.iter().zip(&has_fault).filter(|(_, has)| **has).map(|(&saving, _)| saving);
    let Some(usual) = stats::median(with_fault) else { return Vec::new() };
    for range in runs(&has_fault, false).into_iter().chain(runs(&has_fault, true)) {
        let median = stats::median(savings[range.clone()].iter().copied()).unwrap_or(0.0);
        has_fault[range].fill(median > 0.0 && median >= usual / 2.0);
    }
    runs(&has_fault, true)
}

/// The course of the state with the most evidence, less what its changes cost.
fn likeliest(evidence: &[f64]) -> Vec<bool> {
    let change = CHANGE_STEPS as f64;
    // Best score of a course that is now without and with the fault, and whether it changed for that, by step.
    let (mut scores, mut changed) = ([0.0, 0.0], Vec::with_capacity(evidence.len()));
    for &speaks in evidence {
        let [without, with] = scores;
        let from_other = [with - change > without, without - change > with];
        scores = [without.max(with - change) - speaks, with.max(without - change) + speaks];
        changed.push(from_other);
    }
    let mut state = scores[1] > scores[0];
    let mut course = vec![false; evidence.len()];
    for (at, from_other) in changed.iter().enumerate().rev() {
        course[at] = state;
        state ^= from_other[usize::from(state)];
    }
    course
}

/// The ranges in which `states` is `state`.
fn runs(states: &[bool], state: bool) -> Vec<Range<usize>> {
    let mut from = 0;
    let chunks = states.chunk_by(|a, b| a == b).map(|chunk| {
        from += chunk.len();
        (chunk[0], from - chunk.len()..from)
    });
    chunks.filter(|(of, _)| *of == state).map(|(_, range)| range).collect()
}

/// Running medians; at the ends over what there is.
fn smoothed(values: &[f64]) -> Vec<f64> {
    let half = SMOOTHED_OVER / 2;
    let window = |at: usize| &values[at.saturating_sub(half)..values.len().min(at + half + 1)];
    (0..values.len()).filter_map(|at| stats::median(window(at).iter().copied())).collect()
}

/// Where to split `sorted` so that its two sides differ most.
fn widest_split(sorted: &[f64]) -> Option<usize> {
    let (count, total) = (sorted.len() as f64, sorted.iter().sum::<f64>());
    let mut below = 0.0;
    let between = sorted[..sorted.len().checked_sub(1)?].iter().enumerate().map(|(at, value)| {
        below += value;
        let (low, high) = (at as f64 + 1.0, count - at as f64 - 1.0);
        (at + 1, low * high * (below / low - (total - below) / high).powi(2))
    });
    between.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: f64 = 50.0;

    /// Noise around 0, uniform in -1 to 1, that repeats after 101 steps.
    fn noise(at: usize) -> f64 {
        ((at * 7_919) % 101) as f64 / 50.5 - 1.0
    }

    fn found(steps: usize, saving: impl Fn(usize) -> f64) -> Vec<Range<usize>> {
        episodes(&(0..steps).map(saving).collect::<Vec<_>>(), STEP)
    }

    /// A fault of `cost` in `bad`, in noise of the given size.
    fn fault(bad: Range<usize>, cost: f64, scatter: f64) -> impl Fn(usize) -> f64 {
        move |at| noise(at) * scatter + if bad.contains(&at) { cost } else { 0.0 }
    }

    #[test]
    fn an_episode_is_dated_to_the_step_where_noise_is_smaller_than_the_fault() {
        for bad in [0..400, 80..400, 60..420, 100..200, 0..150, 380..400] {
            let bad = bad.start..bad.end.min(400);
            assert_eq!(found(400, fault(bad.clone(), 10.0, 3.0)), std::slice::from_ref(&bad), "{bad:?}");
        }
    }

    #[test]
    fn in_noise_as_large_as_the_fault_the_date_is_off_by_a_few_steps() {
        let [episode] = &found(400, fault(80..400, 10.0, 10.0))[..] else { panic!("one episode") };
        assert!(episode.start.abs_diff(80) <= 5 && episode.end == 400, "{episode:?}");
        let all = found(400, fault(0..400, 10.0, 15.0));
        assert_eq!(all, std::slice::from_ref(&(0..400)), "what is always there does not come and go");
    }

    #[test]
    fn a_fault_that_comes_back_has_several_episodes_and_short_pauses_are_bridged() {
        let twice =
            |at| if (60..130).contains(&at) || (230..300).contains(&at) { 10.0 } else { 0.0 } + noise(at);
        assert_eq!(found(400, twice), [60..130, 230..300]);
        let paused = |at| if (150..155).contains(&at) { 0.0 } else { 10.0 } + noise(at);
        assert_eq!(found(400, paused), std::slice::from_ref(&(0..400)));
    }

    #[test]
    fn a_lone_pause_is_no_episode_and_does_not_hide_one() {
        let pause = |at| if at == 300 { 5_000.0 } else { fault(80..200, 10.0, 1.0)(at) };
        assert_eq!(found(400, pause), std::slice::from_ref(&(80..200)));
    }

    #[test]
    fn a_fault_that_grows_is_there_from_its_beginning() {
        let grows = |at| if at < 350 { 10.0 } else { 100.0 } + noise(at);
        assert_eq!(found(400, grows), std::slice::from_ref(&(0..400)));
    }

    #[test]
    fn nothing_is_no_fault() {
        assert_eq!(found(0, |_| 0.0), []);
        assert_eq!(found(400, |_| 0.0), []);
        assert_eq!(found(400, |_| -5.0), []);
    }
}
