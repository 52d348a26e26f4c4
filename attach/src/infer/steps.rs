//! Finds training steps, which an unmodified job does not mark, in the order of its collectives.
//!
//! A training step issues the same collectives as the step before, so the shortest repeating sequence is a step. All ranks
//! must choose alike where it begins, or their collectives would be compared across steps. Therefore only what ranks share
//! counts. Idle times are not shared: a rank that waits for another one is idle for less. The order of collectives is
//! shared, and shows the begin where some of them reduce gradients and others do not ([`first_by_order`]). Where all reduce, as in
//! plain data parallelism, the forward pass is the longest time from the end of one to the end of the next: ranks
//! leave a reduction together ([`first_after_pause`]).
//!
//! If optimizer updates are reported, the first collective after an update starts a step. This also works for buckets
//! that all look alike, and for steps that have other collectives now and then, such as those of logging, a checkpoint or
//! an evaluation.
//!
//! Step numbers must not depend on when a rank finds its steps. They are computed from the count of collectives, or are
//! the count of updates, which are the same on all ranks.

use std::collections::VecDeque;
use std::num::NonZeroU32;

use wire::clock::MonoNanos;
use wire::event::Source;
use wire::ids::{Bucket, Step};

use crate::call_log::Function;
use crate::infer::collective::{Collective, Timed};
use crate::sampling::Steps;

/// The number of collectives remembered while no period is known. A step may have a third of them.
const HISTORY: usize = 8_192;
/// The number of times a period must repeat.
const REPEATS: usize = 3;
/// The time a period must be seen for, in nanoseconds. The collectives of one layer repeat as well, for the length of
/// one pass.
const FIRST_PATIENCE_NANOS: i64 = 1_000_000_000;
/// The limit of that time, in nanoseconds. The time doubles whenever a period turns out not to be a step.
const MAX_PATIENCE_NANOS: i64 = 60_000_000_000;
/// The number of updates after which they define the steps even if no sequence repeats.
const MIN_UPDATES: usize = 16;
/// How long a repeating sequence is awaited nevertheless, in nanoseconds. A job with several optimizers updates several times
/// per step.
const UPDATES_PATIENCE_NANOS: i64 = 4_000_000_000;
/// The share of the steps between updates that must have the same collectives to be the job's steps.
const USUAL: f64 = 0.6;
/// The number of steps in a row of another shape after which that shape is the usual one.
const NEW_SHAPE: u32 = 8;

/// The factor by which the longest pause must exceed the second longest to begin a step.
const CLEAR_PAUSE: f64 = 2.0;

/// The features that identify a collective across steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Token {
    function: Function,
    bytes: u64,
}

impl Token {
    /// Reads the features of a collective. The payload of a message or an all-to-all is ignored: it depends on the
    /// samples when a model has experts or sequences differ in length.
    fn new(collective: &Collective) -> Self {
        let Collective { function, bytes, .. } = *collective;
        let is_even = !matches!(function, Function::SendReceive | Function::AllToAll);
        Self { function, bytes: if is_even { bytes } else { 0 } }
    }

    /// Returns whether the collective sums values of all ranks, as collectives of gradients do.
    fn reduces(self) -> bool {
        matches!(self.function, Function::Reduce | Function::ReduceScatter | Function::AllReduce)
    }
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    token: Token,
    /// See [`Collective::begins`].
    begins: Option<NonZeroU32>,
    seq: u64,
    launch: MonoNanos,
    /// The time since the communicator's collectives before it had ended until it ended, in nanoseconds; `None` if its end is not
    /// known.
    took: Option<i64>,
}

/// The step that a collective belongs to, and its index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepPosition {
    /// The step.
    pub step: Step,
    /// The index among the step's collectives.
    pub bucket: Bucket,
    /// Whether this is the last collective of the step.
    pub is_last: bool,
}

/// Finds the steps in the collectives of one communicator.
#[derive(Debug)]
pub struct StepFinder {
    history: VecDeque<Seen>,
    period: Option<Period>,
    patience_nanos: i64,
    seen: usize,
    /// When the last of the collectives so far ended.
    ran_until: MonoNanos,
}

