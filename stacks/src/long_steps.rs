//! Samples the stacks of a training process while one of its steps lasts far longer than usual.
//!
//! The server asks for stacks after a verdict. What happens once is over by then. Each rank therefore watches its own steps, with a
//! look now and then at two numbers that the training thread writes. Ranks that wait for a slow one sample themselves as well,
//! which is what its stacks are compared with.

use std::time::{Duration, Instant};

use agent::{Notes, Progress};
use background::Background;
use wire::clock::MonoNanos;
use wire::stacks::{LongStep, Profile};

use crate::profile;
use crate::window::Window;

/// How much longer than usual a step must last: twice the usual length, but at least the first and at most the second of these.
/// Of steps of some milliseconds, the scheduler makes some ten times as long; of steps of some ten seconds, a few more seconds
/// are worth a look.
const LONGER_BY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));
/// How long a step is sampled at first.
const FIRST_LENGTH: Duration = Duration::from_secs(3);
/// How long it is sampled again if it still lasts. The rank stands still then.
const LATER_LENGTH: Duration = Duration::from_millis(500);
/// The time until it is sampled again. It doubles each time.
const AGAIN_AFTER: Duration = Duration::from_secs(4);
/// The shortest time from one sampling to the next, for up to [`RANKS`] ranks. It grows with the number of ranks, because all
/// ranks that wait for one have long steps at the same time, and one server stores their stacks.
const SHORTEST_BETWEEN: Duration = Duration::from_secs(2);
const RANKS: u32 = 64;
/// How much longer than its own processor time a sampling must be away from the next one, so that all of them take 1 % of a
/// processor at most.
const BUDGET: u32 = 100;
/// The number of samplings after which one long step in two is sampled, after twice as many one in four, and so on.
const EACH_STEP_UNTIL: u32 = 64;
/// The largest size of the stacks of a long step, in bytes.
const MAX_BYTES: usize = 24 << 10;
/// The shortest and the longest time between two looks at the training thread.
const LOOK_EVERY: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// Starts the thread that watches the steps of a training thread. `begin` is called on it once the usual length of steps is known,
/// and makes the sampler; without one, no step is sampled.
pub fn sample_long_steps<S: FnMut(&Window) -> Result<Profile, String>>(
    notes: Notes,
    progress: Progress,
    begin: impl FnOnce() -> Result<S, String> + Send + 'static,
) -> Background {
    Background::start("paceline-long", move |stop| {
        while progress.usual().is_none() {
            if stop.is_asked() {
                return;
            }
            stop.wait(LOOK_EVERY.1);
        }
        let cpu_before = agent::clock::thread_cpu_nanos();
        // The answers to requests for stacks say why there are none.
        let Ok(mut sample) = begin() else { return };
        let began = Duration::from_nanos(agent::clock::thread_cpu_nanos().saturating_sub(cpu_before));
        let mut turns = Turns::new(notes.world_size(), Instant::now() + BUDGET * began);
        while !stop.is_asked() {
            match turns.next(Instant::now(), agent::clock::now(), progress.begun(), progress.usual()) {
                Turn::Wait(length) => stop.wait(length),
                Turn::Sample { begun, usual, length } => {
                    let window = Window::new(length, stop).clipped_to_step(&progress, begun);
                    let (long, cost) = sampled(&window, begun, usual, &mut sample);
                    let lasted = (agent::clock::now() - begun).max(0).unsigned_abs();
                    turns.ended(Instant::now(), Duration::from_nanos(lasted), cost);
                    long.into_iter().for_each(|long| notes.long_step(long));
                }
            }
        }
    })
}

/// Samples a step. Returns its stacks, if there are any, and the processor time that this took.
fn sampled(
    window: &Window,
    begun: MonoNanos,
    usual: Duration,
    sample: &mut impl FnMut(&Window) -> Result<Profile, String>,
) -> (Option<LongStep>, Duration) {
    let (from, cpu_before) = (agent::clock::now(), agent::clock::thread_cpu_nanos());
    let found = crate::guarded(|| sample(window)).ok().filter(|profile| !profile.threads.is_empty());
    let until = agent::clock::now();
    let long = found.map(|found| LongStep {
        begun,
        usual_nanos: usual.as_nanos() as u64,
        from,
        until,
        profile: profile::most_frequent(&found, MAX_BYTES),
    });
    let own = agent::clock::thread_cpu_nanos().saturating_sub(cpu_before);
    (long, window.spent() + Duration::from_nanos(own))
}

