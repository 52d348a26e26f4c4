//! Compares the stacks of two ranks: in which line of code one spends more of its time than the other.

mod busiest;

use std::collections::BTreeMap;

pub use busiest::{LossPlace, busiest, is_of_training, workers_at_work};
use wire::stacks::{Frame, Profile, Stack, ThreadRole};

/// How much larger a rank's share of samples in a function must be than another rank's. In a trial of 1 s, a rank compared
/// with itself differed by 0.06.
const NOTABLE_GAIN: f64 = 0.15;
/// The least gain, if chance does not explain it: a rank that loses a fifth of a step in a line has few samples there.
const LEAST_GAIN: f64 = 0.05;
/// The least gain in standard deviations of the difference of two shares, for a gain below [`NOTABLE_GAIN`]: p = 0.0005 for one of the
/// tens of functions and lines that a training loop runs.
const LEAST_DEVIATIONS: f64 = 3.3;
/// All functions on the way to a slow line have about the gain of that line. Of those with this share of the largest
/// gain, the innermost one is named.
const NEARLY_ALL: f64 = 0.8;

/// Parts of the paths of files that are not the user's code: of Python, with Paceline's own package at the end, and of Rust.
const LIBRARIES: [&str; 7] = [
    "/site-packages/",
    "/dist-packages/",
    "/lib/python",
    "<frozen ",
    "/paceline/_",
    "/rustc/",
    "/.cargo/registry/",
];
/// The ends of the names of files in a native library that has debug information, such as the C library.
const NATIVE_SOURCES: [&str; 3] = [".c", ".h", ".S"];
/// The first words of native functions that are not the user's code, where no file is known: Rust's library, and
/// Paceline's own crates.
const NATIVE_LIBRARIES: [&str; 5] = ["std::", "core::", "alloc::", "__rustc", "paceline_"];

/// The largest part of the time in a line that another rank spends there as well, if the line is one rank's own.
const COMMON: f64 = 0.2;

/// A line of code in which one rank spends more of its time than another.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    pub role: ThreadRole,
    /// The innermost frame of the user's own code.
    pub frame: Frame,
    /// The innermost frame of a library that the user's code called there, if it is in one.
    pub inner: Option<Frame>,
    /// Whether the shares are those of the whole innermost function, because no single line of it stands out.
    pub is_whole_function: bool,
    /// The share of the rank's samples in it.
    pub share: f64,
    /// The share of the other rank's samples in it.
    pub other_share: f64,
    /// The number of samples of the rank.
    pub samples: u64,
}

impl Place {
    /// Returns true if the other rank spends so much of its time there that both run the same code, and one is slower.
    #[must_use]
    pub fn is_common(&self) -> bool {
        self.other_share > COMMON * self.share
    }

    /// Returns the line, and the library's function that it called: `data.py:12 (decode) → PIL/Image.py:3513 (open)`. If a
    /// whole function stands out, returns its most frequent line: `data.py:12 and other lines of decode`.
    #[must_use]
    pub fn location(&self) -> String {
        let innermost = self.inner.as_ref().unwrap_or(&self.frame);
        let named = match self.is_whole_function && !innermost.file.is_empty() {
            true => format!("{} and other lines of {}", line(innermost), innermost.function),
            false => location(innermost),
        };
        if self.inner.is_some() { format!("{} → {named}", location(&self.frame)) } else { named }
    }
}

/// A function, and one of its lines or all of them.
type Key<'a> = (&'a str, &'a str, Option<u32>);

/// A function in the stacks of a thread.
#[derive(Default)]
struct Node {
    /// The number of samples that have it.
    count: u64,
    /// The sum, over these samples, of how many frames were around its outermost call. Calls of modules by modules have the
    /// same functions on the stack several times.
    depths: u64,
}

impl Node {
    /// Returns how many frames were around its outermost call in the mean.
    fn depth(&self) -> f64 {
        self.depths as f64 / self.count.max(1) as f64
    }
}

