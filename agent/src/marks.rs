//! The marks of the training thread: where a step begins, which phase it is in, where it ends.

use wire::clock::MonoNanos;
use wire::event::{Event, Span, SpanKind, StepRecord};
use wire::ids::Step;

use crate::clock;
use crate::recorder::Recorder;

/// The step a training thread is in; handed to the reducer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepContext {
    /// Which step.
    pub step: Step,
    /// True when nothing but the step's length is recorded, to measure what recording costs.
    pub shadow: bool,
}

/// Marks steps and phases. One per process, on the training thread.
pub struct StepMarks {
    recorder: Recorder,
    shadow_every: u64,
    last_end: Option<(Step, MonoNanos)>,
    current: Option<Current>,
}

struct Current {
    context: StepContext,
    begin: MonoNanos,
    phase: Option<Phase>,
}

struct Phase {
    kind: SpanKind,
    begin: MonoNanos,
    begin_cpu: u64,
}

impl StepMarks {
    pub(crate) fn new(recorder: Recorder, shadow_every: u64) -> Self {
        Self { recorder, shadow_every, last_end: None, current: None }
    }

    /// Begins `step`. A step that follows the one before begins where that ended, so that time between two
    /// steps is seen (as `other`); after [`Self::pause`] it begins now. A step that was not ended is dropped.
    pub fn begin_step(&mut self, step: Step) -> StepContext {
        let shadow = self.is_shadow(step);
        let context = StepContext { step, shadow };
        if self.recorder.is_enabled() {
            let begin = match self.last_end {
                Some((last, end)) if last.0.checked_add(1) == Some(step.0) => end,
                _ => clock::now(),
            };
            self.current = Some(Current { context, begin, phase: None });
        }
        context
    }

    /// All ranks choose the same shadow steps, since a step is as fast as its slowest rank. They lie in the middle
    /// between multiples of the interval, where jobs like to log and to save, and never two in a row, so that
    /// each has observed neighbours that do nothing special.
    fn is_shadow(&self, step: Step) -> bool {
        let every = self.shadow_every;
        self.recorder.is_enabled() && every >= 2 && step.0 % every == every / 2
    }

    /// Ends the current phase, if any, and begins `kind`.
    pub fn enter(&mut self, kind: SpanKind) {
        self.turn(Some(kind));
    }

    /// Ends the current phase; what follows is `other`.
    pub fn leave(&mut self) {
        self.turn(None);
    }

    fn turn(&mut self, next: Option<SpanKind>) {
        let Some(current) = self.current.as_mut().filter(|current| !current.context.shadow) else { return };
        let (now, cpu) = (clock::now(), clock::thread_cpu_nanos());
        let next = next.map(|kind| Phase { kind, begin: now, begin_cpu: cpu });
        if let Some(ended) = std::mem::replace(&mut current.phase, next) {
            self.recorder.record(Event::Span(Span {
                step: current.context.step,
                kind: ended.kind,
                begin: ended.begin,
                end: now,
                cpu_nanos: cpu.saturating_sub(ended.begin_cpu),
            }));
        }
    }

    /// Ends the step, after `samples` samples of this rank.
    pub fn end_step(&mut self, samples: u64) {
        self.leave();
        let Some(current) = self.current.take() else { return };
        let StepContext { step, shadow } = current.context;
        let end = clock::now();
        self.recorder.record(Event::Step(StepRecord { step, begin: current.begin, end, samples, shadow }));
        self.last_end = Some((step, end));
    }

    /// Leaves training for a while (evaluation, a checkpoint): the next step begins when it is begun.
    pub fn pause(&mut self) {
        self.last_end = None;
    }
}
