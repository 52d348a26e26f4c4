//! The records of a rank, from its trace.
//!
//! - A collective is a [`BucketRecord`] of the step that launched it. Its start and its end are those of its kernel. It was
//!   ready when the compute kernel before it ended: a launch says only when the host asked for it.
//! - All that runs within the window of a step belongs to the step by its part, whichever step launched it. A collective of
//!   another step is a record of that part ([`timing::parts`]).
//! - Compute is one span for each stretch in which some kernel of a phase ran that is not a collective. The phase is that of the
//!   launch: kernels that the autograd engine launches are backward, those within a parameter update are optimizer, and all
//!   others are forward. Without operators in the trace, all compute is called backward.
//! - Input is the host's wait for its data loader, where the device does nothing. All other time in which it does nothing is idle:
//!   the trace does not say why.
//! - The rank is blocked while a collective runs and nothing is computed, unless that is as short as the gaps between
//!   kernels are.

mod numbers;
mod running;

use std::collections::{BTreeMap, HashMap};

use timing::intervals::{Interval, Intervals};
use timing::parts::comm_of_parts;
use wire::clock::MonoNanos;
use wire::event::{BucketRecord, Event, Function, Source, Span, SpanKind, StepRecord};
use wire::ids::{Bucket, Comm, Step};
use wire::traces::TraceSummary;

use crate::kineto::{DeviceStep, Kind, Trace, Work, summary};
use crate::remarks::Remarks;
use numbers::Numbers;
use running::Running;

/// The longest gap in compute during a collective that is not a wait for it, in nanoseconds: gaps of some tens of
/// microseconds lie between kernels without collectives as well.
const GAP_NANOS: i64 = 30_000;
/// The largest number of spans of a step. Beyond it, compute with the shortest gaps counts as one.
const MAX_SPANS: usize = 12_000;
/// The phases in which kernels are launched.
const PHASES: [SpanKind; 3] = [SpanKind::Forward, SpanKind::Backward, SpanKind::Optimizer];
/// The first step of a run that counts: those before it are its warm-up. If all steps of a trace would be warm-up, their
/// numbers are raised by this one.
const FIRST_COUNTED: u64 = 2;

/// The records of a rank.
#[derive(Clone, Debug, Default)]
pub struct RankRecords {
    /// The numbers of the imported steps: the profiler's, or two more if all of those would be warm-up.
    pub steps: Vec<u64>,
    /// The records, in order of their steps.
    pub events: Vec<Event>,
    /// The number of collectives in them.
    pub collectives: u64,
    /// When the first step begins.
    pub begin: MonoNanos,
    /// What ran in these steps, by name; `None` if the file does not tell.
    pub summary: Option<TraceSummary>,
    /// What is left out.
    pub remarks: Remarks,
}

/// Returns the records of the steps of a trace, which is that of `rank` in a job with `world_size` ranks.
#[must_use]
pub fn records(trace: &Trace, steps: &[DeviceStep], rank: u32, world_size: u32) -> RankRecords {
    let mut found = RankRecords::default();
    let counted = counted(trace, steps, &mut found.remarks);
    let shift = shift(counted.last().map(|step| step.number));
    let base = trace.base_nanos;
    let time = |nanos: i64| MonoNanos(nanos.saturating_add(base));
    found.begin = time(counted.first().map_or(0, |step| step.begin));
    let numbers = Numbers::new(trace, world_size);
    let phases: HashMap<u64, SpanKind> =
        trace.launches.iter().filter_map(|launch| Some((launch.correlation, launch.phase?))).collect();
    found.summary = Some(summary(trace, &counted));
    let mut running = Running::new(trace);
    for step in counted {
        let number = Step(step.number + shift);
        found.steps.push(number.0);
        let running = running.work_within((step.begin, step.end));
        let step = OneStep { trace, phases: &phases, step, running: &running, number, base };
        found.collectives += step.collectives(&numbers, &mut found.events);
        step.parts(&numbers, comm_of_parts(rank), &mut found.events);
        step.spans(&mut found.events);
        let (begin, end) = (time(step.step.begin), time(step.step.end));
        found.events.push(Event::Step(StepRecord { step: number, begin, end, samples: 0, shadow: false }));
    }
    found
}

/// Returns by how much the numbers of steps are raised, if `last` is the highest of them.
pub(crate) fn shift(last: Option<u64>) -> u64 {
    match last {
        Some(last) if last < FIRST_COUNTED => FIRST_COUNTED,
        _ => 0,
    }
}