impl Default for StepFinder {
    fn default() -> Self {
        Self {
            history: VecDeque::new(),
            period: None,
            patience_nanos: FIRST_PATIENCE_NANOS,
            seen: 0,
            ran_until: MonoNanos(0),
        }
    }
}

/// A repeating sequence of collectives.
#[derive(Debug)]
struct Period {
    /// The collectives of a step, in order.
    tokens: Vec<Token>,
    /// The index of the next expected collective.
    next: usize,
    /// The current step.
    step: Step,
    /// The number of tokens with the function of the first one.
    per_step: u64,
    /// The sequence number of the first token in step 0.
    phase: u64,
    /// The mean duration of a step at the time the period was found, in nanoseconds.
    step_nanos: i64,
    /// Whether an update or a pause shows where steps begin, and not only the order of collectives.
    has_clear_begin: bool,
    /// How steps begin with updates, if they do.
    updates: Option<Updates>,
}

/// Where a collective belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placing {
    /// In a step.
    In(StepPosition),
    /// In no step, because steps are not known, or not from their beginning.
    Nowhere,
    /// Not where it was expected: steps are no longer known.
    Unexpected,
}

/// The steps of a job that reports its updates.
#[derive(Debug, Default)]
struct Updates {
    /// Whether a step has begun since the period was found.
    has_begun: bool,
    /// The collectives of the current step so far.
    newest: Vec<Token>,
    /// The newest shape other than the usual one, and how many steps in a row had it.
    other: (Vec<Token>, u32),
}

impl Period {
    /// Returns the period of steps that begin with updates. Their usual collectives are `tokens`, of which there is one.
    fn by_updates(tokens: Vec<Token>, step_nanos: i64) -> Self {
        let per_step = tokens.iter().filter(|token| token.function == tokens[0].function).count() as u64;
        let updates = Some(Updates::default());
        Self {
            tokens,
            next: 0,
            step: Step(0),
            per_step,
            phase: 0,
            step_nanos,
            has_clear_begin: true,
            updates,
        }
    }

    /// Returns the place of a collective.
    fn place(&mut self, seen: &Seen) -> Placing {
        match self.updates.take() {
            Some(mut updates) => {
                let place = self.place_by_update(seen, &mut updates);
                self.updates = Some(updates);
                place
            }
            None => self.place_by_order(seen).map_or(Placing::Unexpected, Placing::In),
        }
    }

    /// A step begins with the first collective after an update. It ends with its usual last collective. A step with other
    /// collectives ends when the next one begins.
    fn place_by_update(&mut self, seen: &Seen, updates: &mut Updates) -> Placing {
        if let Some(number) = seen.begins {
            if updates.has_begun {
                self.learn(updates);
            }
            self.step = Step(number.get().into());
            updates.has_begun = true;
            updates.newest.clear();
        }
        if !updates.has_begun || updates.newest.len() == HISTORY {
            return Placing::Nowhere;
        }
        let at = updates.newest.len();
        updates.newest.push(seen.token);
        let is_last = updates.newest == self.tokens;
        Placing::In(StepPosition { step: self.step, bucket: Bucket(at as u32), is_last })
    }

    /// Makes the shape of the newest steps the usual one, if they all have it.
    fn learn(&mut self, updates: &mut Updates) {
        let (other, times) = &mut updates.other;
        if updates.newest == self.tokens {
            *times = 0;
        } else if updates.newest == *other {
            *times += 1;
        } else {
            (*other, *times) = (updates.newest.clone(), 1);
        }
        if *times >= NEW_SHAPE {
            self.tokens = std::mem::take(other);
            *times = 0;
        }
    }

    /// Returns the place of a collective in a repeating sequence, or `None` if it is not the expected one.
    fn place_by_order(&mut self, seen: &Seen) -> Option<StepPosition> {
        if self.tokens[self.next] != seen.token {
            return None;
        }
        if self.next == 0 {
            self.step = Step(seen.seq.saturating_sub(self.phase) / self.per_step);
        }
        let at = self.next;
        self.next = (at + 1) % self.tokens.len();
        Some(StepPosition { step: self.step, bucket: Bucket(at as u32), is_last: self.next == 0 })
    }
}

