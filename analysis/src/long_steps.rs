//! The line of code in which a rank stands while its steps are far longer than usual, from the stacks that it samples then.
//!
//! Ranks that wait for a slow rank have long steps at the same time, and sample their own stacks. What they do meanwhile is to
//! wait, so the line in which the slow rank spends more of its time than they do is the reason.

use std::collections::BTreeMap;

use timing::clocks::ClockFit;
use wire::clock::ServerNanos;
use wire::stacks::{Frame, LongStep, Profile, Stack, ThreadRole, ThreadStacks};

use crate::stacks::{self, Place};

/// Returns the profiles of the stacks that were sampled while some part of a time passed, oldest first. `fit` is the rank's clock.
#[must_use]
pub fn profiles_within<'a>(
    long_steps: impl IntoIterator<Item = &'a LongStep>,
    fit: &ClockFit,
    (from, until): (ServerNanos, ServerNanos),
) -> Vec<&'a Profile> {
    let is_within = |long: &&LongStep| fit.align(long.begun) < until && fit.align(long.until) > from;
    long_steps.into_iter().filter(is_within).map(|long| &long.profile).collect()
}

/// Returns the line in which a rank stands in its long steps, more than others do. `own` are the rank's profiles, `others` those
/// of ranks that had long steps at the same time, or of the rank itself at usual times. Without `others`, the innermost line
/// counts in which the rank stands most of the time: all ranks may stand still alike. `by_workers` says that worker processes may
/// be the reason. `None` if no line stands out.
#[must_use]
pub fn long_line(own: &[&Profile], others: &[&Profile], by_workers: bool) -> Option<Place> {
    let own = merged(own);
    let other = if others.is_empty() { emptied(&own) } else { merged(others) };
    stacks::place(&own, &other, by_workers)
}

/// Returns a profile of the same threads that are nowhere, so that all of the other's time is more than its own.
fn emptied(profile: &Profile) -> Profile {
    let threads = profile.threads.iter().map(|thread| ThreadStacks { stacks: Vec::new(), ..thread.clone() });
    Profile { threads: threads.collect(), ..Profile::default() }
}

/// Merges profiles of one rank, or of several, into one. Threads of one role and name become one.
#[must_use]
pub fn merged(profiles: &[&Profile]) -> Profile {
    let mut merging = Merging::default();
    profiles.iter().for_each(|profile| merging.add(profile));
    merging.finish()
}

/// The samples of a thread.
#[derive(Default)]
struct Samples {
    processes: u32,
    samples: u64,
    stacks: BTreeMap<Vec<u32>, u64>,
}

/// The profiles merged so far.
#[derive(Default)]
struct Merging<'a> {
    numbers: BTreeMap<&'a Frame, u32>,
    threads: BTreeMap<(ThreadRole, &'a str), Samples>,
    torn: u64,
}

impl<'a> Merging<'a> {
    fn add(&mut self, profile: &'a Profile) {
        self.torn += profile.torn;
        let mut number = |frame: &'a Frame| {
            let next = self.numbers.len() as u32;
            *self.numbers.entry(frame).or_insert(next)
        };
        let numbers: Vec<u32> = profile.frames.iter().map(&mut number).collect();
        for thread in &profile.threads {
            let merged = self.threads.entry((thread.role, &thread.name)).or_default();
            merged.processes = merged.processes.max(thread.processes);
            merged.samples += thread.samples;
            for stack in &thread.stacks {
                let frames = stack.frames.iter().filter_map(|at| numbers.get(*at as usize).copied());
                *merged.stacks.entry(frames.collect()).or_default() += stack.count;
            }
        }
    }

    fn finish(self) -> Profile {
        let mut frames: Vec<(&Frame, u32)> = self.numbers.into_iter().collect();
        frames.sort_by_key(|(_, number)| *number);
        let threads = self.threads.into_iter().map(|((role, name), merged)| {
            let Samples { processes, samples, stacks } = merged;
            let stacks = stacks.into_iter().map(|(frames, count)| Stack { count, frames });
            let mut stacks: Vec<Stack> = stacks.collect();
            stacks.sort_by_key(|stack| std::cmp::Reverse(stack.count));
            ThreadStacks { role, name: name.to_owned(), processes, samples, stacks }
        });
        let frames = frames.into_iter().map(|(frame, _)| frame.clone()).collect();
        Profile { frames, threads: threads.collect(), torn: self.torn }
    }
}

