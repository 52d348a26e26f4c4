//! What a rank did, with times: the form into which every format other than PyTorch's profiler is brought.

use std::collections::BTreeMap;

use timing::intervals::{Interval, Intervals};
use wire::clock::MonoNanos;
use wire::event::{BucketRecord, Event, Function, Source, Span, SpanKind, StepRecord};
use wire::ids::{Bucket, Comm, Step};

use crate::group::Group;
use crate::records::{RankRecords, shift};

/// A collective with its times, in nanoseconds on the clock of its timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timed {
    /// Its function.
    pub function: Function,
    /// Its group, as an index of [`Timeline::groups`]; all ranks if there is none.
    pub group: Option<u32>,
    /// Its number among those of its function in its group. It is the same on all ranks.
    pub count: u64,
    /// What this rank passes to it, in bytes; 0 if that is not known.
    pub bytes: u64,
    /// When what it carries was complete.
    pub ready: i64,
    /// When it was handed over.
    pub launch: i64,
    /// When it began.
    pub start: i64,
    /// When it ended.
    pub end: i64,
    /// How its times were measured.
    pub source: Source,
}

/// A step with its times, in nanoseconds on the clock of its timeline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimedStep {
    /// Its number, as the file counts; 0 if the file marks no steps.
    pub number: u64,
    /// When it began and ended.
    pub window: Interval,
    /// What the rank did.
    pub spans: Vec<(SpanKind, Interval)>,
    /// The collectives, in order of time.
    pub collectives: Vec<Timed>,
}

/// What a rank did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// The steps, in ascending order of number and of time.
    pub steps: Vec<TimedStep>,
    /// The groups of collectives.
    pub groups: Vec<Group>,
    /// By how much a time of this rank may be off against another rank's of the same file, in nanoseconds; 0 if their clock is
    /// read when things happen.
    pub error_nanos: u64,
    /// Whether its times are on one clock with those of the other files: that of the moments at which collectives ended for all ranks.
    pub is_placed: bool,
}

impl Timeline {
    /// Returns the number of spans and collectives.
    #[must_use]
    pub fn held(&self) -> usize {
        self.steps.iter().map(|step| step.spans.len() + step.collectives.len()).sum()
    }

    /// Returns the records of the rank in a job of `world_size` ranks.
    #[must_use]
    pub fn records(&self, world_size: u32) -> RankRecords {
        let mut found = RankRecords::default();
        let comms: Vec<Comm> = self.groups.iter().map(|group| group.comm(world_size)).collect();
        let shift = shift(self.steps.last().map(|step| step.number));
        found.begin = MonoNanos(self.steps.first().map_or(0, |step| step.window.0));
        for step in &self.steps {
            let number = Step(step.number.saturating_add(shift));
            found.steps.push(number.0);
            found.collectives += step.collectives.len() as u64;
            step.records(number, &comms, &mut found.events);
        }
        found
    }
}

/// Returns spans that say of the time in which collectives ran that nothing shows what the rank computed meanwhile.
pub(crate) fn unclear<'a>(collectives: impl IntoIterator<Item = &'a Timed>) -> Vec<(SpanKind, Interval)> {
    let measured = collectives.into_iter().filter(|collective| collective.source != Source::Derived);
    let ran = Intervals::union(measured.map(|collective| (collective.start, collective.end)));
    ran.as_slice().iter().map(|&ran| (SpanKind::Unclear, ran)).collect()
}

impl TimedStep {
    fn records(&self, step: Step, comms: &[Comm], events: &mut Vec<Event>) {
        let mut buckets: BTreeMap<Comm, u32> = BTreeMap::new();
        for timed in &self.collectives {
            let comm = timed.group.and_then(|group| comms.get(group as usize)).copied().unwrap_or(Comm(0));
            let bucket = buckets.entry(comm).or_default();
            events.push(Event::Bucket(timed.record(step, comm, Bucket(*bucket))));
            *bucket += 1;
        }
        for &(kind, (begin, end)) in &self.spans {
            let (begin, end) = (MonoNanos(begin), MonoNanos(end.max(begin)));
            events.push(Event::Span(Span { step, kind, begin, end, cpu_nanos: 0 }));
        }
        let (begin, end) = (MonoNanos(self.window.0), MonoNanos(self.window.1.max(self.window.0)));
        events.push(Event::Step(StepRecord { step, begin, end, samples: 0, shadow: false }));
    }
}

impl Timed {
    /// Returns the record. Times out of order, as rounding and damage leave them, are put in order.
    fn record(&self, step: Step, comm: Comm, bucket: Bucket) -> BucketRecord {
        let end = self.end.max(self.start);
        let launch = self.launch.min(self.start);
        BucketRecord {
            step,
            comm,
            seq: self.function.numbered(self.count),
            bucket,
            bytes: self.bytes,
            ready: MonoNanos(self.ready.min(launch)),
            launch: MonoNanos(launch),
            start: MonoNanos(self.start),
            end: MonoNanos(end),
            source: self.source,
        }
    }
}
