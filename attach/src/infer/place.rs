//! Assigns the collectives of a rank, on all its communicators, to steps and writes their records.
//!
//! The communicator whose collectives take the longest to repeat defines the step and is called the anchor. Other
//! communicators repeat once per layer or once per micro-batch. A collective on one of those belongs to the step that
//! ends next.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use wire::clock::MonoNanos;
use wire::event::{BucketRecord, Event, Source, Span, SpanKind, Started, StepRecord};
use wire::ids::{Bucket, Comm, Step};

use crate::call_log::Phase;
use crate::infer::blocking::{Blocked, Blocking, IDLE_NANOS, StepCollective};
use crate::infer::collective::{Collective, Timed};
use crate::infer::early::Early;
use crate::infer::phases::{Phases, Timing};
use crate::infer::steps::{Placing, StepFinder, StepPosition};
use crate::infer::waits::Waits;
use crate::sampling::Steps;

/// How long other communicators are awaited before an anchor is chosen, in nanoseconds. The first one to repeat may do
/// so once per layer.
const SETTLING_NANOS: i64 = 2_000_000_000;
/// How long communicators that do not repeat are awaited, in nanoseconds.
const MAX_SETTLING_NANOS: i64 = 30_000_000_000;
/// The share of the longest period from which on a communicator counts as repeating once per step.
const ALIKE: f64 = 0.8;
/// The largest number of collectives on other communicators that wait for their step.
const MAX_WAITING: usize = 16_384;
/// The largest number of communicators distinguished. A job with tensor, pipeline and expert parallelism has fewer than
/// ten per rank.
const MAX_COMMUNICATORS: usize = 256;

/// Assigns collectives to steps.
#[derive(Debug, Default)]
pub struct Placer {
    finders: BTreeMap<u64, StepFinder>,
    names: BTreeMap<u64, Comm>,
    /// The communicator that defines the step.
    anchor: Option<u64>,
    /// Since when a communicator repeats while no anchor is chosen.
    repeats_since: Option<MonoNanos>,
    /// The duration of the longest step of any anchor, in nanoseconds. A period of less than half of it is not a step.
    longest_nanos: i64,
    current: Option<Current>,
    /// The end of the previous step; `None` before the first.
    previous: Option<PreviousStep>,
    waiting: VecDeque<Timed>,
    /// The collectives from before an anchor was chosen.
    early: Early,
    phases: Phases,
    waits: Waits,
    /// Steps whose collectives have ended, and whose phases may not have been read yet.
    ended: Vec<Ended>,
    blocking: Blocking,
}

/// The end of a step.
#[derive(Clone, Copy, Debug)]
struct PreviousStep {
    end: MonoNanos,
    /// Whether the end of the last collective is known, and not only its time of enqueueing.
    is_end_known: bool,
    /// When the last collective was enqueued.
    last_launch: MonoNanos,
}

/// A step whose collectives have ended.
#[derive(Debug)]
struct Ended {
    step: Step,
    begin: MonoNanos,
    end: MonoNanos,
    /// When the first collective was enqueued.
    first_launch: MonoNanos,
    /// See [`Current::computed_until`].
    computed_until: MonoNanos,
    /// When the rank was blocked by a collective, as far as it shows.
    blocked: Blocked,
    /// When some collective ran, in order of time.
    running: Vec<(MonoNanos, MonoNanos)>,
    /// See [`StepFinder::has_clear_begin`].
    has_clear_end: bool,
}

impl Ended {
    /// Returns when collectives ran and nothing shows whether the rank computed, in order of time. Gradients that waited for
    /// their turn may have been ready at any time, so collectives may have run beside compute even after the time until which
    /// the device certainly computed. Only the update waits for the last one, if it shows which is the last.
    fn unclear(&self) -> Vec<(MonoNanos, MonoNanos)> {
        let Blocked { unclear, nonblocking, .. } = &self.blocked;
        let late = nonblocking
            .iter()
            .filter(|&&(_, to)| to > self.computed_until && (to < self.end || !self.has_clear_end));
        let late = late.map(|&(from, to)| (from.max(self.computed_until), to));
        united(unclear.iter().copied().chain(late).collect())
    }
}

