//! The overhead budget of a job. While recording costs more, only one step in k is recorded in full.

use nix::sys::resource::{UsageWho, getrusage};
use wire::clock::MonoNanos;

use crate::warn;

/// The environment variable that sets the budget, in percent of a processor.
pub(crate) const VARIABLE: &str = "PACELINE_OVERHEAD_BUDGET";
/// The share of one processor that recording may take per rank. Users accept 1 % from an observer that is always on.
pub(crate) const DEFAULT: f64 = 0.01;
/// The length of the windows over which the cost is measured, in nanoseconds.
const WINDOW_NANOS: i64 = 1_000_000_000;
/// The number of consecutive windows above the budget before k doubles.
const WINDOWS_ABOVE: u32 = 3;
/// The number of consecutive windows below half of the budget before k halves.
const WINDOWS_BELOW: u32 = 10;
/// The largest k. One step in 64 still shows which rank is late.
const MAX_EVERY: u32 = 64;

/// The overhead budget and the state of its control: it compares the cost of recording with the budget and adapts k.
/// One step in k is recorded in full. k is a power of two, so that ranks with different k still record the steps of the
/// largest k together.
#[derive(Debug)]
pub struct Budget {
    share: f64,
    window: Option<Window>,
    above: u32,
    below: u32,
    interval: u32,
    /// The largest k that was announced.
    announced: u32,
}

/// A window over which the cost is measured.
#[derive(Clone, Copy, Debug)]
struct Window {
    begin: MonoNanos,
    /// The total cost at its begin, in nanoseconds.
    spent: u64,
}

impl Budget {
    /// Reads the budget from `PACELINE_OVERHEAD_BUDGET`, in percent of a processor; 1 % if it is not set.
    #[must_use]
    pub fn from_env() -> Self {
        Self::new(std::env::var(VARIABLE).ok().and_then(|percent| parse(&percent)).unwrap_or(DEFAULT))
    }

    /// Creates a budget of a share of one processor per rank.
    #[must_use]
    pub fn new(share: f64) -> Self {
        Self { share, window: None, above: 0, below: 0, interval: 1, announced: 1 }
    }

    /// Returns the new k if it changed. Prints a warning when k exceeds all earlier values. `spent` is the total cost
    /// so far, in nanoseconds of processor time, for all `ranks` of the process.
    pub fn keep(&mut self, at: MonoNanos, spent: u64, ranks: usize) -> Option<u32> {
        let cost = self.judge(at, spent, ranks)?;
        if self.interval > self.announced {
            self.announced = self.interval;
            warn(&format!(
                "observing this job takes {:.2} % of a processor, above the budget of {:.2} % ({VARIABLE}): from now \
                 on one step in {} is observed in full, the same step on every rank",
                cost * 100.0,
                self.share * 100.0,
                self.interval
            ));
        }
        Some(self.interval)
    }

    /// Returns the cost per rank as a share of one processor if k just changed.
    fn judge(&mut self, at: MonoNanos, spent: u64, ranks: usize) -> Option<f64> {
        let now = Window { begin: at, spent };
        let window = *self.window.get_or_insert(now);
        let passed = at - window.begin;
        if passed < WINDOW_NANOS {
            return None;
        }
        self.window = Some(now);
        let cost = (spent - window.spent) as f64 / passed as f64 / ranks.max(1) as f64;
        self.above = if cost > self.share { self.above + 1 } else { 0 };
        self.below = if cost < self.share / 2.0 { self.below + 1 } else { 0 };
        let interval = match (self.above >= WINDOWS_ABOVE, self.below >= WINDOWS_BELOW) {
            (true, _) => (self.interval * 2).min(MAX_EVERY),
            (_, true) => (self.interval / 2).max(1),
            _ => return None,
        };
        (self.above, self.below) = (0, 0);
        (std::mem::replace(&mut self.interval, interval) != interval).then_some(cost)
    }
}