/// Returns the steps that count. The first one does not if it has other collectives than the second one: the first
/// kernels are missing in some traces, and on some ranks only. Nor does the last one of a file that was cut, if it has fewer than the
/// one before it.
fn counted<'a>(trace: &Trace, steps: &'a [DeviceStep], remarks: &mut Remarks) -> Vec<&'a DeviceStep> {
    let is_collective = |work: &Work| work.kind.is_collective() && !running::is_part(trace, work);
    let collectives =
        |step: &DeviceStep| step.work.iter().filter(|&&at| is_collective(&trace.work[at])).count();
    let mut counted = steps;
    if let [first, second, ..] = steps
        && collectives(first) != collectives(second)
    {
        remarks.add("the first step is left out: it has other collectives than the second one, so its first kernels are probably missing");
        counted = &steps[1..];
    }
    if let [.., before, last] = counted
        && trace.is_cut
        && collectives(last) < collectives(before)
    {
        remarks.add("the last step is left out: the file ends early, and it has fewer collectives than the step before it");
        counted = &counted[..counted.len() - 1];
    }
    if trace.steps.is_empty() {
        remarks.add("the trace marks no steps (ProfilerStep#N), so all of it is one step");
    }
    let counted: Vec<&DeviceStep> = counted.iter().filter(|step| !step.work.is_empty()).collect();
    if counted.is_empty() {
        remarks.add("no kernel of a step is recorded: nothing is imported of this file");
    }
    counted
}

/// A step of a trace.
struct OneStep<'a> {
    trace: &'a Trace,
    /// The phases of launches, by correlation.
    phases: &'a HashMap<u64, SpanKind>,
    step: &'a DeviceStep,
    /// What runs within its window, whichever step launched it, as indices of [`Trace::work`].
    running: &'a [usize],
    number: Step,
    base: i64,
}

