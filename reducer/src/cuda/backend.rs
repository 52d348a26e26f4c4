//! The device backend, on the communication thread. It enqueues collectives on the urgent stream, reads events that the
//! device has passed, and ends a collective that hangs.

use std::collections::VecDeque;
use std::collections::btree_map::{BTreeMap, Entry};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use agent::{Recorder, StepContext};
use gpu::device::{CudaSlice, CudaStream, Device, DeviceError, Event as DeviceEvent, Pinned};
use wire::clock::MonoNanos;
use wire::event::{BucketRecord, Event, EventKind, Source, Span, Started, StepRecord};
use wire::ids::{Bucket, Seq};

use super::clock::{Bound, DeviceClock};
use super::events::{Pair, Ready, Unread};
use super::groups::Groups;
use super::recent::Recent;
use super::{Cuda, working};
use crate::communicator::{Communicator, Control};
use crate::error::CommError;
use crate::memory::{Backend, Launch};
use crate::slots::COMM;

/// The time between two checks of events while no bucket arrives.
const TEND: Duration = Duration::from_millis(20);
/// The longest time for which the end of a reducer waits until the device has passed its last events.
const CLOSE: Duration = Duration::from_secs(10);
/// The largest number of records that wait for their events. If the device hangs, further records are counted as lost.
const MAX_PENDING: usize = 16_384;

/// The transport of the floats.
pub(super) enum TransportState {
    Nccl(Groups),
    /// Staged, with pinned memory for each size of bucket.
    Staged(BTreeMap<usize, Pinned>),
    /// No transport, after a failure.
    Broken,
}

/// A collective that is enqueued.
struct InFlight {
    seq: Seq,
    pair: Arc<Pair>,
    /// The time at which a check first found that the device had reached the collective.
    reached: Option<Instant>,
}

/// The device backend: enqueues collectives on the urgent stream.
pub struct DeviceBackend {
    device: Device,
    stream: Arc<CudaStream>,
    /// The stream that copies the tail. The copy is almost pure latency, so it runs in parallel to collectives instead
    /// of between them.
    side: Arc<CudaStream>,
    /// The event after the copy of the tail to the device.
    uploaded: DeviceEvent,
    control: Box<dyn Control>,
    transport: TransportState,
    timeout: Duration,
    clock: DeviceClock,
    unread: Receiver<Unread>,
    pending: VecDeque<Unread>,
    in_flight: VecDeque<InFlight>,
    /// The end of the collective that was recorded last.
    free: MonoNanos,
    /// The first error, which the training thread reads.
    failure: Arc<OnceLock<CommError>>,
    /// The recent staged collectives, which have no kernels.
    recent: Recent,
    is_bound: bool,
}

impl DeviceBackend {
    pub(super) fn new(
        control: Box<dyn Control>,
        transport: TransportState,
        cuda: &Cuda,
        unread: Receiver<Unread>,
        failure: Arc<OnceLock<CommError>>,
        bound: Bound,
        recent: Recent,
    ) -> Result<Self, CommError> {
        Ok(Self {
            stream: working(cuda.device.urgent_stream())?,
            side: working(cuda.device.urgent_stream())?,
            uploaded: working(cuda.device.event())?,
            clock: working(DeviceClock::new(&cuda.device, cuda.now, bound))?,
            device: cuda.device.clone(),
            control,
            transport,
            timeout: cuda.timeout,
            unread,
            pending: VecDeque::new(),
            in_flight: VecDeque::new(),
            free: MonoNanos(i64::MIN),
            failure,
            recent,
            is_bound: false,
        })
    }

    /// Fails the backend. Gives up NCCL's communicators, so that waiting device work ends, and reports the error to the
    /// other ranks unless they have a verdict.
    fn fail(&mut self, error: CommError) -> CommError {
        let error = self.failure.get_or_init(|| error).clone();
        self.transport = TransportState::Broken;
        if self.control.verdict().is_none() {
            self.control.abort_handle().abort(&error.to_string());
        }
        error
    }

