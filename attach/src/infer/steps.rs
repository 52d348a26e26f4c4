//! Finds training steps, which an unmodified job does not mark, in the order of its collectives.
//!
//! A training step issues the same collectives as the step before, so the shortest repeating sequence is a step. All ranks
//! must choose alike where it begins, or their collectives would be compared across steps. Therefore only what ranks share
//! counts. Idle times are not shared: a rank that waits for another one is idle for less. Shared is the order of what the job does:
//!
//! - Where it marks its input, a step begins after that ([`first_after_input`]).
//! - Where some of its collectives reduce gradients and others do not, their order shows the begin ([`first_by_order`]).
//! - Where all reduce, as in plain data parallelism, the forward pass is the longest time from the end of one to the end of the
//!   next: ranks leave a reduction together ([`first_after_pause`]).
//!
//! If optimizer updates are reported, the first collective after an update starts a step. This also works for buckets
//! that all look alike, and for steps that have other collectives now and then, such as those of logging, a checkpoint or
//! an evaluation. The collectives from before the steps were found are then placed as well ([`StepFinder::take_past`]).
//!
//! Step numbers must not depend on when a rank finds its steps. They are computed from the count of collectives, or are
//! the count of updates, which are the same on all ranks.

mod begin;
mod period;

use std::collections::VecDeque;

use wire::clock::MonoNanos;
use wire::event::Source;
use wire::ids::{Bucket, Step};

use crate::call_log::Function;
use crate::infer::collective::{Collective, Timed};
use crate::marks::Begin;
use crate::sampling::Steps;
use begin::{first_after_input, first_after_pause, first_after_update, first_by_order};
use period::{Period, Updates};

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
/// How long the search still waits for a repeating sequence, in nanoseconds. A job with several optimizers updates several times
/// per step.
const UPDATES_PATIENCE_NANOS: i64 = 4_000_000_000;
/// The share of the steps between updates that must have the same collectives to be the job's steps.
const USUAL: f64 = 0.6;
/// The number of steps in a row of another shape after which that shape is the usual one.
const NEW_SHAPE: u32 = 8;

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
    begins: Option<Begin>,
    seq: u64,
    launch: MonoNanos,
    /// The time since the communicator's collectives before it had ended until it ended, in nanoseconds; `None` if its end is not
    /// known.
    took: Option<i64>,
}

/// The step that a collective belongs to, and its index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepPosition {
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
    /// When the host had read the newest batches of input.
    inputs: VecDeque<MonoNanos>,
    period: Option<Period>,
    patience_nanos: i64,
    seen: usize,
    /// When the last of the collectives so far ended.
    ran_until: MonoNanos,
    /// Whether all ranks are in the communicator.
    is_world: bool,
    /// See [`Self::take_past`].
    past: Vec<Placing>,
}

impl Default for StepFinder {
    fn default() -> Self {
        Self {
            history: VecDeque::new(),
            inputs: VecDeque::new(),
            period: None,
            patience_nanos: FIRST_PATIENCE_NANOS,
            seen: 0,
            ran_until: MonoNanos(0),
            is_world: false,
            past: Vec::new(),
        }
    }
}

/// Where a collective belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placing {
    In(StepPosition),
    /// In no step, because steps are not known, or not from their beginning.
    Nowhere,
    /// Not where it was expected: steps are no longer known.
    Unexpected,
}

impl StepFinder {
    /// Adds the time at which the host had read a batch of input.
    pub fn ingest_input(&mut self, end: MonoNanos) {
        if self.period.is_some() {
            return;
        }
        if self.inputs.len() == HISTORY {
            self.inputs.pop_front();
        }
        self.inputs.push_back(end);
    }

    /// Says that all ranks are in the communicator. Two steps that are alike are then enough, because there is no other
    /// communicator whose steps ranks could choose instead.
    pub fn is_of_all_ranks(&mut self) {
        self.is_world = true;
    }

    /// Returns the places of the collectives before the newest one, if that one has shown the steps; else nothing.
    pub fn take_past(&mut self) -> Vec<Placing> {
        std::mem::take(&mut self.past)
    }

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
        let is_turn = self.history.len().is_multiple_of(1 + self.history.len() / 64);
        let found = self.find_alike().or_else(|| if is_turn { self.find() } else { None });
        found.map_or(Placing::Nowhere, |period| self.begin(period))
    }

    /// Begins with a period, and returns the place of the newest collective. If steps begin with updates, the collectives
    /// before it have places as well: the updates show them, whenever the steps are found.
    fn begin(&mut self, mut period: Period) -> Placing {
        if period.updates.is_some() {
            self.past = self.history.iter().map(|seen| period.place(seen)).collect();
        }
        self.period = Some(period);
        self.history.clear();
        self.inputs.clear();
        self.past.pop().unwrap_or(Placing::Nowhere)
    }

    /// Returns whether there were enough collectives for a sequence to repeat.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.seen >= REPEATS
    }

    /// Returns whether the repeating sequence contains messages from one rank to another.
    #[must_use]
    pub fn has_messages(&self) -> bool {
        let is_message = |token: &Token| token.function == Function::SendReceive;
        self.period.as_ref().is_some_and(|period| period.tokens.iter().any(is_message))
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
        let (phase, per_step, updates_begin_steps) = (*phase, *per_step, updates.is_some());
        Some(Steps { communicator, function, phase, per_step, collectives, updates_begin_steps })
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

    /// Returns the steps between updates once two in a row have the same collectives, if all ranks are in the communicator and
    /// one optimizer makes all updates. Then nothing else can be a step, so there is no need to see it repeat for a while.
    fn find_alike(&self) -> Option<Period> {
        let newest = self.history.back()?.begins?;
        if !self.is_world || !newest.is_by_one() {
            return None;
        }
        let begins = self.history.iter().enumerate().rev().filter(|(_, seen)| seen.begins.is_some());
        let begins: Vec<usize> = begins.map(|(at, _)| at).take(3).collect();
        let &[last, middle, first] = begins.as_slice() else { return None };
        let shape = |from: usize, to: usize| self.history.range(from..to).map(|seen| seen.token);
        let nanos = (self.history[last].launch - self.history[first].launch) / 2;
        shape(first, middle)
            .eq(shape(middle, last))
            .then(|| Period::from_updates(shape(middle, last).collect(), nanos))
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
                    Some(shape) => Period::from_updates(shape, step_nanos(&repeats)?),
                    None => from_repeats(&repeats, length, &self.inputs),
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
        Some(Period::from_updates(shape, watched / (begins.len() as i64 - 1)))
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

/// Builds the period of `length` tokens from whole repeats. It starts after the update, after the input, after the pause, or where
/// its order says.
fn from_repeats(repeats: &[Seen], length: usize, inputs: &VecDeque<MonoNanos>) -> Period {
    let after_update = first_after_update(&repeats[..length]);
    let shown = after_update
        .or_else(|| first_after_input(repeats, length, inputs))
        .or_else(|| first_after_pause(repeats, length));
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

#[cfg(test)]
mod tests;