/// The step in progress.
#[derive(Debug)]
struct Current {
    step: Step,
    begin: MonoNanos,
    /// Whether the end of the previous step is known.
    is_begin_known: bool,
    /// When the first collective was enqueued.
    first_launch: MonoNanos,
    /// A time until which the device certainly computed. A collective that found its stream idle was waiting for
    /// gradients.
    computed_until: MonoNanos,
    previous_end: MonoNanos,
    /// When the gradients of the newest collective were ready.
    ready: MonoNanos,
    /// The newest collective.
    last: Timed,
    /// The collectives of the step, up to a bound.
    ran: Vec<StepCollective>,
}

impl Placer {
    /// Declares that all ranks are in this communicator, which makes it the run's communicator 0.
    pub fn name_world(&mut self, communicator: u64) {
        if !self.names.values().any(|name| *name == Comm(0)) {
            self.names.insert(communicator, Comm(0));
        }
    }

    /// Returns the collectives that make up a step; `None` until they are known.
    #[must_use]
    pub(crate) fn steps(&self) -> Option<Steps> {
        let communicator = self.anchor?;
        self.finders.get(&communicator)?.steps(communicator)
    }

    /// Adds a collective, in the order of its communicator, and passes the records of collectives that it completes to
    /// `record`. [`Self::settle`] records the steps that it ends.
    pub fn ingest(&mut self, timed: &Timed, mut record: impl FnMut(Event)) {
        let communicator = timed.collective.communicator;
        if self.finders.len() >= MAX_COMMUNICATORS && !self.finders.contains_key(&communicator) {
            return;
        }
        let finder = self.finders.entry(communicator).or_default();
        if self.names.get(&communicator) == Some(&Comm(0)) {
            finder.is_of_all_ranks();
        }
        let place = finder.place(timed);
        self.early.set_places(communicator, &finder.take_past());
        let anchor_before = self.anchor;
        self.choose_anchor(timed.collective.launch);
        if self.anchor.is_some() && self.anchor == anchor_before {
            return self.place(timed, place, &mut record);
        }
        self.early.push(*timed, place);
        if self.anchor.is_some() {
            self.place_early(&mut record);
        }
    }

    /// Places the collectives from before the anchor was chosen. A step whose phases were forgotten is left out: its compute
    /// would be inferred, and that of the steps after it is not.
    fn place_early(&mut self, record: &mut impl FnMut(Event)) {
        for (timed, place) in self.early.take() {
            if self.phases.are_known_from(timed.collective.launch) {
                self.place(&timed, place, record);
            }
        }
    }

    fn place(&mut self, timed: &Timed, place: Placing, record: &mut impl FnMut(Event)) {
        if self.anchor != Some(timed.collective.communicator) {
            if self.waiting.len() == MAX_WAITING {
                self.waiting.pop_front();
            }
            self.waiting.push_back(*timed);
            return;
        }
        match place {
            Placing::In(place) => self.anchored(timed, place, record),
            Placing::Nowhere | Placing::Unexpected => (self.current, self.previous) = (None, None),
        }
    }

