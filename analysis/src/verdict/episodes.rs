//! The episodes of a fault, dated to the step: the steps in which fixing a rank would have saved time.
//!
//! A fault is either present or absent, so the series of savings has two levels. The most likely sequence of the two
//! states is found by dynamic programming (Viterbi 1967). Each step is evidence for the state whose level is nearer,
//! weighs at most 1 however far off it is, and every change of state has a cost. Each resulting stretch is then judged
//! by its median: it has the fault if it saves at least half of what the fault usually costs.

use std::ops::Range;

use crate::stats;

/// The cost of a change of state, in steps of clear evidence. Two faults closer together than this count as one, and a
/// shorter pause is bridged.
pub(super) const CHANGE_STEPS: usize = 8;
/// The window of the running medians from which the levels are taken, in steps. It hides single pauses.
const SMOOTHED_OVER: usize = 9;
/// The share of the usual step above which the lower level is itself a fault.
const FAULT_SHARE: f64 = 0.05;

/// The two levels of a series of savings, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Levels {
    healthy: f64,
    faulty: f64,
}

impl Levels {
    /// Splits the savings where the variance between the sides is largest (Otsu 1979). If the lower side has the fault
    /// too, the fault is always present, and the level without it is 0.
    fn new(savings: &[f64], usual_step: f64) -> Option<Self> {
        // A rank that is ahead because another rank is far behind is as healthy as one that saves nothing.
        let not_ahead: Vec<f64> = savings.iter().map(|saving| saving.max(0.0)).collect();
        let mut sorted = smoothed(&not_ahead);
        sorted.sort_unstable_by(f64::total_cmp);
        let at = widest_split(&sorted)?;
        let median = |side: &[f64]| stats::median(side.iter().copied());
        let (healthy, faulty) = (median(&sorted[..at])?, median(&sorted[at..])?);
        let levels = if healthy > (FAULT_SHARE * usual_step).min(faulty / 2.0) {
            Self { healthy: 0.0, faulty: median(&sorted)? }
        } else {
            Self { healthy, faulty }
        };
        (levels.faulty > levels.healthy.max(0.0)).then_some(levels)
    }

    /// Returns the evidence of one step, from -1 (without the fault) to 1 (with it).
    fn evidence(self, saving: f64) -> f64 {
        let middle = f64::midpoint(self.healthy, self.faulty);
        ((saving - middle) / (self.faulty - middle)).clamp(-1.0, 1.0)
    }
}

/// Finds the episodes of a fault as ranges of indices, ascending and disjoint. `savings` is what fixing the fault would
/// save in each step and `usual_step` the usual length of a step, both in nanoseconds.
pub(super) fn episodes(savings: &[f64], usual_step: f64) -> Vec<Range<usize>> {
    let Some(levels) = Levels::new(savings, usual_step) else { return Vec::new() };
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

/// Returns the sequence of states with the most evidence after the cost of its changes.
fn likeliest(evidence: &[f64]) -> Vec<bool> {
    let change = CHANGE_STEPS as f64;
    // For each step: the best score of a sequence that is now without and with the fault, and whether it just changed.
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

fn runs(states: &[bool], state: bool) -> Vec<Range<usize>> {
    let mut reached = 0;
    let chunks = states.chunk_by(|a, b| a == b).map(|chunk| {
        reached += chunk.len();
        (chunk[0], reached - chunk.len()..reached)
    });
    chunks.filter(|(own, _)| *own == state).map(|(_, range)| range).collect()
}

/// Returns running medians. At the ends, the window is cut to the values that exist.
fn smoothed(values: &[f64]) -> Vec<f64> {
    let half = SMOOTHED_OVER / 2;
    let window = |at: usize| &values[at.saturating_sub(half)..values.len().min(at + half + 1)];
    (0..values.len()).filter_map(|at| stats::median(window(at).iter().copied())).collect()
}

/// Returns the index that splits `sorted` into the two sides that differ most.
fn widest_split(sorted: &[f64]) -> Option<usize> {
    let (count, total) = (sorted.len() as f64, sorted.iter().sum::<f64>());
    let mut below = 0.0;
    let separations = sorted[..sorted.len().checked_sub(1)?].iter().enumerate().map(|(at, value)| {
        below += value;
        let (low, high) = (at as f64 + 1.0, count - at as f64 - 1.0);
        (at + 1, low * high * (below / low - (total - below) / high).powi(2))
    });
    separations.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: f64 = 50.0;

    /// Noise around 0, uniform from -1 to 1, that repeats after 101 steps.
    fn noise(at: usize) -> f64 {
        ((at * 7_919) % 101) as f64 / 50.5 - 1.0
    }

    fn found(steps: usize, saving: impl Fn(usize) -> f64) -> Vec<Range<usize>> {
        episodes(&(0..steps).map(saving).collect::<Vec<_>>(), STEP)
    }

    /// A fault of `cost` in the steps of `bad`, with noise of the given size.
    fn fault(bad: Range<usize>, cost: f64, scatter: f64) -> impl Fn(usize) -> f64 {
        move |at| noise(at) * scatter + if bad.contains(&at) { cost } else { 0.0 }
    }

    #[test]
    fn an_episode_is_dated_exactly_if_noise_is_smaller_than_the_fault() {
        for bad in [0..400, 80..400, 60..420, 100..200, 0..150, 380..400] {
            let bad = bad.start..bad.end.min(400);
            assert_eq!(found(400, fault(bad.clone(), 10.0, 3.0)), std::slice::from_ref(&bad), "{bad:?}");
        }
    }

    #[test]
    fn an_episode_is_dated_within_a_few_steps_if_noise_is_as_large_as_the_fault() {
        let [episode] = &found(400, fault(80..400, 10.0, 10.0))[..] else { panic!("one episode") };
        assert!(episode.start.abs_diff(80) <= 5 && episode.end == 400, "{episode:?}");
        let all = found(400, fault(0..400, 10.0, 15.0));
        assert_eq!(all, std::slice::from_ref(&(0..400)), "a fault in every step is one episode");
    }

    #[test]
    fn a_recurring_fault_has_several_episodes_and_short_pauses_are_bridged() {
        let twice =
            |at| if (60..130).contains(&at) || (230..300).contains(&at) { 10.0 } else { 0.0 } + noise(at);
        assert_eq!(found(400, twice), [60..130, 230..300]);
        let paused = |at| if (150..155).contains(&at) { 0.0 } else { 10.0 } + noise(at);
        assert_eq!(found(400, paused), std::slice::from_ref(&(0..400)));
    }

    #[test]
    fn a_single_pause_neither_is_an_episode_nor_hides_one() {
        let pause = |at| if at == 300 { 5_000.0 } else { fault(80..200, 10.0, 1.0)(at) };
        assert_eq!(found(400, pause), std::slice::from_ref(&(80..200)));
    }

    #[test]
    fn a_growing_fault_is_one_episode_from_its_beginning() {
        let grows = |at| if at < 350 { 10.0 } else { 100.0 } + noise(at);
        assert_eq!(found(400, grows), std::slice::from_ref(&(0..400)));
    }

    #[test]
    fn no_savings_mean_no_fault() {
        assert_eq!(found(0, |_| 0.0), []);
        assert_eq!(found(400, |_| 0.0), []);
        assert_eq!(found(400, |_| -5.0), []);
    }
}
