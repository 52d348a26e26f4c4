//! One attempt of one rank: the life of a process.

use wire::clock::{MonoNanos, ServerNanos};
use wire::event::SpanKind;
use wire::ids::Step;
use wire::live::Part;
use wire::views::goodput::TimeUse;

use super::{Counted, Nanos, Offsets};
use crate::hang;
use crate::report::WARM_UP_STEPS;
use crate::step::RankAnalysis;

/// Returns true if a time without a completed step counts as a hang.
pub(super) fn is_hang(nanos: u64, typical_nanos: u64) -> bool {
    nanos as f64 / 1e9 >= hang::limit_seconds(typical_nanos as f64 / 1e9)
}

/// One attempt of one rank. Times are on the clock of its process.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    /// The number of the attempt at the job.
    pub(super) number: u32,
    /// The newest step that was done before.
    done: Option<Step>,
    /// The step that the process resumes, if the job states it.
    pub(super) resumed: Option<Step>,
    /// The name of the process's clock; empty if it is unknown.
    pub(super) clock: String,
    /// The server's clock less that of the process: the smallest difference of any batch, which traveled fastest.
    pub(super) offset_nanos: Option<i64>,
    /// Whether the process counts its steps from the one that it resumes, or else from the first one after `done`, recorded or
    /// not.
    pub(super) counts_from_its_start: bool,
    /// When the process began, or its first batch if that is not known.
    began: MonoNanos,
    pub(super) knows_start: bool,
    /// When it sent its first batch.
    first_heard: MonoNanos,
    /// When it sent its newest batch.
    last_heard: MonoNanos,
    pub(super) completed: Option<bool>,
    /// The first and the last step.
    pub(super) steps: Option<(Step, Step)>,
    repeated: u64,
    /// The begin of the first step and the end of the last one.
    span: Option<(MonoNanos, MonoNanos)>,
    /// The length of all ordinary steps.
    pub(super) ordinary_nanos: u64,
    pub(super) ordinary_steps: u64,
    /// The time from the begin of the first step to the end of the last one, by use.
    pub(super) nanos: Nanos,
    count: u64,
}

impl Attempt {
    pub(super) fn new(number: u32, done: Option<Step>) -> Self {
        Self {
            number,
            done,
            resumed: None,
            clock: String::new(),
            offset_nanos: None,
            counts_from_its_start: false,
            began: MonoNanos(0),
            knows_start: false,
            first_heard: MonoNanos(0),
            last_heard: MonoNanos(0),
            completed: None,
            steps: None,
            repeated: 0,
            span: None,
            ordinary_nanos: 0,
            ordinary_steps: 0,
            nanos: [0; TimeUse::COUNT],
            count: 0,
        }
    }

    pub(super) fn hear(&mut self, at: MonoNanos, received: ServerNanos) {
        let offset_nanos = received.0.saturating_sub(at.0);
        match &mut self.offset_nanos {
            Some(offset) => {
                *offset = offset_nanos.min(*offset);
                self.last_heard = self.last_heard.max(at);
            }
            None => {
                self.offset_nanos = Some(offset_nanos);
                (self.began, self.first_heard, self.last_heard) = (at, at, at);
            }
        }
    }

    pub(super) fn began(&mut self, at: MonoNanos) {
        if at <= self.began {
            (self.began, self.knows_start) = (at, true);
        }
    }

    /// Returns when the process began, on the server's clock.
    pub(super) fn began_at(&self, offsets: &Offsets<'_>) -> ServerNanos {
        let offset_nanos = offsets.get(&*self.clock).copied().or(self.offset_nanos);
        ServerNanos(self.began.0.saturating_add(offset_nanos.unwrap_or(0)))
    }

    pub(super) fn is_repeated(&self, step: Step) -> bool {
        self.done.is_some_and(|done| step <= done)
    }

    /// Returns the time until the first batch, and from there until the first step.
    pub(super) fn startup_nanos(&self) -> (u64, u64) {
        let first_begin = self.span.map_or(self.last_heard, |(begin, _)| begin);
        let spoke = self.first_heard.min(first_begin);
        (length(self.began.min(first_begin), spoke), length(spoke, first_begin))
    }

    /// Returns the numbers of repeated steps and of others before the first one with records.
    pub(super) fn missing_at_start(&self) -> (u64, u64) {
        let Some((first, _)) = self.steps.filter(|_| self.counts_from_its_start) else { return (0, 0) };
        let next = self.done.map_or(0, |done| done.0.saturating_add(1));
        let begin = self.resumed.map_or(next, |resumed| resumed.0);
        let missing = first.0.saturating_sub(begin);
        let repeated = next.saturating_sub(begin).min(missing);
        (repeated, missing - repeated)
    }

    /// Returns the number of repeated steps, recorded or not.
    pub(super) fn repeated_steps(&self) -> u64 {
        self.repeated.saturating_add(self.missing_at_start().0)
    }