    /// Chooses the slowest repeating communicator and retains it for as long as it repeats. Of several communicators
    /// that repeat once per step, all ranks must choose alike: the world, otherwise the one with the most bytes per step,
    /// since the groups of a kind differ in number from rank to rank. Messages come last, since their bytes differ as well.
    fn choose_anchor(&mut self, now: MonoNanos) {
        let repeats = |number: &u64| self.finders.get(number).and_then(StepFinder::step_nanos);
        if self.anchor.as_ref().and_then(repeats).is_some() {
            return;
        }
        self.anchor = None;
        let found: Vec<(u64, i64)> =
            self.finders.keys().filter_map(|number| Some((*number, repeats(number)?))).collect();
        let Some(longest) = found.iter().map(|&(_, nanos)| nanos).max() else { return };
        let waited = now - *self.repeats_since.get_or_insert(now);
        let busy = self.finders.values().filter(|finder| finder.is_busy()).count();
        let all_repeat = found.len() >= busy || waited >= MAX_SETTLING_NANOS;
        let is_settled = busy <= 1 || waited >= SETTLING_NANOS.max(2 * longest) && all_repeat;
        if !is_settled || 2 * longest < self.longest_nanos {
            return;
        }
        let with_the_step = found.iter().filter(|&&(_, nanos)| nanos as f64 >= ALIKE * longest as f64);
        let is_world = |number: &u64| self.names.get(number) == Some(&Comm(0));
        let has_messages = |number: &u64| self.finders.get(number).is_some_and(StepFinder::has_messages);
        let bytes = |number: &u64| self.finders.get(number).map_or(0, StepFinder::step_bytes);
        self.anchor = with_the_step
            .map(|&(number, _)| number)
            .min_by_key(|number| (!is_world(number), has_messages(number), Reverse(bytes(number)), *number));
        self.longest_nanos = self.longest_nanos.max(longest);
        (self.repeats_since, self.current, self.previous) = (None, None, None);
    }

    fn anchored(&mut self, timed: &Timed, place: StepPosition, record: &mut impl FnMut(Event)) {
        if place.bucket == Bucket(0) {
            // A step with unusual collectives ends when the next one begins.
            self.end_step(record);
            let begin = self.previous.map_or(timed.collective.launch, |previous| previous.end);
            self.current = Some(Current {
                step: place.step,
                begin,
                is_begin_known: self.previous.is_none_or(|previous| previous.is_end_known),
                first_launch: timed.collective.launch,
                computed_until: begin,
                previous_end: begin,
                ready: begin,
                last: *timed,
                ran: Vec::new(),
            });
        }
        // Steps are found in the middle of a step, which is left out.
        let Some(current) = self.current.as_mut().filter(|current| current.step == place.step) else {
            return;
        };
        let is_idle = timed.start - current.previous_end > IDLE_NANOS;
        if is_idle {
            current.computed_until = timed.start;
        }
        // The host may hand a collective over long before the device has its gradients. If no collective ran just before,
        // the gradients were ready when this one started. Otherwise they were not ready before those of the previous one.
        let on_device = timed.source == Source::DeviceEvent;
        let earliest = if is_idle && on_device { timed.start } else { current.ready };
        current.ready = timed.collective.launch.max(earliest).min(timed.start);
        let ready = if on_device { current.ready } else { timed.collective.launch };
        current.computed_until = current.computed_until.max(timed.collective.launch.min(timed.start));
        current.previous_end = current.previous_end.max(timed.end);
        current.last = *timed;
        if current.ran.len() < MAX_WAITING {
            current.ran.push(ran(timed, place.bucket, true));
        }
        // If the start of a step is not known, its times are no better than those of enqueueing.
        let source = if current.is_begin_known { timed.source } else { Source::Derived };
        // Only the end of the first step is known: the next step starts there.
        if self.previous.is_some() {
            record(Event::Bucket(BucketRecord {
                source,
                ..self.bucket(timed, ready, place.step, place.bucket)
            }));
        }
        if place.is_last {
            self.end_step(record);
        }
    }

