//! When the job says that it waits for collectives, which tells what it does meanwhile better than any inference.

use std::collections::VecDeque;

use wire::clock::MonoNanos;

use crate::infer::blocking::{Blocked, Stretch};

/// The largest number of waits that belong to no step yet. A job without buckets may wait for each of its parameters.
const MAX_WAITS: usize = 16_384;

/// The waits that belong to no step yet, in order of time.
#[derive(Debug, Default)]
pub(crate) struct Waits(VecDeque<Stretch>);

impl Waits {
    /// Adds a wait. Without space, the oldest is forgotten.
    pub(crate) fn add(&mut self, from: MonoNanos, to: MonoNanos) {
        if self.0.len() == MAX_WAITS {
            self.0.pop_front();
        }
        self.0.push_back((from, to));
    }

    /// Takes the waits that begin before a time.
    pub(crate) fn take_until(&mut self, end: MonoNanos) -> Vec<Stretch> {
        let later = self.0.iter().position(|&(from, _)| from >= end).unwrap_or(self.0.len());
        self.0.drain(..later).collect()
    }
}

impl Blocked {
    /// Replaces what is inferred, or assumed, of a collective by the waits for it. The rank computes until its wait begins.
    pub(crate) fn tell(&mut self, waits: &[Stretch]) {
        let waited = |&(from, to): &Stretch| -> Vec<Stretch> {
            // Waits do not overlap, so their ends are in order as well.
            let first = waits.partition_point(|wait| wait.1 <= from);
            let overlapping = waits[first..].iter().take_while(|wait| wait.0 < to);
            overlapping.map(|wait| (wait.0.max(from), wait.1.min(to))).collect()
        };
        let known: Vec<Stretch> = self.blocked.iter().chain(&self.unclear).flat_map(waited).collect();
        for inferred in [&mut self.blocked, &mut self.unclear, &mut self.nonblocking] {
            inferred.retain(|stretch| waited(stretch).is_empty());
        }
        self.blocked.extend(known);
        self.blocked.sort_unstable();
        self.blocked.dedup();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stretches(times: &[(i64, i64)]) -> Vec<Stretch> {
        times.iter().map(|&(from, to)| (MonoNanos(from), MonoNanos(to))).collect()
    }

    #[test]
    fn a_wait_says_until_when_the_rank_computes_and_that_it_is_blocked_from_then_on() {
        let mut blocked = Blocked {
            blocked: stretches(&[(10, 20), (50, 60)]),
            unclear: stretches(&[(10, 20), (30, 40), (70, 80)]),
            nonblocking: stretches(&[(85, 90), (95, 99)]),
        };
        blocked.tell(&stretches(&[(15, 22), (25, 35), (38, 41), (88, 91)]));
        assert_eq!(blocked.blocked, stretches(&[(15, 20), (30, 35), (38, 40), (50, 60)]));
        assert_eq!(blocked.unclear, stretches(&[(70, 80)]), "no wait for it is known");
        assert_eq!(blocked.nonblocking, stretches(&[(95, 99)]));
    }

    #[test]
    fn waits_belong_to_one_step_and_are_bounded() {
        let mut waits = Waits::default();
        (0..MAX_WAITS as i64 + 5).for_each(|at| waits.add(MonoNanos(10 * at), MonoNanos(10 * at + 5)));
        assert_eq!(waits.take_until(MonoNanos(80)), stretches(&[(50, 55), (60, 65), (70, 75)]));
        assert_eq!(waits.take_until(MonoNanos(80)), []);
        assert_eq!(waits.0.len(), MAX_WAITS - 3);
    }
}