/// The samples of the threads of one role.
#[derive(Default)]
struct Threads<'a> {
    samples: u64,
    nodes: BTreeMap<Key<'a>, Node>,
    stacks: Vec<(&'a Stack, &'a [Frame])>,
}

impl<'a> Threads<'a> {
    fn new(profile: &'a Profile, role: ThreadRole) -> Self {
        let mut threads = Self::default();
        for thread in profile.threads.iter().filter(|thread| thread.role == role) {
            threads.samples += thread.samples;
            for stack in &thread.stacks {
                threads.add(stack, &profile.frames);
            }
        }
        threads
    }

    fn add(&mut self, stack: &'a Stack, frames: &'a [Frame]) {
        let mut seen = Vec::new();
        for (depth, frame) in stack.frames.iter().filter_map(|at| frames.get(*at as usize)).enumerate() {
            for key in [key(frame, true), key(frame, false)] {
                // A function that calls itself counts once.
                if !seen.contains(&key) {
                    seen.push(key);
                    let node = self.nodes.entry(key).or_default();
                    node.count += stack.count;
                    node.depths += stack.count * depth as u64;
                }
            }
        }
        self.stacks.push((stack, frames));
    }

    fn share(&self, key: &Key<'_>) -> f64 {
        self.nodes.get(key).map_or(0.0, |node| node.count as f64 / self.samples.max(1) as f64)
    }

    /// Returns the key that is the innermost of these in most samples; of a function and its line, the line. A stack that was
    /// read while it changed may lack its outer frames, so that one sample says little of what is inside of what.
    fn innermost(&self, keys: &[Key<'a>]) -> Option<Key<'a>> {
        let mut counts: BTreeMap<Key<'a>, u64> = BTreeMap::new();
        for (stack, frames) in &self.stacks {
            let way: Vec<&Frame> = stack.frames.iter().filter_map(|at| frames.get(*at as usize)).collect();
            let outermost_call =
                |wanted: &Key<'a>| way.iter().position(|frame| key(frame, wanted.2.is_some()) == *wanted);
            let found =
                keys.iter().filter_map(|wanted| Some((outermost_call(wanted)?, wanted.2.is_some(), wanted)));
            if let Some((_, _, innermost)) = found.max_by_key(|(at, is_line, _)| (*at, *is_line)) {
                *counts.entry(*innermost).or_default() += stack.count;
            }
        }
        counts.into_iter().max_by_key(|(_, count)| *count).map(|(key, _)| key)
    }

    /// Returns the user's innermost frame, and the library's that it called, in the most frequent stack through `key`.
    fn frames_of(&self, key: &Key<'_>) -> Option<(&'a Frame, Option<&'a Frame>)> {
        let on_way = |(stack, frames): &(&'a Stack, &'a [Frame])| {
            let mut way: Vec<&'a Frame> =
                stack.frames.iter().filter_map(|at| frames.get(*at as usize)).collect();
            let last = way.iter().position(|frame| self::key(frame, key.2.is_some()) == *key)?;
            way.truncate(last + 1);
            Some((stack.count, way))
        };
        let (_, way) = self.stacks.iter().filter_map(on_way).max_by_key(|(count, _)| *count)?;
        let innermost = way.last()?;
        let own = way.iter().rev().find(|frame| !is_library(frame))?;
        Some((own, is_library(innermost).then_some(innermost)))
    }
}

fn key(frame: &Frame, with_line: bool) -> Key<'_> {
    (&frame.function, &frame.file, with_line.then_some(frame.line))
}

/// Returns whether a frame is not in the user's code: in the language's library, an installed package, or native code that
/// has no Rust path.
#[must_use]
pub fn is_library(frame: &Frame) -> bool {
    if !frame.file.is_empty() {
        return LIBRARIES.iter().any(|part| frame.file.contains(part))
            || NATIVE_SOURCES.iter().any(|end| frame.file.ends_with(end));
    }
    // `<alloc::vec::Vec<T> as Trait>::method` is a function of the type.
    let path = frame.function.trim_start_matches(['<', '&', '*']);
    !path.contains("::") || NATIVE_LIBRARIES.iter().any(|library| path.starts_with(library))
}

/// Returns a frame as `data.py:12 (decode)`, or as the function alone if its file is unknown.
#[must_use]
pub fn location(frame: &Frame) -> String {
    if frame.file.is_empty() {
        frame.function.clone()
    } else {
        format!("{} ({})", line(frame), frame.function)
    }
}

/// Returns a frame's line as `data.py:12`. The file of a library keeps the folders of its package.
fn line(frame: &Frame) -> String {
    let packaged = frame.file.rsplit_once("-packages/").map(|(_, file)| file);
    let file = packaged.or_else(|| frame.file.rsplit('/').next()).unwrap_or(&frame.file);
    format!("{file}:{}", frame.line)
}

/// A line of the user's code, and the share of a rank's samples in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Gain {
    /// The line.
    pub frame: Frame,
    /// The share of the rank's samples in which it was running or calling.
    pub share: f64,
    /// The same share of another rank; `None` without one.
    pub other_share: Option<f64>,
}

