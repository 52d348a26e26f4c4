//! The marks of the training thread: the beginning of a step, its phases, and its end.

use wire::clock::MonoNanos;
use wire::event::{Event, Span, SpanKind, StepRecord};
use wire::ids::Step;

use crate::clock;
use crate::progress::Progress;
use crate::recorder::Recorder;
use crate::sampling::Sampling;

/// The current step of a training thread, as passed to the reducer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepContext {
    /// The step.
    pub step: Step,
    /// True for a shadow step: only its length is recorded, in order to measure what recording costs.
    pub shadow: bool,
}

/// A source of times for marks, which also records what lies between two marks. On the host it is the clock
/// ([`HostTimes`]). For work that a device does later it is a mark on the device's stream, whose time is known later.
pub trait Times {
    /// A point in time.
    type Mark: Clone;

    /// Returns a mark of the present; `None` if nothing is recorded.
    fn mark(&mut self) -> Option<Self::Mark>;

    /// Notes that the thread enters a phase; `None` between phases.
    fn enter(&mut self, _phase: Option<SpanKind>) {}

    /// Records a finished phase. `cpu_nanos` is the processor time that the thread used in it, in nanoseconds.
    fn span(&mut self, step: Step, kind: SpanKind, begin: Self::Mark, end: Self::Mark, cpu_nanos: u64);

    /// Records a finished step.
    fn step(&mut self, context: StepContext, begin: Self::Mark, end: Self::Mark, samples: u64);
}

/// The host's monotonic clock. Spans and steps are recorded immediately.
pub struct HostTimes(pub(crate) Recorder);

impl Times for HostTimes {
    type Mark = MonoNanos;

    fn mark(&mut self) -> Option<MonoNanos> {
        self.0.is_enabled().then(clock::now)
    }

    fn span(&mut self, step: Step, kind: SpanKind, begin: MonoNanos, end: MonoNanos, cpu_nanos: u64) {
        self.0.record(Event::Span(Span { step, kind, begin, end, cpu_nanos }));
    }

    fn step(&mut self, context: StepContext, begin: MonoNanos, end: MonoNanos, samples: u64) {
        let StepContext { step, shadow } = context;
        self.0.record(Event::Step(StepRecord { step, begin, end, samples, shadow }));
    }
}

/// The marks of steps and phases. A process has one, on its training thread.
pub struct StepMarks<T: Times = HostTimes> {
    times: T,
    sampling: Sampling,
    progress: Progress,
    last_end: Option<(Step, T::Mark)>,
    current: Option<Current<T::Mark>>,
}

struct Current<M> {
    context: StepContext,
    begin: M,
    phase: Option<OpenPhase<M>>,
}

struct OpenPhase<M> {
    kind: SpanKind,
    begin: M,
    begin_cpu: u64,
}

impl<T: Times> StepMarks<T> {
    pub(crate) fn new(times: T, sampling: Sampling, progress: Progress) -> Self {
        Self { times, sampling, progress, last_end: None, current: None }
    }

    /// Begins `step`. If `step` follows the previous one, it begins where that one ended, so that time between two
    /// steps is visible as `other`. After [`Self::pause`] it begins now. A step that was not ended is dropped.
    pub fn begin_step(&mut self, step: Step) -> StepContext {
        let context = StepContext { step, shadow: self.sampling.is_shadow(step) };
        let begin = match &self.last_end {
            Some((last, end)) if last.0.checked_add(1) == Some(step.0) => Some(end.clone()),
            _ => {
                let now = self.times.mark();
                now.iter().for_each(|_| self.progress.begins(clock::now()));
                now
            }
        };
        self.current = begin.map(|begin| Current { context, begin, phase: None });
        context
    }

    /// Ends the current phase, if any, and begins `kind`.
    pub fn enter(&mut self, kind: SpanKind) {
        self.turn(Some(kind));
    }

    /// Ends the current phase. The time until the next phase is `other`.
    pub fn leave(&mut self) {
        self.turn(None);
    }

    fn turn(&mut self, next: Option<SpanKind>) {
        let Some(current) = self.current.as_mut().filter(|current| !current.context.shadow) else { return };
        let Some(now) = self.times.mark() else { return };
        self.times.enter(next);
        let cpu = clock::thread_cpu_nanos();
        let next = next.map(|kind| OpenPhase { kind, begin: now.clone(), begin_cpu: cpu });
        if let Some(OpenPhase { kind, begin, begin_cpu }) = std::mem::replace(&mut current.phase, next) {
            self.times.span(current.context.step, kind, begin, now, cpu.saturating_sub(begin_cpu));
        }
    }

    /// Ends the step, in which this rank processed `samples` samples.
    pub fn end_step(&mut self, samples: u64) {
        self.leave();
        let Some(current) = self.current.take() else { return };
        let Some(end) = self.times.mark() else { return };
        // The host's progress, also of work that a device does later.
        self.progress.step_ended(clock::now());
        self.times.step(current.context, current.begin, end.clone(), samples);
        self.last_end = Some((current.context.step, end));
    }

    /// Suspends training for a while (evaluation, a checkpoint). The next step begins when [`Self::begin_step`] is
    /// called.
    pub fn pause(&mut self) {
        self.progress.pauses();
        self.last_end = None;
    }
}
