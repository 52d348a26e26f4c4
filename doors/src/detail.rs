//! How much is observed: less, when being observed costs too much.
//!
//! What the callbacks of all doors cost the threads that call them is measured, one call in some. Where that is more of a
//! processor than the budget for seconds on end, detail is lowered, said so, and never raised again: nobody asked for it.

use std::cell::Cell;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use wire::clock::MonoNanos;

/// One call in so many is timed: reading the clock twice costs as much as leaving an entry. No even number, since calls
/// come in pairs of which one costs more.
const TIMED: u32 = 17;
/// What the callbacks of a rank may take of one processor (DESIGN.md: 0.5 %).
const BUDGET: f64 = 0.005;
/// Names another budget, in percent.
const VARIABLE: &str = "PACELINE_OVERHEAD_BUDGET";
/// How long one look at the cost goes over,
const WINDOW_NANOS: i64 = 1_000_000_000;
/// and how many must find it too high, one after the other.
const LOOKS: u32 = 3;

/// How much is observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Detail {
    /// All that a door tells.
    Everything = 0,
    /// When collectives are enqueued, and not when they run.
    Enqueued = 1,
    /// Nothing.
    Nothing = 2,
}

static DETAIL: AtomicU8 = AtomicU8::new(Detail::Everything as u8);
static SPENT_NANOS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static TURN: Cell<u32> = const { Cell::new(0) };
}

/// How much is observed now.
pub(crate) fn now() -> Detail {
    match DETAIL.load(Ordering::Relaxed) {
        0 => Detail::Everything,
        1 => Detail::Enqueued,
        _ => Detail::Nothing,
    }
}

/// Does what a callback does, and counts what that costs.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> T {
    let turn = TURN.try_with(|turn| turn.replace(turn.get().wrapping_add(1))).unwrap_or(1);
    if !turn.is_multiple_of(TIMED) {
        return work();
    }
    let begin = agent::clock::now();
    let result = work();
    let nanos = (agent::clock::now() - begin).max(0).unsigned_abs();
    SPENT_NANOS.fetch_add(nanos * u64::from(TIMED), Ordering::Relaxed);
    result
}

/// Counts what being observed cost somewhere else.
pub(crate) fn spend(nanos: u64) {
    SPENT_NANOS.fetch_add(nanos, Ordering::Relaxed);
}

/// Watches the cost; held by the observing thread.
pub(crate) struct Budget {
    most: f64,
    window: Option<(MonoNanos, u64)>,
    too_high: u32,
}

impl Budget {
    /// As the environment says, else the usual one.
    pub(crate) fn from_env() -> Self {
        let percent = std::env::var(VARIABLE).ok().and_then(|percent| percent.parse::<f64>().ok());
        Self::new(percent.filter(|percent| *percent >= 0.0).map_or(BUDGET, |percent| percent / 100.0))
    }

    fn new(most: f64) -> Self {
        Self { most, window: None, too_high: 0 }
    }

    /// Lowers the detail of a process that is so many ranks if it is time to, and says so.
    pub(crate) fn keep(&mut self, at: MonoNanos, ranks: usize) {
        let Some(cost) = self.exceeded(at, SPENT_NANOS.load(Ordering::Relaxed), ranks) else { return };
        let (lower, left) = match now() {
            Detail::Everything => {
                (Detail::Enqueued, "only when collectives are enqueued is observed, not when they run")
            }
            Detail::Enqueued => (Detail::Nothing, "nothing is observed any more"),
            Detail::Nothing => return,
        };
        DETAIL.store(lower as u8, Ordering::Relaxed);
        agent::warn(&format!(
            "being observed takes {:.2} % of a processor, more than the {:.2} % it may ({VARIABLE}): from now on {left}",
            cost * 100.0,
            self.most * 100.0
        ));
    }

    /// What a rank costs, as a share of one processor, once that has been too high for long enough.
    fn exceeded(&mut self, at: MonoNanos, spent: u64, ranks: usize) -> Option<f64> {
        let (begin, before) = *self.window.get_or_insert((at, spent));
        let passed = at - begin;
        if passed < WINDOW_NANOS {
            return None;
        }
        self.window = Some((at, spent));
        let cost = (spent - before) as f64 / passed as f64 / ranks.max(1) as f64;
        self.too_high = if cost > self.most { self.too_high + 1 } else { 0 };
        (self.too_high >= LOOKS).then(|| {
            self.too_high = 0;
            cost
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks once a second; in each so many nanoseconds were spent.
    fn looks(ranks: usize, spent: &[u64]) -> Vec<Option<f64>> {
        let (mut budget, mut total) = (Budget::new(0.005), 0);
        budget.exceeded(MonoNanos(0), 0, ranks);
        let look = |(second, nanos): (i64, &u64)| {
            total += nanos;
            budget.exceeded(MonoNanos(second * WINDOW_NANOS), total, ranks)
        };
        (1..).zip(spent).map(look).collect()
    }

    #[test]
    fn only_a_cost_that_stays_too_high_lowers_the_detail() {
        let (low, high) = (4_000_000, 6_000_000);
        assert_eq!(looks(1, &[high, high, low, high, high]), [None; 5]);
        assert_eq!(looks(1, &[high, high, high, high]), [None, None, Some(0.006), None]);
        assert_eq!(looks(2, &[high, high, high, high]), [None; 4], "of two ranks each takes half of it");
    }
}