/// Returns the lines of the user's code in which a rank's threads of a role were, those with the largest gain over the other
/// rank first, and of equal ones the innermost.
#[must_use]
pub fn gains(own: &Profile, other: Option<&Profile>, role: ThreadRole) -> Vec<Gain> {
    let (own, other) = (Threads::new(own, role), other.map(|other| Threads::new(other, role)));
    let gain = |(&(function, file, line), node): (&Key<'_>, &Node)| {
        let frame = Frame { function: function.into(), file: file.into(), line: line? };
        if is_library(&frame) {
            return None;
        }
        let key = (function, file, line);
        let other_share = other.as_ref().map(|other| other.share(&key));
        Some((node.depth(), Gain { frame, share: own.share(&key), other_share }))
    };
    let mut gains: Vec<(f64, Gain)> = own.nodes.iter().filter_map(gain).collect();
    let size = |gain: &Gain| gain.share - gain.other_share.unwrap_or(0.0);
    gains.sort_by(|(depth_a, a), (depth_b, b)| size(b).total_cmp(&size(a)).then(depth_b.total_cmp(depth_a)));
    gains.into_iter().map(|(_, gain)| gain).collect()
}

/// Returns the frames of a stack, outermost first. Of successive frames in libraries, the innermost one is shown.
#[must_use]
pub fn way(profile: &Profile, stack: &Stack) -> String {
    let frames = frames_of(profile, stack);
    let shown = frames.iter().enumerate().filter(|(at, frame)| {
        !is_library(frame) || frames.get(at + 1).is_none_or(|called| !is_library(called))
    });
    shown.map(|(_, frame)| location(frame)).collect::<Vec<_>>().join(" → ")
}

/// Returns where a rank's main thread mostly is: the innermost frame of the user's code, and the library's that it called
/// there. `None` if it has no stack.
#[must_use]
pub fn standing(profile: &Profile) -> Option<String> {
    let main = profile.threads.iter().find(|thread| thread.role == ThreadRole::Main)?;
    let frames = frames_of(profile, main.stacks.first()?);
    let innermost = frames.last()?;
    let own = frames.iter().rev().find(|frame| !is_library(frame)).unwrap_or(innermost);
    let called = if own == innermost { String::new() } else { format!(" → {}", location(innermost)) };
    Some(format!("{}{called}", location(own)))
}

fn frames_of<'a>(profile: &'a Profile, stack: &Stack) -> Vec<&'a Frame> {
    stack.frames.iter().filter_map(|at| profile.frames.get(*at as usize)).collect()
}