/// What to do next.
#[derive(Debug, PartialEq)]
enum Turn {
    Wait(Duration),
    /// Sample the step that began at `begun`, for a length at most.
    Sample {
        begun: MonoNanos,
        usual: Duration,
        length: Duration,
    },
}

/// Decides which steps are sampled, and when.
struct Turns {
    shortest_between: Duration,
    /// The time before which nothing is sampled, because of the budget.
    affordable: Instant,
    /// The time before which nothing usual is sampled.
    ready: Instant,
    /// When the newest sampling began, and how long its step had lasted when it ended.
    began: Instant,
    sampled: Duration,
    /// The newest long step that was seen.
    step: Option<SeenStep>,
    again_after: Duration,
    /// The numbers of long steps that were seen, and of samplings.
    seen: u32,
    samplings: u32,
}

/// A long step that was seen.
#[derive(Clone, Copy)]
struct SeenStep {
    begun: MonoNanos,
    /// Whether it is sampled.
    is_chosen: bool,
    /// When it is sampled next.
    due: Instant,
}

impl Turns {
    fn new(ranks: u32, ready: Instant) -> Self {
        Self {
            shortest_between: SHORTEST_BETWEEN * ranks.div_ceil(RANKS).max(1),
            affordable: ready,
            ready,
            began: ready,
            sampled: Duration::ZERO,
            step: None,
            again_after: AGAIN_AFTER,
            seen: 0,
            samplings: 0,
        }
    }

    /// Decides what to do at a time, on both clocks. `begun` is when the current step began, if there is one.
    fn next(
        &mut self,
        at: Instant,
        now: MonoNanos,
        begun: Option<MonoNanos>,
        usual: Option<Duration>,
    ) -> Turn {
        let (Some(begun), Some(usual)) = (begun, usual) else { return Turn::Wait(LOOK_EVERY.1) };
        let lasts = Duration::from_nanos((now - begun).max(0).unsigned_abs());
        let wait = |length: Duration| Turn::Wait(length.clamp(LOOK_EVERY.0, LOOK_EVERY.1));
        let left = long_after(usual).saturating_sub(lasts);
        if !left.is_zero() {
            return wait(left);
        }
        let (SeenStep { is_chosen, due, .. }, is_first) = self.step_at(begun, at);
        // A step that is far longer than the one that was sampled last does not wait for its turn.
        let until_far_longer = (2 * self.sampled).saturating_sub(lasts);
        if !is_chosen && !until_far_longer.is_zero() {
            return wait(until_far_longer);
        }
        let ready = if until_far_longer.is_zero() { self.affordable } else { self.ready };
        let left = ready.max(due).saturating_duration_since(at);
        if !left.is_zero() {
            return wait(if until_far_longer.is_zero() { left } else { left.min(until_far_longer) });
        }
        self.began = at;
        Turn::Sample { begun, usual, length: if is_first { FIRST_LENGTH } else { LATER_LENGTH } }
    }

    /// Returns whether a long step is one to sample and when, and whether for the first time.
    fn step_at(&mut self, begun: MonoNanos, at: Instant) -> (SeenStep, bool) {
        if let Some(step) = self.step
            && step.begun == begun
        {
            return (step, self.again_after == AGAIN_AFTER);
        }
        let one_in = 1_u32 << (self.samplings / EACH_STEP_UNTIL).min(16);
        let is_chosen = self.seen.is_multiple_of(one_in);
        self.seen = self.seen.wrapping_add(1);
        let step = SeenStep { begun, is_chosen, due: at };
        self.step = Some(step);
        self.again_after = AGAIN_AFTER;
        (step, true)
    }

    /// Notes that a sampling ended, which took `cost` of processor time. Its step had lasted for `lasted` by then.
    fn ended(&mut self, at: Instant, lasted: Duration, cost: Duration) {
        self.samplings = self.samplings.saturating_add(1);
        self.sampled = lasted;
        self.affordable = self.began + BUDGET * cost;
        self.ready = self.affordable.max(self.began + self.shortest_between);
        if let Some(step) = &mut self.step {
            step.due = at + self.again_after;
        }
        self.again_after = self.again_after.saturating_mul(2);
    }
}

/// Returns how long a step lasts before it counts as long.
fn long_after(usual: Duration) -> Duration {
    usual + (2 * usual).clamp(LONGER_BY.0, LONGER_BY.1)
}

#[cfg(test)]
mod tests;