impl StepFinder {
    /// Adds the next collective and returns its place once steps are known. An unexpected collective discards the
    /// period, and the search starts over.
    pub fn place(&mut self, timed: &Timed) -> Placing {
        self.seen += 1;
        let took = (timed.source != Source::Derived).then(|| timed.end - self.ran_until);
        self.ran_until = self.ran_until.max(timed.end);
        let Collective { seq, launch, begins, .. } = timed.collective;
        let seen = Seen { token: Token::new(&timed.collective), begins, seq, launch, took };
        if let Some(period) = &mut self.period {
            let place = period.place(&seen);
            if place == Placing::Unexpected {
                self.period = None;
                self.patience_nanos = (2 * self.patience_nanos).min(MAX_PATIENCE_NANOS);
            }
            return place;
        }
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(seen);
        // A search costs a pass over the history, so a long history is searched rarely.
        if self.history.len().is_multiple_of(1 + self.history.len() / 64) {
            self.period = self.find();
            if self.period.is_some() {
                self.history.clear();
            }
        }
        Placing::Nowhere
    }

    /// Returns whether there were enough collectives for a sequence to repeat.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.seen >= REPEATS
    }

    /// Returns whether the repeating sequence contains messages from one rank to another.
    #[must_use]
    pub fn has_messages(&self) -> bool {
        let of_messages = |token: &Token| token.function == Function::SendReceive;
        self.period.as_ref().is_some_and(|period| period.tokens.iter().any(of_messages))
    }

    /// Returns the bytes of a step's collectives, without messages and all-to-alls; 0 until steps are known.
    #[must_use]
    pub fn step_bytes(&self) -> u64 {
        self.period.iter().flat_map(|period| &period.tokens).map(|token| token.bytes).sum()
    }

    /// Returns the collectives of `communicator`, the one that this finder is for, that make up a step; `None` until
    /// steps are known.
    #[must_use]
    pub(crate) fn steps(&self, communicator: u64) -> Option<Steps> {
        let Period { tokens, phase, per_step, updates, .. } = self.period.as_ref()?;
        let (function, collectives) = (tokens[0].function, tokens.len() as u32);
        let (phase, per_step, by_updates) = (*phase, *per_step, updates.is_some());
        Some(Steps { communicator, function, phase, per_step, collectives, by_updates })
    }

    /// Returns whether more than the order of collectives shows where steps begin and end.
    #[must_use]
    pub fn has_clear_begin(&self) -> bool {
        self.period.as_ref().is_some_and(|period| period.has_clear_begin)
    }

    /// Returns the step of the newest collective; `None` until steps are known.
    #[must_use]
    pub fn newest(&self) -> Option<Step> {
        self.period.as_ref().map(|period| period.step)
    }

    /// Returns the duration of a step in nanoseconds; `None` until steps are known.
    #[must_use]
    pub fn step_nanos(&self) -> Option<i64> {
        self.period.as_ref().map(|period| period.step_nanos)
    }

    /// Finds the smallest period of the newest collectives, over an ever longer part of the history.
    fn find(&self) -> Option<Period> {
        let newest = self.history.back()?.launch;
        let patient = |seen: &&Seen| newest - seen.launch < self.patience_nanos;
        let watched = self.history.iter().rev().take_while(patient).count() + 1;
        // A full history grows no further.
        let mut watched = if self.history.len() == HISTORY { watched.min(HISTORY) } else { watched };
        let periods =
            smallest_periods(self.history.iter().rev().map(|seen| (seen.token, seen.begins.is_some())));
        while watched <= self.history.len() {
            let length = periods[watched - 1];
            if watched >= REPEATS * length {
                let repeats: Vec<Seen> =
                    self.history.range(self.history.len() - watched / length * length..).copied().collect();
                return Some(match usual_shape(&repeats[..length]) {
                    Some(shape) => Period::by_updates(shape, step_nanos(&repeats)?),
                    None => from_repeats(&repeats, length),
                });
            }
            watched *= 2;
        }
        self.find_by_updates()
    }

    /// Returns the steps between updates, once there were many. Their usual shape is that of the newest whole one.
    fn find_by_updates(&self) -> Option<Period> {
        let begins = self.history.iter().enumerate().filter(|(_, seen)| seen.begins.is_some());
        let begins: Vec<usize> = begins.map(|(at, _)| at).collect();
        let (Some(&first), &[.., newest, last]) = (begins.first(), begins.as_slice()) else { return None };
        let watched = self.history[last].launch - self.history[first].launch;
        if begins.len() < MIN_UPDATES || watched < UPDATES_PATIENCE_NANOS {
            return None;
        }
        let shape = self.history.range(newest..last).map(|seen| seen.token).collect();
        Some(Period::by_updates(shape, watched / (begins.len() as i64 - 1)))
    }
}

