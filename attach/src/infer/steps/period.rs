//! A repeating sequence of collectives, and the place of each collective in it.

use wire::ids::{Bucket, Step};

use super::{HISTORY, NEW_SHAPE, Placing, Seen, StepPosition, Token};

/// A repeating sequence of collectives.
#[derive(Debug)]
pub(super) struct Period {
    /// The collectives of a step, in order.
    pub(super) tokens: Vec<Token>,
    /// The index of the next expected collective.
    pub(super) next: usize,
    /// The current step.
    pub(super) step: Step,
    /// The number of tokens with the function of the first one.
    pub(super) per_step: u64,
    /// The sequence number of the first token in step 0.
    pub(super) phase: u64,
    /// The mean duration of a step at the time the period was found, in nanoseconds.
    pub(super) step_nanos: i64,
    /// Whether an update, input or a pause shows where steps begin, and not only the order of collectives.
    pub(super) has_clear_begin: bool,
    /// How steps begin with updates, if they do.
    pub(super) updates: Option<Updates>,
}

/// The steps of a job that reports its updates.
#[derive(Debug, Default)]
pub(super) struct Updates {
    /// Whether a step has begun since the period was found.
    has_begun: bool,
    /// The collectives of the current step so far.
    newest: Vec<Token>,
    other: OtherShape,
}

/// The newest shape other than the usual one.
#[derive(Debug, Default)]
struct OtherShape {
    tokens: Vec<Token>,
    /// How many steps in a row had it.
    times: u32,
}

impl Period {
    /// Returns the period of steps that begin with updates. Their usual collectives are `tokens`, of which there is one.
    pub(super) fn from_updates(tokens: Vec<Token>, step_nanos: i64) -> Self {
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
    pub(super) fn place(&mut self, seen: &Seen) -> Placing {
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
        if let Some(begin) = seen.begins {
            if updates.has_begun {
                self.learn(updates);
            }
            self.step = begin.step();
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
        let other = &mut updates.other;
        if updates.newest == self.tokens {
            other.times = 0;
        } else if updates.newest == other.tokens {
            other.times += 1;
        } else {
            *other = OtherShape { tokens: updates.newest.clone(), times: 1 };
        }
        if other.times >= NEW_SHAPE {
            self.tokens = std::mem::take(&mut other.tokens);
            other.times = 0;
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