    /// Returns the time from the last step to the last batch.
    pub(super) fn rest_nanos(&self) -> u64 {
        self.span.map_or(0, |(_, end)| length(end, self.last_heard))
    }

    pub(super) fn repeat(&mut self, step: Step, begin: MonoNanos, end: MonoNanos, typical: u64) {
        let Some((nanos, _)) = self.advance(step, begin, end, typical) else { return };
        self.repeated += 1;
        self.book(TimeUse::Repeated, nanos);
    }

    pub(super) fn count(&mut self, counted: &Counted<'_>, typical: u64) {
        let Counted { step, begin, end, parts } = *counted;
        let is_warm_up = self.count < WARM_UP_STEPS;
        let Some((nanos, is_whole)) = self.advance(step, begin, end, typical) else { return };
        // The parts sum to the length of the step if none of it was counted before.
        let parts = parts.filter(|parts| is_whole && parts.step_nanos == nanos);
        let pauses = parts.map_or(0, |parts| parts.part(Part::Pause));
        if is_warm_up {
            self.book(TimeUse::WarmUp, nanos);
        } else if is_hang(nanos - pauses, typical) && typical > 0 {
            self.book(TimeUse::Hang, nanos - pauses - typical);
            self.book(TimeUse::OtherInSteps, typical);
            parts.into_iter().for_each(|parts| self.book_pauses(parts));
        } else {
            self.ordinary_nanos = self.ordinary_nanos.saturating_add(nanos - pauses);
            self.ordinary_steps += 1;
            match parts {
                Some(parts) => self.book_parts(parts),
                None => self.book(TimeUse::OtherInSteps, nanos),
            }
        }
    }

    /// Books the time since the last step, and moves on to the end of `step`. Returns how much of it is new, and whether
    /// all of it is.
    fn advance(&mut self, step: Step, begin: MonoNanos, end: MonoNanos, typical: u64) -> Option<(u64, bool)> {
        let (first, before) = self.span.unwrap_or((begin, begin));
        let first_free = begin.max(before);
        if end < first_free {
            return None;
        }
        let (first_step, last) = self.steps.unwrap_or((step, step));
        let missing = step.0.saturating_sub(last.0).saturating_sub(1);
        self.book_gap(length(before, first_free), missing, typical);
        self.span = Some((first, end));
        self.steps = Some((first_step, last.max(step)));
        self.count += 1;
        Some((length(first_free, end), first_free == begin))
    }

    /// Books the time between two recorded steps. `missing` steps between them have no records.
    fn book_gap(&mut self, nanos: u64, missing: u64, typical: u64) {
        let steps_nanos = missing.saturating_mul(typical).min(nanos);
        let (time_use, rest) = match (is_hang(nanos - steps_nanos, typical), missing) {
            (true, _) => (TimeUse::Hang, nanos - steps_nanos),
            // Steps without records are steps, at whatever length.
            (false, 1..) => (TimeUse::OtherInSteps, nanos - steps_nanos),
            (false, 0) => (TimeUse::Between, nanos),
        };
        self.book(time_use, rest);
        self.book(TimeUse::OtherInSteps, steps_nanos);
    }

    fn book_parts(&mut self, rank: &RankAnalysis) {
        use Part::{Backward, ExposedTransfer, ExposedWait, Forward, H2d, Input, Optimizer, Other};
        for part in [Forward, Backward, Optimizer] {
            self.book(TimeUse::Compute, rank.part(part));
        }
        self.book(TimeUse::StragglerWait, rank.part(ExposedWait));
        self.book(TimeUse::ExposedTransfer, rank.part(ExposedTransfer));
        self.book(TimeUse::Input, rank.part(Input) + rank.part(H2d));
        self.book(TimeUse::OtherInSteps, rank.part(Other));
        self.book_pauses(rank);
    }

    fn book_pauses(&mut self, rank: &RankAnalysis) {
        let mut rest = rank.part(Part::Pause);
        for (kind, nanos) in SpanKind::PAUSES.into_iter().zip(rank.pauses) {
            let nanos = nanos.min(rest);
            rest -= nanos;
            self.book(use_of_pause(kind), nanos);
        }
        self.book(TimeUse::OtherInSteps, rest);
    }

    fn book(&mut self, time_use: TimeUse, nanos: u64) {
        self.nanos[time_use as usize] = self.nanos[time_use as usize].saturating_add(nanos);
    }
}

fn use_of_pause(kind: SpanKind) -> TimeUse {
    match kind {
        SpanKind::Checkpoint => TimeUse::Checkpoint,
        SpanKind::Evaluation => TimeUse::Evaluation,
        SpanKind::Compilation => TimeUse::WarmUp,
        _ => TimeUse::OtherInSteps,
    }
}

fn length(begin: MonoNanos, end: MonoNanos) -> u64 {
    (end - begin).max(0).unsigned_abs()
}