/// Returns the mean time between updates, in nanoseconds; `None` if there are fewer than two.
fn step_nanos(seen: &[Seen]) -> Option<i64> {
    let mut begins = seen.iter().filter(|seen| seen.begins.is_some());
    let (first, count) = (begins.next()?, begins.clone().count());
    let last = begins.next_back()?;
    Some((last.launch - first.launch) / count as i64)
}

/// Returns the shape of most of a period's steps if several updates in it begin a step each: such a job logs something every
/// few steps. `None` if there is only one update, or if the updates are those of several optimizers, which alternate.
fn usual_shape(period: &[Seen]) -> Option<Vec<Token>> {
    let first = period.iter().position(|seen| seen.begins.is_some())?;
    let mut steps: Vec<Vec<Token>> = Vec::new();
    for seen in period[first..].iter().chain(&period[..first]) {
        match steps.last_mut().filter(|_| seen.begins.is_none()) {
            Some(step) => step.push(seen.token),
            None => steps.push(vec![seen.token]),
        }
    }
    let times = |shape: &Vec<Token>| steps.iter().filter(|step| *step == shape).count();
    let usual = steps.iter().max_by_key(|shape| times(shape))?;
    let is_usual = steps.len() > 1 && times(usual) as f64 >= USUAL * steps.len() as f64;
    is_usual.then(|| usual.clone())
}

/// Returns the length of the smallest period of each prefix of `tokens` (Knuth, Morris, Pratt 1977).
fn smallest_periods<T: PartialEq>(tokens: impl Iterator<Item = T>) -> Vec<usize> {
    let tokens: Vec<T> = tokens.collect();
    // border[n]: the longest proper prefix of the first n tokens that is also their suffix.
    let mut border = vec![0; tokens.len() + 1];
    for length in 2..=tokens.len() {
        let mut fits: usize = border[length - 1];
        while fits > 0 && tokens[fits] != tokens[length - 1] {
            fits = border[fits];
        }
        border[length] = fits + usize::from(tokens[fits] == tokens[length - 1]);
    }
    (1..=tokens.len()).map(|length| length - border[length]).collect()
}

/// Builds the period of `length` tokens from whole repeats. It starts after the update, after the pause, or where its order says.
fn from_repeats(repeats: &[Seen], length: usize) -> Period {
    let after_update = first_after_update(&repeats[..length]);
    let shown = after_update.or_else(|| first_after_pause(repeats, length));
    let first = shown.unwrap_or_else(|| first_by_order(&repeats[..length]));
    let mut tokens: Vec<Token> = repeats[..length].iter().map(|seen| seen.token).collect();
    tokens.rotate_left(first);
    let function = tokens[0].function;
    let per_step = tokens.iter().filter(|token| token.function == function).count() as u64;
    let (begin, last) = (&repeats[first], &repeats[repeats.len() - length + first]);
    let steps_between = (repeats.len() / length - 1) as i64;
    Period {
        // The newest collective is the last one of a whole repeat.
        next: (length - first) % length,
        step: Step(last.seq / per_step),
        phase: begin.seq % per_step,
        step_nanos: (last.launch - begin.launch) / steps_between,
        per_step,
        has_clear_begin: shown.is_some(),
        updates: after_update.map(|_| Updates::default()),
        tokens,
    }
}

