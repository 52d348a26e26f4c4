//! Things that happen now and then: in which steps, how regularly, and what they cost together.

use std::ops::Range;

use wire::views::Recurrence;

use crate::stats;
use crate::step::StepAnalysis;

/// The largest difference of two distances that count as equal, as a share of the usual one.
const EVEN_WITHIN: f64 = 0.1;
/// The least share of distances that are equal, or a small multiple, if things are regular. Shadow steps hide some of them.
const REGULAR_SHARE: f64 = 0.7;
/// The least number of times that can be regular.
const REGULAR_TIMES: usize = 3;

/// The times at which something happened.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Times {
    /// The steps of each time, as ranges of indices into the observed steps; ascending.
    pub(super) at: Vec<Range<usize>>,
    /// What all of them cost together, in nanoseconds.
    pub(super) total: f64,
}

/// The cost of a time that is of one kind with the others, as a share of what a lost nanosecond's time costs in the mean.
const ALIKE: f64 = 0.25;

impl Times {
    /// Collects the steps in which something costs at least `least` nanoseconds, and leaves out those that cost far less than most
    /// of the lost time: a stop of seconds and the unsteadiness of some milliseconds are two things.
    pub(super) fn alike(costs: &[f64], least: f64) -> Self {
        let (sum, squares) = costs
            .iter()
            .filter(|cost| **cost >= least)
            .fold((0.0, 0.0), |(sum, squares), cost| (sum + cost, squares + cost * cost));
        let typical = if sum > 0.0 { squares / sum } else { 0.0 };
        Self::new(costs, least.max(ALIKE * typical))
    }

    /// Collects the steps in which something costs at least `least` nanoseconds. Consecutive ones are one time.
    pub(super) fn new(costs: &[f64], least: f64) -> Self {
        let mut at: Vec<Range<usize>> = Vec::new();
        for index in (0..costs.len()).filter(|&index| costs[index] >= least) {
            match at.last_mut() {
                Some(last) if last.end == index => last.end = index + 1,
                _ => at.push(index..index + 1),
            }
        }
        let total = at.iter().cloned().flatten().map(|index| costs[index]).sum();
        Self { at, total }
    }

    /// Keeps the times that `is` holds for.
    pub(super) fn retain(&mut self, costs: &[f64], is: impl Fn(&Range<usize>) -> bool) {
        self.at.retain(is);
        self.total = self.indices().map(|index| costs[index]).sum();
    }

    pub(super) fn indices(&self) -> impl Iterator<Item = usize> {
        self.at.iter().cloned().flatten()
    }

    /// Returns how often it happens among `steps`, whose time is `all_time` nanoseconds.
    pub(super) fn recurrence(&self, steps: &[&StepAnalysis], all_time: f64) -> Recurrence {
        let times = self.at.len().max(1) as f64;
        let begins = self.at.iter().map(|time| steps[time.start].step.0);
        Recurrence {
            steps: begins.skip(self.at.len().saturating_sub(Recurrence::MAX_STEPS)).collect(),
            times: self.at.len() as u64,
            every_steps: self.every_steps(steps),
            nanos: (self.total / times) as u64,
            share_of_time: self.total / all_time.max(1.0),
        }
    }

    /// Returns the number of steps from one time to the next, if they are regular. It counts steps that are not observed too.
    pub(super) fn every_steps(&self, steps: &[&StepAnalysis]) -> Option<u64> {
        let begins = self.at.iter().map(|time| steps[time.start].step.0).collect::<Vec<_>>();
        let distances: Vec<f64> = begins.windows(2).map(|two| (two[1] - two[0]) as f64).collect();
        if self.at.len() < REGULAR_TIMES {
            return None;
        }
        let usual = stats::lower_median(distances.iter().copied())?;
        let is_even = |distance: &&f64| {
            let multiple = (**distance / usual).round().max(1.0);
            (**distance - multiple * usual).abs() <= (EVEN_WITHIN * usual).max(1.0)
        };
        let even = distances.iter().filter(is_even).count();
        // Distances of one or two steps are even whatever happens.
        (usual >= 3.0 && even as f64 >= REGULAR_SHARE * distances.len() as f64).then_some(usual as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::tests::healthy;

    fn period(costs: &[f64]) -> Option<u64> {
        let steps = healthy(costs.len() as u64);
        let steps: Vec<&StepAnalysis> = steps.iter().collect();
        Times::new(costs, 0.5).every_steps(&steps)
    }

    #[test]
    fn what_happens_in_every_50th_step_is_regular_even_if_some_are_not_observed() {
        let at =
            |steps: &[usize]| (0..400).map(|at| f64::from(u8::from(steps.contains(&at)))).collect::<Vec<_>>();
        assert_eq!(period(&at(&[49, 99, 149, 199, 249])), Some(50));
        assert_eq!(period(&at(&[49, 99, 199, 249, 299])), Some(50), "150 was not observed");
        assert_eq!(period(&at(&[49, 50, 99, 100, 149])), Some(50), "two steps are one time");
        assert_eq!(period(&at(&[10, 90, 110, 290])), None);
        assert_eq!(period(&at(&[10, 90])), None, "two times may be chance");
    }
}