#[cfg(test)]
mod tests {
    use wire::clock::MonoNanos;

    use super::*;

    /// A profile of a main thread: stacks as functions of `train.py` with their lines, outermost first, and their counts.
    fn profile(stacks: &[(&[(&str, u32)], u64)]) -> Profile {
        let frames: Vec<Frame> = stacks
            .iter()
            .flat_map(|(frames, _)| frames.iter())
            .map(|&(function, line)| Frame { function: function.into(), file: "train.py".into(), line })
            .collect();
        let mut next = 0..;
        let stacks: Vec<Stack> = stacks
            .iter()
            .map(|(frames, count)| Stack {
                count: *count,
                frames: next.by_ref().take(frames.len()).collect(),
            })
            .collect();
        let samples = stacks.iter().map(|stack| stack.count).sum();
        let main =
            ThreadStacks { role: ThreadRole::Main, name: String::new(), processes: 1, samples, stacks };
        Profile { frames, threads: vec![main], torn: 1 }
    }

    const SAVES: &[(&str, u32)] = &[("<module>", 40), ("save", 21)];
    const WAITS: &[(&str, u32)] = &[("<module>", 38), ("backward", 9)];

    #[test]
    fn the_line_of_a_slow_rank_is_found_against_ranks_that_wait_for_it() {
        let slow = [profile(&[(SAVES, 9), (WAITS, 1)]), profile(&[(SAVES, 6)])];
        let waits = profile(&[(WAITS, 20)]);
        let own: Vec<&Profile> = slow.iter().collect();
        let place = long_line(&own, &[&waits], false).expect("a line stands out");
        assert_eq!((place.location().as_str(), place.samples), ("train.py:21 (save)", 16));
        assert_eq!((place.share, place.other_share), (15.0 / 16.0, 0.0));
        assert_eq!(long_line(&own, &own, false), None, "all ranks do the same");
    }

    #[test]
    fn without_others_the_line_in_which_a_rank_mostly_stands_is_found() {
        let still = profile(&[(SAVES, 9), (WAITS, 1)]);
        let place = long_line(&[&still], &[], true).expect("a line stands out");
        assert_eq!(place.location(), "train.py:21 (save)");
        assert_eq!(long_line(&[], &[], true), None);
    }

    #[test]
    fn merged_profiles_share_frames_and_count_the_stacks_of_both() {
        let (first, second) = (profile(&[(SAVES, 3)]), profile(&[(WAITS, 2), (SAVES, 4)]));
        let both = merged(&[&first, &second]);
        assert_eq!((both.frames.len(), both.threads.len(), both.torn), (4, 1, 2));
        let main = &both.threads[0];
        assert_eq!(main.samples, 9);
        let counts: Vec<(u64, &str)> = main
            .stacks
            .iter()
            .map(|stack| (stack.count, both.frames[stack.frames[1] as usize].function.as_str()))
            .collect();
        assert_eq!(counts, [(7, "save"), (2, "backward")]);
    }

    #[test]
    fn stacks_count_at_the_time_when_their_step_lasted() {
        let long = |begun, until| LongStep {
            begun: MonoNanos(begun),
            usual_nanos: 10,
            from: MonoNanos(until - 20),
            until: MonoNanos(until),
            profile: Profile::default(),
        };
        let long_steps = [long(100, 200), long(300, 400), long(500, 600)];
        let count = |from, until| {
            profiles_within(&long_steps, &ClockFit::exact(), (ServerNanos(from), ServerNanos(until))).len()
        };
        assert_eq!([count(0, 100), count(150, 350), count(200, 300), count(0, 900)], [0, 2, 0, 3]);
    }
}
