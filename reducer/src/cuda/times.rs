//! Times of steps and phases from events on the compute stream. They measure the device, since the host may be some
//! steps ahead.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use agent::{Recorder, StepContext, Times};
use gpu::cupti::phases;
use gpu::device::{CudaStream, Device, Event};
use wire::event::{EventKind, SpanKind};
use wire::ids::Step;

use super::events::{Pool, Unread};
use super::memory::DeviceMemory;
use crate::reducer::Reducer;

/// The size of the pool of events. A step has some eight marks, and the device may be a few steps behind the host.
const MARKS: usize = 128;

/// The times for [`agent::StepMarks`], from events on the compute stream of a reducer.
///
/// A record is written once the device has passed its events. If an event cannot be recorded or read, its record is
/// counted as lost.
pub struct DeviceTimes {
    device: Device,
    compute: Arc<CudaStream>,
    events: Pool<Event>,
    unread: SyncSender<Unread>,
    /// The recorder that counts lost records.
    recorder: Recorder,
}

impl DeviceTimes {
    /// Creates times on the stream on which `reducer`'s gradients are computed. `recorder` is one of the agent's.
    #[must_use]
    pub fn new(reducer: &Reducer<DeviceMemory>, recorder: Recorder) -> Self {
        let memory = reducer.memory();
        Self {
            device: memory.cuda.device.clone(),
            compute: memory.cuda.compute.clone(),
            events: Pool::new(MARKS),
            unread: memory.unread.clone(),
            recorder,
        }
    }

    fn send(&self, kind: EventKind, unread: Unread) {
        if self.unread.try_send(unread).is_err() {
            self.recorder.lose(kind, 1);
        }
    }
}

impl Times for DeviceTimes {
    type Mark = Arc<Event>;

    fn mark(&mut self) -> Option<Arc<Event>> {
        if !self.recorder.is_enabled() {
            return None;
        }
        let event = self.events.take(|| self.device.event()).ok().flatten();
        let marked = event.filter(|event| event.record(&self.compute).is_ok());
        if marked.is_none() {
            self.recorder.lose(EventKind::Span, 1);
        }
        marked
    }

    fn enter(&mut self, phase: Option<SpanKind>) {
        phases::enter(phase);
    }

    fn span(&mut self, step: Step, kind: SpanKind, begin: Arc<Event>, end: Arc<Event>, _host_cpu_nanos: u64) {
        self.send(EventKind::Span, Unread::Span { step, kind, begin, end });
    }

    fn step(&mut self, context: StepContext, begin: Arc<Event>, end: Arc<Event>, samples: u64) {
        self.send(EventKind::Step, Unread::Step { context, begin, end, samples });
    }
}
