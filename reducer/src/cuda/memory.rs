//! Device memory, on the training thread: the work that is enqueued on the compute stream.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, OnceLock};

use agent::{Recorder, StepContext};
use gpu::device::{self, CudaSlice, CudaView, DeviceError, Event, Pinned};
use wire::clock::MonoNanos;
use wire::event::{EventKind, SpanKind};
use wire::ids::Step;

use super::backend::DeviceBackend;
use super::events::{Pair, Pool, Ready, Unread};
use super::groups::multiple;
use super::working;
use super::{Cuda, DeviceSampler};
use crate::error::{CommError, ReduceError};
use crate::memory::{Memory, ReadTail};

/// The number of steps that the host may be ahead of the device before it waits for the device.
const MAX_STEPS_BEHIND: usize = 4;
/// The size of the pool of buckets' events, for all buckets of these steps. If there are more buckets, the others use
/// new events, which are not reused, and their times are not recorded.
const PAIRS: usize = 1_024;
/// The size of the pool of events around waits. A step needs two.
const MARKS: usize = 4 * MAX_STEPS_BEHIND;

/// Device memory, in which gradients are views, written in the order of the compute stream.
pub struct DeviceMemory {
    pub(super) cuda: Cuda,
    pub(super) unread: SyncSender<Unread>,
    pairs: Pool<Pair>,
    marks: Pool<Event>,
    waits: Option<Arc<Event>>,
    /// The events of the bucket that was returned last.
    newest: Option<Arc<Pair>>,
    tails: VecDeque<Ready>,
    free_tails: Vec<Pinned>,
    failure: Arc<OnceLock<CommError>>,
    /// The threads that sample the device. They run as long as the reducer exists.
    _sampler: Option<DeviceSampler>,
}

impl DeviceMemory {
    pub(super) fn new(
        cuda: Cuda,
        unread: SyncSender<Unread>,
        failure: Arc<OnceLock<CommError>>,
        _sampler: Option<DeviceSampler>,
    ) -> Self {
        Self {
            cuda,
            unread,
            pairs: Pool::new(PAIRS),
            marks: Pool::new(MARKS),
            waits: None,
            newest: None,
            tails: VecDeque::new(),
            free_tails: Vec::new(),
            failure,
            _sampler,
        }
    }

    fn mark(&mut self, recorder: &mut Recorder) -> Result<Option<Arc<Event>>, DeviceError> {
        let mark = self.marks.take(|| self.cuda.device.event())?;
        match &mark {
            Some(event) => event.record(&self.cuda.compute)?,
            None => recorder.lose(EventKind::Span, 1),
        }
        Ok(mark)
    }

    fn pair(&mut self) -> Result<(Arc<Pair>, bool), DeviceError> {
        let make = || Ok(Pair { ready: self.cuda.device.event()?, end: self.cuda.device.event()? });
        match self.pairs.take(make)? {
            Some(pair) => Ok((pair, true)),
            None => Ok((Arc::new(make()?), false)),
        }
    }
}

impl Memory for DeviceMemory {
    type Gradient<'a> = CudaView<'a, f32>;
    type Bucket = CudaSlice<f32>;
    type Ready = Ready;
    type Backend = DeviceBackend;

    fn now(&self) -> MonoNanos {
        (self.cuda.now)()
    }

    fn failure(&self) -> Option<CommError> {
        self.failure.get().cloned()
    }

    fn len(gradient: &CudaView<'_, f32>) -> usize {
        gradient.len()
    }

    /// Allocates in the order of the compute stream, on which the memory is also freed. The free follows all uses of
    /// the memory, because the end of a step makes the compute stream wait for the urgent stream.
    fn allocate(&mut self, floats: usize) -> Result<CudaSlice<f32>, CommError> {
        // The additional floats stay zero, and so does their sum.
        let floats = floats.next_multiple_of(multiple(self.cuda.ranks_per_node));
        working(self.cuda.device.zeros(floats, &self.cuda.compute))
    }

    fn view(bucket: &CudaSlice<f32>, range: Range<usize>) -> CudaView<'_, f32> {
        bucket.slice(range)
    }

    fn write(
        &mut self,
        bucket: &mut CudaSlice<f32>,
        range: Range<usize>,
        gradient: &CudaView<'_, f32>,
        factor: f32,
        add: bool,
    ) -> Result<(), CommError> {
        let Cuda { device, compute, .. } = &self.cuda;
        working(device.write_scaled(&mut bucket.slice_mut(range), gradient, factor, add, compute))
    }

    fn clear(&mut self, bucket: &mut CudaSlice<f32>, range: Range<usize>) -> Result<(), CommError> {
        working(device::clear(&mut bucket.slice_mut(range), &self.cuda.compute))
    }

    fn write_tail(
        &mut self,
        _bucket: &mut CudaSlice<f32>,
        ready: &mut Ready,
        _at: usize,
        tail: &[f32],
    ) -> Result<(), CommError> {
        // The backend copies the tail to the device, since the event after the gradients is already recorded.
        if let Some(memory) = &mut ready.tail {
            working(memory.floats())?.copy_from_slice(tail);
        }
        Ok(())
    }

    fn ready(&mut self, context: StepContext, tail: usize) -> Result<Ready, CommError> {
        let (pair, is_observed) = working(self.pair())?;
        working(pair.ready.record(&self.cuda.compute))?;
        let tail = match tail {
            0 => None,
            len => match self.free_tails.pop().filter(|floats| floats.len() == len) {
                Some(floats) => Some(floats),
                None => Some(working(self.cuda.device.pinned(len))?),
            },
        };
        Ok(Ready { step: context.step, pair, is_observed, tail })
    }

    fn returned(&mut self, ready: Ready) {
        self.newest = Some(ready.pair.clone());
        if ready.tail.is_some() {
            self.tails.push_back(ready);
        }
    }

    fn begin_wait(&mut self, context: StepContext, recorder: &mut Recorder) -> Result<(), CommError> {
        let is_observed = !context.shadow && recorder.is_enabled();
        self.waits = if is_observed { working(self.mark(recorder))? } else { None };
        Ok(())
    }

    fn end_wait(&mut self, context: StepContext, recorder: &mut Recorder) -> Result<(), CommError> {
        // Collectives end in the order of their stream, so a wait for the last is a wait for all.
        if let Some(newest) = &self.newest {
            working(newest.end.hold(&self.cuda.compute))?;
        }
        let Some(begin) = self.waits.take() else { return Ok(()) };
        let Some(end) = working(self.mark(recorder))? else { return Ok(()) };
        let span = Unread::Span { step: context.step, kind: SpanKind::Blocked, begin, end };
        if self.unread.try_send(span).is_err() {
            recorder.lose(EventKind::Span, 1);
        }
        Ok(())
    }

    fn read_tails(
        &mut self,
        _step: Step,
        _last: &CudaSlice<f32>,
        _at: usize,
        all: bool,
        read: &mut ReadTail<'_>,
    ) -> Result<(), ReduceError> {
        while let Some(oldest) = self.tails.front_mut() {
            let is_known = match &oldest.tail {
                Some(tail) => working(tail.is_copied())?,
                None => true,
            };
            if !(is_known || all || self.tails.len() > MAX_STEPS_BEHIND) {
                break;
            }
            let Some(Ready { step, tail: Some(mut tail), .. }) = self.tails.pop_front() else { break };
            let floats = working(tail.floats())?;
            // A collective that was given up ends without a sum.
            if let Some(failure) = self.failure() {
                return Err(failure.into());
            }
            read(step, floats)?;
            self.free_tails.push(tail);
        }
        Ok(())
    }
}