/// Returns where a rank spends more of its time than another; `None` if no function stands out. `by_workers` says that
/// worker processes may be the reason.
#[must_use]
pub fn place(own: &Profile, other: &Profile, by_workers: bool) -> Option<Place> {
    let stands_out = |role| place_of_threads(role, &Threads::new(own, role), &Threads::new(other, role));
    let workers = if by_workers { stands_out(ThreadRole::Worker) } else { None };
    workers.or_else(|| stands_out(ThreadRole::Main))
}

fn place_of_threads(role: ThreadRole, own: &Threads<'_>, other: &Threads<'_>) -> Option<Place> {
    if own.samples == 0 || other.samples == 0 {
        return None;
    }
    let gain = |key: &Key<'_>| own.share(key) - other.share(key);
    let is_notable = |key: &&Key<'_>| {
        let gain = gain(key);
        gain >= NOTABLE_GAIN || gain >= LEAST_GAIN && deviations(own, other, key) >= LEAST_DEVIATIONS
    };
    let most = own.nodes.keys().filter(is_notable).map(gain).fold(0.0, f64::max);
    if most == 0.0 {
        return None;
    }
    let nearly_all: Vec<Key<'_>> =
        own.nodes.keys().filter(|key| gain(key) >= NEARLY_ALL * most).copied().collect();
    let key = own.innermost(&nearly_all)?;
    let (frame, inner) = own.frames_of(&key)?;
    Some(Place {
        role,
        frame: frame.clone(),
        inner: inner.cloned(),
        is_whole_function: key.2.is_none(),
        share: own.share(&key),
        other_share: other.share(&key),
        samples: own.samples,
    })
}

/// Returns how much larger the share of samples in a function is than that of the other rank, in standard deviations that this
/// difference has if both ranks are equal (the pooled test of two proportions).
fn deviations(own: &Threads<'_>, other: &Threads<'_>, key: &Key<'_>) -> f64 {
    let (n, m) = (own.samples as f64, other.samples as f64);
    let (share, usual) = (own.share(key), other.share(key));
    let pooled = (share * n + usual * m) / (n + m);
    (share - usual) / (pooled * (1.0 - pooled) * (1.0 / n + 1.0 / m)).sqrt()
}

#[cfg(test)]
pub(crate) mod tests {
    use wire::stacks::ThreadStacks;

    use super::*;