    /// Ends the step in progress, if there is one.
    fn end_step(&mut self, record: &mut impl FnMut(Event)) {
        let Some(mut current) = self.current.take() else { return };
        let last = current.last;
        let last_launch = last.collective.launch;
        let Current { step, begin, first_launch, computed_until, previous_end: end, ref mut ran, .. } =
            current;
        let is_end_known = last.source != Source::Derived;
        let previous = self.previous.replace(PreviousStep { end, is_end_known, last_launch });
        let (enqueued, later): (VecDeque<Timed>, VecDeque<Timed>) =
            self.waiting.drain(..).partition(|timed| timed.collective.launch <= last_launch);
        self.waiting = later;
        let Some(PreviousStep { last_launch: previous_launch, .. }) = previous else { return };
        let mut counts: BTreeMap<u64, u32> = BTreeMap::new();
        for timed in enqueued.iter().filter(|timed| timed.collective.launch > previous_launch) {
            let count = counts.entry(timed.collective.communicator).or_default();
            let earliest = if timed.source == Source::DeviceEvent { begin } else { timed.collective.launch };
            let ready = timed.collective.launch.max(earliest).min(timed.start);
            record(Event::Bucket(self.bucket(timed, ready, step, Bucket(*count))));
            ran.push(self::ran(timed, Bucket(*count), false));
            *count += 1;
        }
        let running = united(ran.iter().map(|collective| (collective.start, collective.end)).collect());
        let blocked = self.blocking.ingest(ran);
        let has_clear_end =
            self.anchor.and_then(|anchor| self.finders.get(&anchor)).is_some_and(StepFinder::has_clear_begin);
        self.ended.push(Ended {
            step,
            begin,
            end,
            first_launch,
            computed_until,
            blocked,
            running,
            has_clear_end,
        });
    }

    /// Records the steps whose collectives have ended. All phases up to the ends of these steps must have been added.
    pub fn settle(&mut self, mut record: impl FnMut(Event)) {
        for mut ended in std::mem::take(&mut self.ended) {
            let Ended { step, begin, end, .. } = ended;
            ended.blocked.tell(&self.waits.take_until(end));
            let mut span = |kind, begin, end, cpu_nanos| {
                if begin < end {
                    record(Event::Span(Span { step, kind, begin, end, cpu_nanos }));
                }
            };
            match self.phases.computed(begin, end) {
                Some(computed) => record_computed(&ended, computed, span),
                None => self.record_inferred(&ended, |kind, begin, end| span(kind, begin, end, 0)),
            }
            record(Event::Step(StepRecord { step, begin, end, samples: 0, shadow: false }));
        }
    }

    fn record_inferred(&mut self, ended: &Ended, mut span: impl FnMut(SpanKind, MonoNanos, MonoNanos)) {
        let Ended { begin, end, computed_until, ref blocked, .. } = *ended;
        let waited = self.phases.waited_for_host(begin, ended.first_launch, computed_until);
        let mut at = begin;
        for (kind, from, to) in waited {
            span(SpanKind::Backward, at, from);
            span(kind, from, to);
            at = at.max(to);
        }
        // After its compute, the device has nothing to do but wait for the last collective.
        span(SpanKind::Backward, at, computed_until);
        for &(from, to) in &blocked.blocked {
            span(SpanKind::Blocked, from.max(begin), to.min(computed_until));
        }
        span(SpanKind::Blocked, computed_until, end);
        for (from, to) in ended.unclear() {
            span(SpanKind::Unclear, from.max(begin), to.min(end));
        }
    }

    /// Adds a phase. Phases of the host, and phases of the device, must be added in the order in which they end.
    pub(crate) fn ingest_phase(&mut self, timing: Timing) {
        if timing.phase == Phase::Input {
            self.finders.values_mut().for_each(|finder| finder.ingest_input(timing.end));
        }
        match timing.phase {
            Phase::Wait => self.waits.add(timing.begin, timing.end),
            _ => self.phases.ingest(timing),
        }
    }

    /// Returns the communicator of all ranks, if it is known.
    pub fn world(&self) -> Option<u64> {
        self.names.iter().find(|(_, name)| **name == Comm(0)).map(|(&number, _)| number)
    }