/// The processor time that recording takes in a thread. While memory is short, the kernel reclaims memory in any thread that reads
/// pages back from a disk. That takes far more time than recording does, recording less does not save it, and the steps of that time
/// are those to observe. Therefore the time of rounds with such a read does not count.
#[derive(Debug, Default)]
pub(crate) struct ThreadCost {
    /// At the end of the last round.
    previous: ThreadUse,
    counted: u64,
}

/// The processor time of a thread, in nanoseconds, and its major page faults.
#[derive(Clone, Copy, Debug, Default)]
struct ThreadUse {
    cpu: u64,
    faults: u64,
}

impl ThreadCost {
    /// Ends a round of the thread, which has used `cpu` nanoseconds and had `faults` major page faults since it began. Returns the
    /// time that counts, over all rounds, in nanoseconds.
    pub fn end_round(&mut self, cpu: u64, faults: u64) -> u64 {
        let previous = std::mem::replace(&mut self.previous, ThreadUse { cpu, faults });
        if faults == previous.faults {
            self.counted += cpu.saturating_sub(previous.cpu);
        }
        self.counted
    }
}

/// Returns how often the calling thread had to wait for a page that was read from a disk; 0 if that is not known.
pub(crate) fn major_faults() -> u64 {
    getrusage(UsageWho::RUSAGE_THREAD).map_or(0, |usage| usage.major_page_faults().unsigned_abs())
}

/// Parses a budget in percent as a share of one processor. Returns `None` for anything but a number from 0 to 100.
pub(crate) fn parse(percent: &str) -> Option<f64> {
    let percent = percent.trim().parse::<f64>().ok()?;
    (0.0..=100.0).contains(&percent).then_some(percent / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOW: u64 = 4_000_000;
    const MIDDLE: u64 = 8_000_000;
    const HIGH: u64 = 12_000_000;

    /// Returns k after each second. `spent` is the cost of each second, in nanoseconds.
    fn intervals(ranks: usize, spent: &[u64]) -> Vec<u32> {
        let (mut budget, mut total) = (Budget::new(0.01), 0);
        budget.judge(MonoNanos(0), 0, ranks);
        let judge = |(second, nanos): (i64, &u64)| {
            total += nanos;
            budget.judge(MonoNanos(second * WINDOW_NANOS), total, ranks);
            budget.interval
        };
        (1..).zip(spent).map(judge).collect()
    }

    #[test]
    fn only_a_cost_that_stays_high_reduces_the_observed_steps() {
        assert_eq!(intervals(1, &[HIGH, HIGH, LOW, HIGH, HIGH]), [1; 5]);
        assert_eq!(intervals(1, &[HIGH, HIGH, HIGH, HIGH, HIGH, HIGH]), [1, 1, 2, 2, 2, 4]);
        assert_eq!(intervals(2, &[HIGH; 6]), [1; 6], "each of two ranks takes half of the cost");
        assert_eq!(intervals(1, &[HIGH; 40]).last(), Some(&MAX_EVERY), "some steps are always observed");
    }

    #[test]
    fn more_steps_are_observed_again_when_the_cost_stays_low() {
        let spent = [vec![HIGH; 6], vec![LOW; 9], vec![MIDDLE], vec![LOW; 20]].concat();
        let found = intervals(1, &spent);
        assert_eq!(found[5], 4);
        assert_eq!(found[15], 4, "the cost was not low for long enough");
        assert_eq!(found.last(), Some(&1));
    }

    #[test]
    fn the_time_of_rounds_that_read_pages_back_does_not_count() {
        let mut cost = ThreadCost::default();
        let mut counted = |cpu, faults| cost.end_round(cpu, faults);
        assert_eq!(counted(100, 0), 100);
        assert_eq!(counted(9_000, 3), 100, "the kernel reclaimed memory in this round");
        assert_eq!(counted(9_050, 3), 150);
    }

    #[test]
    fn a_budget_is_a_percentage() {
        assert_eq!(["0", "0.5", " 100 "].map(parse), [Some(0.0), Some(0.005), Some(1.0)]);
        assert_eq!(["", "-1", "101", "1%", "NaN"].map(parse), [None; 5]);
    }
}
