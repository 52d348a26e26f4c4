//! Gradients in host memory. Buckets are vectors, and a collective is complete when its call returns.

use std::ops::Range;
use std::time::Duration;

use agent::{Recorder, StepContext, clock};
use wire::clock::MonoNanos;
use wire::event::{BucketRecord, Event, Source, Span, SpanKind, Started};
use wire::ids::Step;

use crate::communicator::Communicator;
use crate::error::{CommError, ReduceError};
use crate::memory::{Backend, Launch, Memory, ReadTail};
use crate::slots::COMM;

/// Host memory, in which gradients are slices.
#[derive(Default)]
pub struct Host {
    /// The current wait.
    wait: Option<BegunWait>,
}

/// The begin of a wait.
struct BegunWait {
    begin: MonoNanos,
    /// The processor time of the thread, in nanoseconds.
    cpu_nanos: u64,
}

impl Memory for Host {
    type Gradient<'a> = &'a [f32];
    type Bucket = Vec<f32>;
    type Ready = MonoNanos;
    type Backend = HostBackend;

    fn now(&self) -> MonoNanos {
        clock::now()
    }

    /// Returns `None`, since the next bucket that is handed over or awaited returns the error.
    fn failure(&self) -> Option<CommError> {
        None
    }

    fn len(gradient: &&[f32]) -> usize {
        gradient.len()
    }

    fn allocate(&mut self, floats: usize) -> Result<Vec<f32>, CommError> {
        Ok(vec![0.0; floats])
    }

    fn view(bucket: &Vec<f32>, range: Range<usize>) -> &[f32] {
        &bucket[range]
    }

    fn write(
        &mut self,
        bucket: &mut Vec<f32>,
        range: Range<usize>,
        gradient: &&[f32],
        factor: f32,
        add: bool,
    ) -> Result<(), CommError> {
        let pairs = bucket[range].iter_mut().zip(*gradient);
        if add {
            pairs.for_each(|(sum, value)| *sum += *value * factor);
        } else {
            pairs.for_each(|(sum, value)| *sum = *value * factor);
        }
        Ok(())
    }

    fn clear(&mut self, bucket: &mut Vec<f32>, range: Range<usize>) -> Result<(), CommError> {
        bucket[range].fill(0.0);
        Ok(())
    }

    fn write_tail(
        &mut self,
        bucket: &mut Vec<f32>,
        _ready: &mut MonoNanos,
        at: usize,
        tail: &[f32],
    ) -> Result<(), CommError> {
        bucket[at..].copy_from_slice(tail);
        Ok(())
    }

    fn ready(&mut self, _context: StepContext, _tail: usize) -> Result<MonoNanos, CommError> {
        Ok(clock::now())
    }

    fn returned(&mut self, _ready: MonoNanos) {}

    fn begin_wait(&mut self, context: StepContext, recorder: &mut Recorder) -> Result<(), CommError> {
        let observed = !context.shadow && recorder.is_enabled();
        self.wait = observed.then(|| BegunWait { begin: clock::now(), cpu_nanos: clock::thread_cpu_nanos() });
        Ok(())
    }

    fn end_wait(&mut self, context: StepContext, recorder: &mut Recorder) -> Result<(), CommError> {
        if let Some(BegunWait { begin, cpu_nanos }) = self.wait.take() {
            let (end, cpu_nanos) = (clock::now(), clock::thread_cpu_nanos().saturating_sub(cpu_nanos));
            let (step, kind) = (context.step, SpanKind::Blocked);
            recorder.record(Event::Span(Span { step, kind, begin, end, cpu_nanos }));
        }
        Ok(())
    }

    fn read_tails(
        &mut self,
        step: Step,
        last: &Vec<f32>,
        at: usize,
        _all: bool,
        read: &mut ReadTail<'_>,
    ) -> Result<(), ReduceError> {
        read(step, &last[at..])
    }
}

/// The host backend: reduces one bucket after the other with a [`Communicator`].
pub struct HostBackend {
    comm: Box<dyn Communicator>,
}

impl HostBackend {
    pub(crate) fn new(comm: Box<dyn Communicator>) -> Self {
        Self { comm }
    }
}

impl Backend for HostBackend {
    type Bucket = Vec<f32>;
    type Ready = MonoNanos;

    fn reduce(
        &mut self,
        launch: Launch<Vec<f32>, MonoNanos>,
        recorder: &mut Recorder,
    ) -> Result<(Vec<f32>, MonoNanos), CommError> {
        let Launch { context: StepContext { step, shadow }, bucket, bytes, ready, launch, mut floats } =
            launch;
        if shadow || !recorder.is_enabled() {
            self.comm.all_reduce(&mut floats)?;
            return Ok((floats, ready));
        }
        let seq = self.comm.next_seq();
        let start = clock::now();
        recorder.record(Event::Started(Started { step, comm: COMM, seq, bucket, bytes, launch }));
        self.comm.all_reduce(&mut floats)?;
        let (end, source) = (clock::now(), Source::HostClock);
        let record = BucketRecord { step, comm: COMM, seq, bucket, bytes, ready, launch, start, end, source };
        recorder.record(Event::Bucket(record));
        Ok((floats, ready))
    }

    fn control(&mut self) -> &mut dyn Communicator {
        &mut *self.comm
    }

    fn tend(&mut self, _recorder: &mut Recorder) -> Result<Option<Duration>, CommError> {
        Ok(None)
    }

    fn close(&mut self, _healthy: bool, _recorder: &mut Recorder) {}
}