    fn try_reduce(&mut self, launch: &mut Launch<CudaSlice<f32>, Ready>) -> Result<(), CommError> {
        let Launch { bucket, floats, ready: Ready { pair, tail, .. }, .. } = launch;
        // This event follows the clearing of the first bucket's memory, and with it that of all buckets.
        if *bucket == Bucket(0) {
            working(pair.ready.hold(&self.side))?;
        }
        let at = floats.len() - tail.as_ref().map_or(0, Pinned::len);
        if let Some(tail) = tail {
            working(tail.upload(&mut floats.slice_mut(at..), &self.side))?;
            working(self.uploaded.record(&self.side))?;
            working(self.uploaded.hold(&self.stream))?;
        }
        working(pair.ready.hold(&self.stream))?;
        self.reduce(floats)?;
        working(pair.end.record(&self.stream))?;
        if let Some(tail) = tail {
            working(pair.end.hold(&self.side))?;
            working(tail.download(&floats.slice(at..), &self.side))?;
        }
        Ok(())
    }

    fn reduce(&mut self, floats: &mut CudaSlice<f32>) -> Result<(), CommError> {
        let Self { control, stream, device, .. } = self;
        match &mut self.transport {
            TransportState::Nccl(groups) => {
                control.count()?;
                groups.reduce(floats, stream, &**control, self.timeout)
            }
            TransportState::Staged(memory) => {
                let len = floats.len();
                let staged = match memory.entry(len) {
                    Entry::Occupied(there) => there.into_mut(),
                    Entry::Vacant(room) => room.insert(working(device.pinned(len))?),
                };
                working(staged.download(&floats.as_view(), stream))?;
                control.all_reduce(working(staged.floats())?)?;
                working(staged.upload(&mut floats.as_view_mut(), stream))
            }
            TransportState::Broken => unreachable!("a failed backend gets no buckets"),
        }
    }

    /// Checks enqueued collectives. The oldest one delays all others.
    fn watch(&mut self) -> Result<(), CommError> {
        while let Some(oldest) = self.in_flight.front() {
            if !working(oldest.pair.end.is_done())? {
                break;
            }
            self.in_flight.pop_front();
        }
        if let Some(verdict) = self.control.verdict() {
            return Err(verdict);
        }
        if let TransportState::Nccl(groups) = &self.transport {
            groups.check()?;
        }
        let Some(oldest) = self.in_flight.front_mut() else { return Ok(()) };
        if oldest.reached.is_none() && working(oldest.pair.ready.is_done())? {
            oldest.reached = Some(Instant::now());
        }
        let (seq, waited) = (oldest.seq, oldest.reached.map_or(Duration::ZERO, |reached| reached.elapsed()));
        if waited > self.timeout { Err(self.control.overdue(seq, waited)) } else { Ok(()) }
    }

    /// Records everything that the device has passed.
    fn read(&mut self, recorder: &mut Recorder) -> Result<(), CommError> {
        while let Ok(unread) = self.unread.try_recv() {
            self.keep(unread, recorder);
        }
        while let Some(oldest) = self.pending.front() {
            if !working(oldest.last().is_done())? {
                break;
            }
            if let Some(unread) = self.pending.pop_front() {
                let kind = kind_of(&unread);
                match working(self.event_of(unread))? {
                    Some(event) => recorder.record(event),
                    None => recorder.lose(kind, 1),
                }
            }
        }
        Ok(())
    }

    fn keep(&mut self, unread: Unread, recorder: &mut Recorder) {
        if self.pending.len() < MAX_PENDING {
            self.pending.push_back(unread);
        } else {
            recorder.lose(kind_of(&unread), 1);
        }
    }