/// Returns the position of the token after the only update of a step; `None` if there is no update or more than one.
fn first_after_update(period: &[Seen]) -> Option<usize> {
    let mut updates = period.iter().enumerate().filter(|(_, seen)| seen.begins.is_some());
    let (first, _) = updates.next()?;
    updates.next().is_none().then_some(first)
}

/// Returns the position of the token after the longest pause, if all tokens reduce and that pause is clearly the longest.
///
/// A pause is what passes from the end of a collective to the end of the next one, less the time that the bytes of that one
/// take, at the highest rate of the sequence. Ranks measure it alike, but for some ten or hundred microseconds: they leave a
/// reduction together, whichever of them came last. The median over repeats counts, because ranks may have watched different ones.
fn first_after_pause(repeats: &[Seen], length: usize) -> Option<usize> {
    if !repeats[..length].iter().all(|seen| seen.token.reduces()) {
        return None;
    }
    let of_position = |position: usize| -> Option<f64> {
        let took = repeats[position..].iter().step_by(length).map(|seen| seen.took);
        let mut took = took.collect::<Option<Vec<i64>>>()?;
        took.sort_unstable();
        Some(took[took.len() / 2] as f64)
    };
    let took = (0..length).map(of_position).collect::<Option<Vec<f64>>>()?;
    let bytes = |at: usize| repeats[at].token.bytes as f64;
    let per_byte = (0..length).filter(|&at| bytes(at) > 0.0).map(|at| took[at] / bytes(at));
    let per_byte = per_byte.min_by(f64::total_cmp).unwrap_or(0.0);
    let mut pauses: Vec<(f64, usize)> =
        took.iter().enumerate().map(|(at, took)| (took - per_byte * bytes(at), at)).collect();
    pauses.sort_by(|a, b| b.0.total_cmp(&a.0));
    match pauses.as_slice() {
        [_] => Some(0),
        [longest, second, ..] if longest.0 > CLEAR_PAUSE * second.0 => Some(longest.1),
        _ => None,
    }
}