    /// Returns the record of an unfinished collective of the communicator that defines the step; `None` for others, and
    /// until steps are known.
    pub fn started(&mut self, collective: &Collective) -> Option<Started> {
        let (function, seq) = (collective.function, collective.seq);
        let steps = self.steps().filter(|steps| steps.communicator == collective.communicator)?;
        let step = match &self.current {
            Some(current) => current.step,
            None if steps.updates_begin_steps => self.finders.get(&collective.communicator)?.newest()?,
            None if function == steps.function => Step(seq.checked_sub(steps.phase)? / steps.per_step.max(1)),
            None => return None,
        };
        let comm = self.name(collective.communicator);
        let seq = function.numbered(seq);
        Some(Started {
            step,
            comm,
            seq,
            bucket: Bucket(0),
            bytes: collective.bytes,
            launch: collective.launch,
        })
    }

    fn bucket(&mut self, timed: &Timed, ready: MonoNanos, step: Step, bucket: Bucket) -> BucketRecord {
        let Timed { collective, start, end, source } = *timed;
        BucketRecord {
            step,
            comm: self.name(collective.communicator),
            seq: collective.function.numbered(collective.seq),
            bucket,
            bytes: collective.bytes,
            ready: ready.max(collective.launch),
            launch: ready.max(collective.launch),
            // The times are from two clocks: a kernel that started at once may seem to start slightly before its
            // launch.
            start: start.max(collective.launch),
            end: end.max(start).max(collective.launch),
            source,
        }
    }

    /// Returns a communicator's number in the run. It is the same on all ranks and never that of the world.
    fn name(&mut self, communicator: u64) -> Comm {
        *self.names.entry(communicator).or_insert_with(|| {
            let folded = (communicator ^ (communicator >> 32)) as u32;
            Comm(folded.max(1))
        })
    }
}

fn ran(timed: &Timed, bucket: Bucket, is_anchor: bool) -> StepCollective {
    let Timed { collective, start, end, .. } = *timed;
    let Collective { communicator, function, launch, is_sent, .. } = collective;
    StepCollective {
        kind: (communicator, function),
        position: bucket.0,
        launch,
        start,
        end,
        is_sent,
        is_anchor,
    }
}

/// Returns the union of intervals, in order of time.
fn united(mut intervals: Vec<(MonoNanos, MonoNanos)>) -> Vec<(MonoNanos, MonoNanos)> {
    intervals.sort_unstable();
    let mut united: Vec<(MonoNanos, MonoNanos)> = Vec::new();
    for (from, to) in intervals {
        match united.last_mut().filter(|last| last.1 >= from) {
            Some(last) => last.1 = last.1.max(to),
            None => united.push((from, to)),
        }
    }
    united
}

/// Calls `span` with the kind, the begin, the end and the processor time of each span of a step in which phases are reported.
fn record_computed(
    ended: &Ended,
    computed: Vec<Timing>,
    mut span: impl FnMut(SpanKind, MonoNanos, MonoNanos, u64),
) {
    // After the last gradient, the rank waits for the last collective. Its end is seen late on a busy host, which may have gone on
    // by then.
    let last = computed.iter().rfind(|timing| timing.phase == Phase::Backward).unwrap_or(&computed[0]);
    let last_gradient = last.end;
    let next = computed.iter().find(|timing| timing.begin >= last_gradient);
    let resumed = next.map_or(ended.end, |next| next.begin);
    let mut at = ended.begin;
    for Timing { phase, begin: from, end: to, used, .. } in computed {
        // Between phases, the rank waits for the collectives that run: those that synchronize buffers or gather a figure before the
        // forward pass, for instance.
        if at < from && from <= last_gradient {
            let waits = ended.running.iter().map(|&(begin, end)| (begin.max(at), end.min(from)));
            waits.filter(|(from, to)| from < to).for_each(|(from, to)| span(SpanKind::Blocked, from, to, 0));
        }
        at = at.max(to);
        span(phase.span(), from, to, used);
    }
    span(SpanKind::Blocked, last_gradient, resumed, 0);
}

#[cfg(test)]
mod tests;