    /// Returns the record with its times on the host's clock, or `None` before the first anchor of the device's clock.
    fn event_of(&mut self, unread: Unread) -> Result<Option<Event>, DeviceError> {
        let event = match unread {
            Unread::Bucket(record, pair) => {
                let Some((ready, end)) = self.clock.place_both(&pair.ready, &pair.end)? else {
                    return Ok(None);
                };
                // The host may hand a bucket over before or after the device has computed its gradients.
                let launch = record.launch.max(ready);
                // The urgent stream runs one collective at a time.
                let start = launch.max(self.free);
                self.free = end;
                let end = end.max(start);
                if matches!(self.transport, TransportState::Staged(_)) {
                    self.recent.add(start, end);
                }
                Event::Bucket(BucketRecord { ready, launch, start, end, ..record })
            }
            Unread::Span { step, kind, begin, end } => {
                let Some((begin, end)) = self.clock.place_both(&begin, &end)? else { return Ok(None) };
                Event::Span(Span { step, kind, begin, end, cpu_nanos: 0 })
            }
            Unread::Step { context: StepContext { step, shadow }, begin, end, samples } => {
                let Some((begin, end)) = self.clock.place_both(&begin, &end)? else { return Ok(None) };
                Event::Step(StepRecord { step, begin, end, samples, shadow })
            }
        };
        Ok(Some(event))
    }

    fn try_tend(&mut self, recorder: &mut Recorder) -> Result<(), CommError> {
        if !self.is_bound {
            working(self.device.bind())?;
            self.is_bound = true;
        }
        if recorder.is_enabled() {
            working(self.clock.tend())?;
            self.read(recorder)?;
        }
        self.watch()
    }

    /// Waits for a limited time until the device has passed all enqueued work.
    fn run_out(&mut self, recorder: &mut Recorder) {
        let deadline = Instant::now() + CLOSE;
        while Instant::now() < deadline && self.try_tend(recorder).is_ok() {
            if self.in_flight.is_empty() && self.pending.is_empty() {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn kind_of(unread: &Unread) -> EventKind {
    match unread {
        Unread::Bucket(..) => EventKind::Bucket,
        Unread::Span { .. } => EventKind::Span,
        Unread::Step { .. } => EventKind::Step,
    }
}

impl Backend for DeviceBackend {
    type Bucket = CudaSlice<f32>;
    type Ready = Ready;

    fn reduce(
        &mut self,
        mut launch: Launch<CudaSlice<f32>, Ready>,
        recorder: &mut Recorder,
    ) -> Result<(CudaSlice<f32>, Ready), CommError> {
        let Launch { context: StepContext { step, shadow }, bucket, bytes, launch: handed, .. } = launch;
        let (seq, comm) = (self.control.next_seq(), COMM);
        let is_recorded = !shadow && recorder.is_enabled();
        if is_recorded {
            recorder.record(Event::Started(Started { step, comm, seq, bucket, bytes, launch: handed }));
        }
        if let Err(error) = self.try_reduce(&mut launch) {
            // The memory is leaked. Its stream may be CUDA's per-thread default stream, which is another stream on this
            // thread, so the memory could not be freed in order here.
            std::mem::forget(launch.floats);
            return Err(self.fail(error));
        }
        let Launch { ready, floats, .. } = launch;
        self.in_flight.push_back(InFlight { seq, pair: ready.pair.clone(), reached: None });
        if is_recorded && ready.is_observed {
            // The times are placeholders, replaced once the device has passed the events.
            let known = BucketRecord {
                step,
                comm,
                seq,
                bucket,
                bytes,
                ready: handed,
                launch: handed,
                start: handed,
                end: handed,
                source: Source::DeviceEvent,
            };
            self.keep(Unread::Bucket(known, ready.pair.clone()), recorder);
        } else if is_recorded {
            recorder.lose(EventKind::Bucket, 1);
        }
        Ok((floats, ready))
    }

    fn control(&mut self) -> &mut dyn Communicator {
        &mut *self.control
    }

    fn tend(&mut self, recorder: &mut Recorder) -> Result<Option<Duration>, CommError> {
        self.try_tend(recorder).map_err(|error| self.fail(error))?;
        let has_work = recorder.is_enabled() || !self.in_flight.is_empty();
        Ok(has_work.then_some(TEND))
    }

    fn close(&mut self, healthy: bool, recorder: &mut Recorder) {
        if healthy {
            self.run_out(recorder);
        }
        // If a collective is still enqueued, another rank is gone. Dropping the communicators gives the collective up.
        if let TransportState::Nccl(groups) = std::mem::replace(&mut self.transport, TransportState::Broken)
            && self.in_flight.is_empty()
        {
            groups.finish(CLOSE);
        }
    }
}