impl OneStep<'_> {
    /// Returns the work that the step launched.
    fn work(&self) -> impl Iterator<Item = &Work> {
        let work = self.step.work.iter().map(|&at| &self.trace.work[at]);
        work.filter(|work| !running::is_part(self.trace, work))
    }

    fn time(&self, nanos: i64) -> MonoNanos {
        MonoNanos(nanos.saturating_add(self.base))
    }

    /// Returns when some work ran within the window of the step, whichever step launched it.
    fn ran(&self, wanted: impl Fn(&Work) -> bool) -> Intervals {
        let running = self.running.iter().map(|&at| &self.trace.work[at]);
        let ran = running.filter(|work| wanted(work)).map(|work| (work.begin, work.end));
        Intervals::union(ran).clip((self.step.begin, self.step.end))
    }

    /// Returns true if the step launched the work at this index.
    fn launched(&self, at: usize) -> bool {
        self.step.work.binary_search(&at).is_ok()
    }

    /// Returns when some kernel of a phase ran, within the window of the step.
    fn computed(&self, phase: SpanKind) -> Intervals {
        let phase_of =
            |work: &Work| self.phases.get(&work.correlation).copied().unwrap_or(SpanKind::Backward);
        self.ran(|work| work.kind == Kind::Compute && phase_of(work) == phase)
    }

    /// Adds the records of the step's collectives, and returns their number.
    fn collectives(&self, numbers: &Numbers<'_>, events: &mut Vec<Event>) -> u64 {
        let collectives: Vec<&Work> = self.work().filter(|work| work.kind.is_collective()).collect();
        let named = numbers.collectives(self.number, &collectives);
        let compute = Intervals::union(
            self.work().filter(|work| work.kind == Kind::Compute).map(|work| (work.begin, work.end)),
        );
        let mut buckets: BTreeMap<Comm, u32> = BTreeMap::new();
        for (work, (comm, seq)) in collectives.iter().zip(named) {
            let bucket = buckets.entry(comm).or_default();
            let ready = ready(&compute, work, self.step.begin);
            let bytes = work.carried.and_then(|at| self.trace.carried[at as usize].bytes).unwrap_or(0);
            events.push(Event::Bucket(BucketRecord {
                step: self.number,
                comm,
                seq,
                bucket: Bucket(*bucket),
                bytes,
                ready: self.time(ready),
                launch: self.time(ready),
                start: self.time(work.begin),
                end: self.time(work.end),
                source: Source::ActivityRecord,
            }));
            *bucket += 1;
        }
        collectives.len() as u64
    }

    /// Adds the parts of other steps' collectives that run within the step.
    fn parts(&self, numbers: &Numbers<'_>, comm: Comm, events: &mut Vec<Event>) {
        let others = self.running.iter().map(|&at| (at, &self.trace.work[at]));
        let others = others.filter(|(at, work)| !self.launched(*at) || running::is_part(self.trace, work));
        let others = others.map(|(_, work)| work);
        let parts: Vec<&Work> = others.filter(|work| work.kind.is_collective()).collect();
        let seqs = numbers.parts(self.number, &parts);
        for (at, (work, seq)) in parts.iter().zip(seqs).enumerate() {
            let (begin, end) = (work.begin.max(self.step.begin), work.end.min(self.step.end));
            events.push(Event::Bucket(BucketRecord {
                step: self.number,
                comm,
                seq,
                bucket: Bucket(at as u32),
                // What it carries counts where it was launched.
                bytes: 0,
                ready: self.time(begin),
                launch: self.time(begin),
                start: self.time(begin),
                end: self.time(end),
                source: Source::ActivityRecord,
            }));
        }
    }

    /// Adds the spans of the step.
    fn spans(&self, events: &mut Vec<Event>) {
        let compute = self.ran(|work| work.kind == Kind::Compute);
        // The step waits for its own collectives. It does not for those of a step after it.
        let own = self.work().filter(|work| work.kind.is_collective()).map(|work| (work.begin, work.end));
        let blocked = Intervals::union(own).clip((self.step.begin, self.step.end)).subtract(&compute);
        let blocked = blocked.as_slice().iter().filter(|(begin, end)| end - begin > GAP_NANOS);
        let copies = self.ran(|work| work.kind == Kind::CopyToDevice);
        let ran = self.ran(|work| work.kind != Kind::Wait);
        let idle = Intervals::union([(self.step.begin, self.step.end)]).subtract(&ran);
        let mut add = |kind: SpanKind, (begin, end): Interval| {
            let (begin, end) = (self.time(begin), self.time(end));
            events.push(Event::Span(Span { step: self.number, kind, begin, end, cpu_nanos: 0 }));
        };
        for phase in PHASES {
            let ran = merged(self.computed(phase), MAX_SPANS / PHASES.len());
            ran.as_slice().iter().for_each(|&ran| add(phase, ran));
        }
        let input = Intervals::union(self.trace.input.iter().copied()).clip((self.step.begin, self.step.end));
        input.as_slice().iter().for_each(|&waited| add(SpanKind::Input, waited));
        copies.as_slice().iter().for_each(|&ran| add(SpanKind::H2d, ran));
        blocked.for_each(|&ran| add(SpanKind::Blocked, ran));
        // Input claims its part of idle time before.
        let idle = merged(idle, MAX_SPANS / PHASES.len());
        idle.as_slice().iter().for_each(|&nothing| add(SpanKind::Idle, nothing));
    }
}

/// Returns when a collective was ready: at the end of the last compute before it, within its step.
fn ready(compute: &Intervals, work: &Work, step_begin: i64) -> i64 {
    let count = compute.as_slice().partition_point(|&(_, end)| end <= work.begin);
    let end = count.checked_sub(1).map_or(step_begin, |at| compute.as_slice()[at].1);
    end.max(step_begin).min(work.begin)
}

/// Returns the intervals, at most `most`: those with the shortest gaps between them are joined.
fn merged(intervals: Intervals, most: usize) -> Intervals {
    let slice = intervals.as_slice();
    if slice.len() <= most {
        return intervals;
    }
    let mut gaps: Vec<i64> = slice.windows(2).map(|pair| pair[1].0 - pair[0].1).collect();
    let joined = slice.len() - most;
    let (_, limit, _) = gaps.select_nth_unstable(joined - 1);
    intervals.with_gaps((*limit).max(0).unsigned_abs())
}

/// Returns the function of a collective: the one that the job called, where the trace says it. Kernels of messages are those of
/// all-to-alls in a trace that issues all-to-alls and no messages.
fn function(trace: &Trace, work: &Work) -> Function {
    let called = work.carried.and_then(|at| trace.carried[at as usize].function);
    let launched = match work.kind {
        Kind::Collective(Function::SendReceive) if trace.all_to_alls > 0 && trace.messages == 0 => {
            Function::AllToAll
        }
        Kind::Collective(function) => function,
        _ => Function::Other,
    };
    called.unwrap_or(launched)
}

#[cfg(test)]
mod tests;