    /// Frames, outermost first, as functions, files and lines; and the number of samples.
    type Sampled<'a> = (&'a [(&'a str, &'a str, u32)], u64);

    pub(super) fn profile(threads: &[(ThreadRole, &[Sampled<'_>])]) -> Profile {
        let mut profile = Profile::default();
        for (role, stacks) in threads {
            let stacks: Vec<Stack> = stacks
                .iter()
                .map(|(frames, count)| {
                    let numbers = frames.iter().map(|&(function, file, line)| {
                        let frame = Frame { function: function.into(), file: file.into(), line };
                        let known = profile.frames.iter().position(|known| *known == frame);
                        known.unwrap_or_else(|| {
                            profile.frames.push(frame);
                            profile.frames.len() - 1
                        }) as u32
                    });
                    Stack { count: *count, frames: numbers.collect() }
                })
                .collect();
            let thread =
                ThreadStacks { role: *role, name: String::new(), processes: 1, samples: 100, stacks };
            profile.threads.push(thread);
        }
        profile
    }

    const MODULE: (&str, &str, u32) = ("<module>", "train.py", 90);
    const BACKWARD: (&str, &str, u32) = ("backward", "/lib/site-packages/torch/_tensor.py", 500);

    #[test]
    fn the_innermost_function_with_nearly_all_of_the_difference_is_named() {
        let main = ("main", "train.py", 60);
        let waiting = profile(&[(ThreadRole::Main, &[(&[MODULE, main, BACKWARD], 95)])]);
        let get = ("__getitem__", "data.py", 12);
        let slow = profile(&[(
            ThreadRole::Main,
            &[
                (
                    &[
                        MODULE,
                        ("main", "train.py", 55),
                        ("next", "/lib/python3.11/x.py", 7),
                        get,
                        ("decode", "data.py", 20),
                    ],
                    65,
                ),
                (
                    &[
                        MODULE,
                        ("main", "train.py", 55),
                        ("next", "/lib/python3.11/x.py", 7),
                        get,
                        ("decode", "data.py", 21),
                    ],
                    20,
                ),
                (&[MODULE, main, BACKWARD], 10),
            ],
        )]);
        let place = place(&slow, &waiting, false).unwrap();
        // Both lines of the function count, and its most frequent one is named.
        assert_eq!((place.frame.function.as_str(), place.frame.line), ("decode", 20));
        assert_eq!(place.location(), "data.py:20 and other lines of decode");
        assert_eq!((place.inner, place.share, place.other_share), (None, 0.85, 0.0));
        assert_eq!(super::place(&waiting, &waiting, false), None);
    }

    #[test]
    fn a_small_difference_is_named_if_chance_does_not_explain_it() {
        let get = ("get_batch", "train.py", 116);
        let profile_with = |samples| {
            profile(&[(ThreadRole::Main, &[(&[MODULE, get], samples), (&[MODULE, BACKWARD], 100 - samples)])])
        };
        // 13 of 100 samples against none is not chance; 9 against none, or 33 against 20, may be.
        assert_eq!(
            place(&profile_with(13), &profile_with(0), false).map(|place| place.frame.line),
            Some(116)
        );
        assert_eq!(place(&profile_with(9), &profile_with(0), false), None);
        assert_eq!(place(&profile_with(33), &profile_with(20), false), None);
    }

    #[test]
    fn a_function_that_is_on_the_stack_twice_hides_none_that_it_calls() {
        let call = ("_call_impl", "/lib/python3/site-packages/torch/nn/modules/module.py", 1);
        let (forward, inner) = (("forward", "model.py", 33), ("forward", "model.py", 34));
        let slow = profile(&[(
            ThreadRole::Main,
            &[(&[MODULE, call, forward], 60), (&[MODULE, call, inner, call], 10), (&[MODULE, BACKWARD], 30)],
        )]);
        let usual =
            profile(&[(ThreadRole::Main, &[(&[MODULE, call, inner, call], 5), (&[MODULE, BACKWARD], 95)])]);
        assert_eq!(place(&slow, &usual, false).unwrap().frame.line, 33);
        // The other rank is in another line of the same function, which is not a reason to blame all of it.
        let found = place(&slow, &usual, false).unwrap();
        assert_eq!((found.location().as_str(), found.other_share), ("model.py:33 (forward)", 0.0));
    }

    #[test]
    fn a_stack_that_was_read_while_it_changed_misleads_about_no_other() {
        let next = ("__next__", "/lib/python3.11/site-packages/torch/utils/data/dataloader.py", 725);
        let fetch = ("fetch", "/lib/python3.11/site-packages/torch/utils/data/_utils/fetch.py", 35);
        let get = ("__getitem__", "data.py", 12);
        let slow = profile(&[(
            ThreadRole::Main,
            // The second one lacks its outer frames.
            &[(&[MODULE, next, fetch, get], 60), (&[fetch, get], 2), (&[MODULE, BACKWARD], 38)],
        )]);
        let usual = profile(&[(ThreadRole::Main, &[(&[MODULE, BACKWARD], 100)])]);
        assert_eq!(place(&slow, &usual, false).unwrap().location(), "data.py:12 (__getitem__)");
        let listed: Vec<u32> =
            gains(&slow, Some(&usual), ThreadRole::Main).iter().map(|gain| gain.frame.line).collect();
        assert_eq!(listed, [12, 90]);
    }

    #[test]
    fn lines_of_the_users_code_are_listed_with_the_innermost_of_equal_ones_first() {
        let get = ("__getitem__", "data.py", 12);
        let slow = profile(&[(
            ThreadRole::Main,
            &[(&[MODULE, get, ("decode", "data.py", 20)], 80), (&[MODULE, BACKWARD], 20)],
        )]);
        let usual = profile(&[(ThreadRole::Main, &[(&[MODULE, BACKWARD], 100)])]);
        let listed = gains(&slow, Some(&usual), ThreadRole::Main);
        let listed: Vec<(u32, f64)> = listed.iter().map(|gain| (gain.frame.line, gain.share)).collect();
        assert_eq!(listed, [(20, 0.8), (12, 0.8), (90, 1.0)]);
        assert_eq!(gains(&slow, None, ThreadRole::Main)[0].other_share, None);
    }

    #[test]
    fn native_functions_without_lines_are_told_apart_from_libraries() {
        let native = |function: &str| Frame { function: function.into(), file: String::new(), line: 0 };
        for library in [
            "std::rt::lang_start",
            "<alloc::vec::Vec<T> as core::clone::Clone>::clone",
            "paceline_reducer::worker::Worker<M>::wait",
            "__libc_start_call_main",
            "[libcublas.so.12]",
        ] {
            assert!(is_library(&native(library)), "{library}");
        }
        let libc = Frame { function: "syscall".into(), file: "../sysdeps/syscall.S".into(), line: 36 };
        assert!(is_library(&libc));
        let main = [("std::rt::lang_start", "", 0), ("train::main", "", 0)];
        let (read, wait) = (("train::data::read", "", 0), ("paceline_reducer::finish_step", "", 0));
        let slow = profile(&[(
            ThreadRole::Main,
            &[(&[main[0], main[1], read, ("nanosleep", "", 0)], 80), (&main, 20)],
        )]);
        let usual = profile(&[(ThreadRole::Main, &[(&[main[0], main[1], wait], 100)])]);
        assert_eq!(place(&slow, &usual, false).unwrap().location(), "train::data::read → nanosleep");
        assert_eq!(standing(&usual), Some("train::main → paceline_reducer::finish_step".into()));
    }

    #[test]
    fn a_line_of_the_main_module_differs_although_its_function_is_always_on_the_stack() {
        let slow = profile(&[(
            ThreadRole::Main,
            &[(&[("<module>", "train.py", 33)], 70), (&[MODULE, BACKWARD], 30)],
        )]);
        let usual = profile(&[(ThreadRole::Main, &[(&[MODULE, BACKWARD], 100)])]);
        let place = place(&slow, &usual, true).unwrap();
        assert_eq!((place.frame.line, place.share), (33, 0.7));
    }

    #[test]
    fn the_users_line_is_named_with_the_library_it_calls_and_workers_come_first() {
        let get = ("__getitem__", "data.py", 12);
        let open = ("open", "/lib/python3.11/site-packages/PIL/Image.py", 3_000);
        let idle = ("get", "/lib/python3.11/multiprocessing/queues.py", 100);
        let main: &[Sampled<'_>] = &[(&[MODULE, idle], 90)];
        let busy = [(&[get, open][..], 80), (&[idle][..], 20)];
        let slow = profile(&[(ThreadRole::Main, main), (ThreadRole::Worker, &busy)]);
        let waiting = [(&[get, open][..], 5), (&[idle][..], 95)];
        let usual =
            profile(&[(ThreadRole::Main, &[(&[MODULE, BACKWARD], 100)]), (ThreadRole::Worker, &waiting)]);
        let workers = place(&slow, &usual, true).unwrap();
        assert_eq!((workers.role, workers.frame.line), (ThreadRole::Worker, 12));
        assert_eq!(workers.inner.map(|frame| frame.function), Some("open".into()));
        assert_eq!(place(&slow, &usual, false).unwrap().role, ThreadRole::Main);
    }
}