/// Returns the position at which a step begins by the order of its collectives alone. That is the same on all ranks.
///
/// Of all rotations, the one is chosen in which collectives that reduce nothing come first for the longest, since those of
/// the forward pass gather or exchange and those of gradients reduce. Function and bytes decide between equal ones: layers and
/// the first bucket are small.
fn first_by_order(period: &[Seen]) -> usize {
    let rotation = |first: usize| period[first..].iter().chain(&period[..first]).map(|seen| seen.token);
    let reduces = |first: usize| rotation(first).map(Token::reduces);
    let order =
        |&a: &usize, &b: &usize| reduces(a).cmp(reduces(b)).then_with(|| rotation(a).cmp(rotation(b)));
    (0..period.len()).min_by(order).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::infer::collective::Ran;

    /// The collectives of a step: function, bytes, milliseconds since the previous one.
    type Shape = [(Function, u64, i64)];

    const DDP: [(Function, u64, i64); 3] =
        [(Function::AllReduce, 100, 60), (Function::AllReduce, 400, 10), (Function::AllReduce, 50, 12)];

    struct Job {
        seqs: [u64; 16],
        time: i64,
        begins: Option<NonZeroU32>,
    }

    impl Job {
        fn new() -> Self {
            Self { seqs: [0; 16], time: 0, begins: None }
        }

        /// Returns the next collective, which takes no time.
        fn next(&mut self, (function, bytes, millis): (Function, u64, i64)) -> Timed {
            self.time += millis * 1_000_000;
            let seq = self.seqs[function as usize];
            self.seqs[function as usize] += 1;
            let at = MonoNanos(self.time);
            let ran = Ran::Host { begin: at, end: at };
            let collective = Collective {
                communicator: 1,
                function,
                seq,
                bytes,
                launch: at,
                ran,
                is_sent: false,
                begins: self.begins,
            };
            Timed { collective, start: at, end: at, source: Source::HostClock }
        }

        fn run(&mut self, finder: &mut StepFinder, shape: &Shape, steps: usize) -> Vec<StepPosition> {
            let all = (0..steps).flat_map(|_| shape.iter().copied());
            all.filter_map(|one| placed(finder.place(&self.next(one)))).collect()
        }
    }

    fn placed(placing: Placing) -> Option<StepPosition> {
        match placing {
            Placing::In(place) => Some(place),
            Placing::Nowhere | Placing::Unexpected => None,
        }
    }

    /// Tests four identical buckets, as gradients of equal layers produce them, without a longer gap before the first
    /// one.
    #[test]
    fn identical_buckets_are_distinguished_by_updates() {
        let (mut job, mut finder, mut places) = (Job::new(), StepFinder::default(), Vec::new());
        for collective in 0..400 {
            job.begins = NonZeroU32::new(7 + collective as u32 / 4).filter(|_| collective % 4 == 0);
            places.extend(
                placed(finder.place(&job.next((Function::AllReduce, 100, 10))))
                    .map(|place| (collective, place)),
            );
        }
        assert!(finder.step_nanos() == Some(40_000_000) && places.len() > 200, "{places:?}");
        for (collective, place) in places {
            assert_eq!((place.step.0, place.bucket.0), (7 + collective / 4, (collective % 4) as u32));
            assert_eq!(place.is_last, collective % 4 == 3);
        }
    }

    /// Collectives of a step after the update with this number, and how they are placed.
    fn step(job: &mut Job, finder: &mut StepFinder, number: u64, shape: &Shape) -> Vec<Placing> {
        let first = shape.iter().enumerate();
        let placings = first.map(|(at, one)| {
            job.begins = NonZeroU32::new(number as u32).filter(|_| at == 0);
            finder.place(&job.next(*one))
        });
        placings.collect()
    }

    #[test]
    fn updates_begin_steps_whatever_else_a_step_has() {
        let logged = [(Function::AllGather, 8, 1), DDP[0], DDP[1], DDP[2]];
        // Some steps gather figures for the log first: seldom, or so often that no sequence repeats for a second.
        for every in [40, 5] {
            let (mut job, mut finder) = (Job::new(), StepFinder::default());
            let mut ends = 0;
            for number in 1..200 {
                let shape = if number % every == 0 { &logged[..] } else { &DDP };
                let placings = step(&mut job, &mut finder, number, shape);
                if number < 100 {
                    continue;
                }
                for (at, placing) in placings.into_iter().enumerate() {
                    let place = placed(placing).expect("steps are known");
                    assert_eq!((place.step.0, place.bucket.0), (number, at as u32), "every {every}");
                    ends += u64::from(place.is_last);
                }
            }
            // The other steps end when the next one begins.
            assert!(ends >= 60, "{ends} ends, every {every}");
        }
    }

    #[test]
    fn the_updates_of_alternating_optimizers_are_one_step() {
        let (mut job, mut finder) = (Job::new(), StepFinder::default());
        for number in 1..100 {
            let shape: &Shape = if number % 2 == 0 { &DDP[..1] } else { &DDP[1..] };
            for (at, placing) in step(&mut job, &mut finder, number, shape).into_iter().enumerate() {
                if number > 60 {
                    let place = placed(placing).expect("steps are known");
                    assert_eq!(place.is_last, number % 2 == 1 && at == 1, "{place:?}");
                }
            }
        }
    }

    #[test]
    fn a_new_shape_of_steps_becomes_the_usual_one() {
        let (mut job, mut finder) = (Job::new(), StepFinder::default());
        for number in 1..60 {
            step(&mut job, &mut finder, number, &DDP);
        }
        for number in 60..80 {
            let placings = step(&mut job, &mut finder, number, &DDP[..2]);
            let is_last = placed(placings[1]).expect("steps are known").is_last;
            assert_eq!(is_last, number >= 60 + u64::from(NEW_SHAPE), "step {number}");
        }
    }

    #[test]
    fn steps_start_after_the_forward_pass_whatever_preceded_them() {
        let (mut job, mut finder) = (Job::new(), StepFinder::default());
        // Parameters are broadcast first, and the first step has its buckets in a different order.
        job.run(&mut finder, &[(Function::Broadcast, 9, 1), (Function::AllReduce, 550, 80)], 1);
        let places = job.run(&mut finder, &DDP, 60);
        assert!(finder.step_nanos() == Some(82_000_000) && places.len() > 100, "{places:?}");
        let (first, rest) = places.split_first().expect("places");
        for (before, after) in std::iter::once(first).chain(rest).zip(rest) {
            assert_eq!(after.bucket.0, (before.bucket.0 + 1) % 3);
            assert_eq!(after.step.0 - before.step.0, u64::from(before.is_last));
            assert_eq!(before.is_last, before.bucket.0 == 2);
        }
    }

    #[test]
    fn ranks_that_find_steps_at_different_times_number_them_alike() {
        let places = |slow: i64| {
            let (mut job, mut finder) =
                (Job::new(), StepFinder { patience_nanos: slow, ..Default::default() });
            let mut by_seq = Vec::new();
            for at in 0..300 {
                let one = job.next(DDP[at % 3]);
                by_seq.extend(placed(finder.place(&one)).map(|place| (one.collective.seq, place)));
            }
            by_seq
        };
        let (early, late) = (places(300_000_000), places(5_000_000_000));
        assert!(early.len() > late.len() && !late.is_empty());
        assert_eq!(early[early.len() - late.len()..], late);
    }

    #[test]
    fn a_period_of_repeating_layers_is_replaced_once_the_step_repeats() {
        let mut shape = vec![(Function::AllReduce, 8, 20); 64];
        shape.push((Function::ReduceScatter, 1_000, 5));
        shape[0].2 = 200;
        let (mut job, mut finder) = (Job::new(), StepFinder::default());
        job.run(&mut finder, &shape, 40);
        let places = job.run(&mut finder, &shape, 20);
        assert_eq!(places.len(), 20 * 65, "every collective has a place");
        assert_eq!(places.iter().filter(|place| place.is_last).count(), 20);
    }

    /// Returns how a step of these functions and bytes begins, found from its collective at `skip` on.
    fn begin_of(shape: &[(Function, u64)], skip: usize) -> (Function, u64) {
        let (mut job, mut finder) = (Job::new(), StepFinder::default());
        let shape: Vec<(Function, u64, i64)> =
            shape.iter().map(|&(function, bytes)| (function, bytes, 10)).collect();
        for at in skip..900 {
            finder.place(&job.next(shape[at % shape.len()]));
        }
        let first = finder.period.expect("steps are found").tokens[0];
        (first.function, first.bytes)
    }

    #[test]
    fn the_order_of_a_step_gives_its_begin_to_every_rank() {
        use Function::{AllGather, AllReduce, AllToAll, Broadcast, ReduceScatter};
        // Fully sharded: the forward pass gathers, and the backward pass gathers and reduces by turns.
        let sharded = [
            (AllGather, 7),
            (AllGather, 9),
            (AllGather, 5),
            (ReduceScatter, 5),
            (AllGather, 9),
            (ReduceScatter, 9),
            (ReduceScatter, 7),
        ];
        // Embeddings are exchanged forward and backward, between the buckets.
        let experts = [(AllToAll, 0), (AllToAll, 0), (AllReduce, 4), (AllToAll, 0), (AllReduce, 9)];
        let buffers = [(Broadcast, 3), (AllReduce, 4), (AllReduce, 9), (AllReduce, 9)];
        let layers = [(AllReduce, 2), (AllReduce, 2), (AllReduce, 2), (AllReduce, 90)];
        for shape in [&sharded[..], &experts, &buffers, &layers] {
            for skip in 0..shape.len() {
                assert_eq!(begin_of(shape, skip), shape[0], "from {skip} on: {shape:?}");
            }
        }
    }

    /// Returns the size of the first bucket of each of four ranks' steps. The buckets take 20, 5 and 30 ms, each rank has its gradients
    /// for each at its own time, `lag` of rank 3 on all of them, and ranks leave a reduction up to 0.2 ms apart.
    fn first_buckets(lag: i64) -> Vec<u64> {
        let first = |rank: i64| {
            let (mut job, mut finder, mut end) = (Job::new(), StepFinder::default(), 0);
            for at in 0..300_usize {
                let (bucket, compute, transfer) = [(100, 25, 20), (25, 4, 5), (150, 8, 30)][at % 3];
                let late = if at % 3 == 0 { lag } else { 0 };
                let own_late = if rank == 3 { late } else { 0 };
                let mut one = job.next((Function::AllReduce, bucket, 0));
                one.start = MonoNanos(end + (compute + own_late) * 1_000_000 - rank * 700_000);
                one.end = MonoNanos(end + (compute + late + transfer) * 1_000_000 + rank * 50_000);
                (one.collective.launch, job.time) = (one.start, one.end.0);
                end += (compute + late + transfer) * 1_000_000;
                finder.place(&one);
            }
            finder.period.expect("steps are found").tokens[0].bytes
        };
        (0..4).map(first).collect()
    }

    #[test]
    fn a_late_rank_and_those_that_wait_for_it_find_the_same_pause() {
        for lag in [0, 3, 10, 40] {
            assert_eq!(first_buckets(lag), [100; 4], "the forward pass lies before this bucket, lag {lag}");
        }
        // Where the pause is not clear, the order decides.
        assert_eq!(first_buckets(-20), [25; 4]);
    }

    #[test]
    fn the_payload_size_of_an_all_to_all_does_not_matter() {
        let mut finder = StepFinder::default();
        let mut job = Job::new();
        let uneven =
            |step: u64| [(Function::AllToAll, 100 + step * 7 % 5, 30), (Function::AllReduce, 100, 5)];
        let places: Vec<StepPosition> =
            (0..100).flat_map(|step| job.run(&mut finder, &uneven(step), 1)).collect();
        assert!(places.len() > 100 && finder.step_nanos() == Some(35_000_000), "{places:?}");
        assert!(!finder.has_messages());
    }

    const FUNCTIONS: [Function; 3] = [Function::AllReduce, Function::ReduceScatter, Function::Reduce];

    fn any_shape() -> impl Strategy<Value = Vec<(Function, u64, i64)>> {
        let one = (0..FUNCTIONS.len(), 1..4_u64, 1..10_i64);
        let one = one.prop_map(|(function, bytes, millis)| (FUNCTIONS[function], bytes, millis));
        proptest::collection::vec(one, 0..40)
    }

    proptest! {
        #[test]
        fn steps_of_any_shape_are_found(before in any_shape(), mut shape in any_shape()) {
            // A unique collective, which keeps any shorter sequence from repeating, and sorts first.
            shape.insert(0, (Function::Broadcast, 0, 200));
            let (mut job, mut finder) = (Job::new(), StepFinder::default());
            job.run(&mut finder, &before, 1);
            job.run(&mut finder, &shape, 30);
            let places = job.run(&mut finder, &shape, 10);
            prop_assert_eq!(places.len(), 10 * shape.len());
            for (at, place) in places.iter().enumerate() {
                prop_assert_eq!(place.bucket.0 as usize, at % shape.len());
                prop_assert_eq!(place.is_last, (at + 1) % shape.len() == 0);
                prop_assert_eq!(place.step.0 - places[0].step.0, (at / shape.len()) as u64);
            }
        }
    }

    #[test]
    fn collectives_that_never_repeat_have_no_steps() {
        let (mut job, mut finder) = (Job::new(), StepFinder::default());
        let mut bytes = 1_u64;
        for _ in 0..20_000 {
            bytes = bytes.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            assert_eq!(finder.place(&job.next((Function::AllReduce, bytes >> 40, 1))), Placing::Nowhere);
        }
        assert_eq!(finder.history.len(), HISTORY);
    }
}
