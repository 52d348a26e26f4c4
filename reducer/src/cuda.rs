//! Gradients in the memory of NVIDIA GPUs, reduced while the backward pass continues, with times from the device.
//!
//! ```text
//! compute stream   | kernel | scale |r0| kernel | scale |r1|             |wait| optimizer |
//! urgent stream              (wait r0)| all-reduce 0 |e0|(wait r1)| all-reduce 1 |e1|
//! ```
//!
//! With NCCL the training thread does not wait for the device. It enqueues work, up to some steps ahead:
//!
//! - A kernel scales each gradient into its bucket, after the kernel that computes the gradient.
//! - An event on the compute stream (`r`) marks the bucket as ready and lets the urgent stream continue.
//! - An event after the collective (`e`) lets the optimizer begin.
//!
//! The two events are needed for the order of the streams anyway. Observation only makes them keep their times, which
//! are read after the device has passed them and converted to the host's clock.
//!
//! With [`Cuda::ranks_per_node`], each all-reduce above is three of NCCL's collectives between the same two events. The
//! records still have one bucket for them:
//!
//! ```text
//! urgent stream   (wait r0)| reduce-scatter in the node | all-reduce across nodes | all-gather in the node |e0|
//! ```
//!
//! A collective is either NCCL's or *staged*. A staged bucket is copied to pinned memory, reduced by the [`Control`]
//! communicator and copied back, and the end of a step waits for it. Staging is for ranks that share a GPU, which NCCL
//! refuses, and for hosts without NCCL. With NCCL, the ranks meet over the control communicator. When a collective does
//! not end, the control communicator determines which rank is responsible; NCCL itself would wait forever.
//!
//! ```no_run
//! use agent::{Agent, Job, SpanKind};
//! use paceline_reducer::cuda::{Cuda, Device, DeviceTimes, Transport};
//! use paceline_reducer::ring::{Config, Ring};
//! use paceline_reducer::{Instruments, Options, Parameter, Reducer, Share, Step};
//!
//! let agent = Agent::from_env(Job { name: "m".into(), sample_unit: "tokens".into(), parameters: 1_000 });
//! let ring = Ring::connect(&Config::from_env()?)?; // the ranks meet at the address in torchrun's variables
//! let device = Device::open(0)?;
//! let compute = device.stream()?;
//! let cuda = Cuda::new(device.clone(), compute.clone(), Transport::Nccl);
//! let parameters = vec![Parameter::new("weight", [1_000])];
//! let mut reducer =
//!     Reducer::on_device(parameters, Box::new(ring), cuda, Options::default(), Instruments::new(&agent))?;
//! let mut marks = agent.step_marks_by(DeviceTimes::new(&reducer, agent.recorder()));
//! let gradient = device.zeros(1_000, &compute)?; // a backward pass computes it on `compute`
//! let weight = reducer.id("weight").unwrap();
//!
//! let step = marks.begin_step(Step(0));
//! marks.enter(SpanKind::Backward);
//! reducer.begin_step(step, Share::even(reducer.world_size()))?;
//! reducer.mark_ready(weight, gradient.as_view())?;
//! let averages = reducer.finish_step()?; // work enqueued on `compute` from now on sees them
//! marks.enter(SpanKind::Optimizer);
//! let _average = averages.gradient(weight);
//! marks.end_step(64);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod backend;
mod clock;
mod events;
mod groups;
mod memory;
mod recent;
mod times;

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use agent::Notes;
use gpu::cupti::on_demand::{self, BurstSchedule, Carried, OnDemand};
pub use gpu::device::{CudaSlice, CudaStream, CudaView, Device, DeviceError};
use gpu::nvml::sampler::{SamplerSettings, Watch};
use wire::clock::MonoNanos;
use wire::device::DeviceFigure;

use crate::communicator::Control;
use crate::error::{CommError, ReduceError};
use crate::model::Parameter;
use crate::reducer::{Instruments, Options, Reducer};
use backend::{DeviceBackend, TransportState};
use clock::Bound;
use groups::Groups;
pub use memory::DeviceMemory;
use recent::Recent;
pub use times::DeviceTimes;

/// The size of the queue of events to be read. It covers hundreds of steps, in case the communication thread is
/// delayed.
const UNREAD: usize = 4_096;

/// The transport of gradients between GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// NCCL, found at run time. Each rank needs its own GPU.
    Nccl,
    /// The control communicator, through pinned host memory.
    Staged,
}

/// The GPU of a rank, with the settings for its use.
#[derive(Clone)]
pub struct Cuda {
    /// The GPU.
    pub device: Device,
    /// The stream on which gradients are computed and averages are used. Only the thread that calls the reducer uses
    /// the stream, so it may be that thread's default stream, as with candle. If cudarc allocates memory on the stream,
    /// see [`Device::keep_memory`].
    pub compute: Arc<CudaStream>,
    /// The transport of gradients.
    pub transport: Transport,
    /// The number of consecutive ranks whose GPUs are closer to each other than to all other GPUs, usually those of a
    /// node. Must be the same on all ranks. Only used with NCCL; needs NCCL 2.18.
    ///
    /// A bucket is then reduced in three collectives: a reduce-scatter among the ranks of each node, an all-reduce of
    /// each shard among the ranks that hold it on the different nodes, and an all-gather on each node. The traffic
    /// between nodes is the size of a bucket divided by this number.
    ///
    /// The world size must be a multiple of this number. With 1, and with the world size itself, a bucket is reduced in
    /// one collective of all ranks, as with `None`.
    pub ranks_per_node: Option<u32>,
    /// The path of NCCL's library. `None` searches for it.
    pub nccl: Option<PathBuf>,
    /// The path of NVML's library. `None` leaves the search to the loader.
    pub nvml: Option<PathBuf>,
    /// The path of CUPTI's library. `None` searches for it.
    pub cupti: Option<PathBuf>,
    /// The longest time that a collective may take once this rank's device has reached it.
    pub timeout: Duration,
    /// The clock of the records.
    #[doc(hidden)]
    pub now: fn() -> MonoNanos,
}

impl Cuda {
    /// Creates settings with a timeout of one minute.
    #[must_use]
    pub fn new(device: Device, compute: Arc<CudaStream>, transport: Transport) -> Self {
        let timeout = Duration::from_secs(60);
        Self {
            device,
            compute,
            transport,
            ranks_per_node: None,
            nccl: None,
            nvml: None,
            cupti: None,
            timeout,
            now: agent::clock::now,
        }
    }
}

impl Reducer<DeviceMemory> {
    /// Creates a reducer for parameters on a GPU. The ranks meet over `control`. Use [`DeviceTimes`] to mark its steps.
    ///
    /// # Errors
    /// Returns the errors of [`Reducer::new`]. Also returns an error, on every rank, if the GPU or NCCL of one rank
    /// cannot be used, or if the world size is not a multiple of [`Cuda::ranks_per_node`].
    pub fn on_device(
        parameters: Vec<Parameter>,
        mut control: Box<dyn Control>,
        mut cuda: Cuda,
        options: Options,
        instruments: Instruments,
    ) -> Result<Self, ReduceError> {
        let give_up = control.abort_handle();
        let made = make(&mut *control, &mut cuda).inspect_err(|error| give_up.abort(&error.to_string()));
        let (sender, unread) = sync_channel(UNREAD);
        let failure = Arc::new(OnceLock::new());
        let bound = Bound::default();
        let recent = Recent::default();
        let backend =
            DeviceBackend::new(control, made?, &cuda, unread, failure.clone(), bound.clone(), recent.clone());
        let backend = backend.inspect_err(|error| give_up.abort(&error.to_string()))?;
        let is_observed = instruments.training.is_enabled();
        let sampler = is_observed.then(|| DeviceSampler::start(&cuda, &instruments.notes, bound, recent));
        let memory = DeviceMemory::new(cuda, sender, failure, sampler);
        Self::with_backend(parameters, memory, backend, options, instruments)
    }
}

/// The threads that sample the device and record bursts. Dropping the value ends them.
pub(crate) struct DeviceSampler {
    _each_second: Watch,
    _when_asked: OnDemand,
}

impl DeviceSampler {
    /// Starts the threads. One sends a sample of the device once per second, with the error bound of the device's
    /// clock. The other records bursts on request or on schedule.
    fn start(cuda: &Cuda, notes: &Notes, bound: Bound, recent: Recent) -> Self {
        let (pci_bus_id, now) = (cuda.device.pci_bus_id.clone(), cuda.now);
        let (drivers, samples) = (notes.clone(), notes.clone());
        let settings = SamplerSettings { pci_bus_id, file: cuda.nvml.clone(), now };
        let each_second = Watch::start(
            settings,
            move |release| drivers.driver(release),
            move |mut sample| {
                let nanos = bound.load(Ordering::Relaxed);
                if nanos > 0 {
                    sample.figures.insert(DeviceFigure::ClockErrorBoundNanoseconds, nanos);
                }
                samples.device(sample)
            },
        );
        let (asking, reporting, stepping) = (notes.clone(), notes.clone(), notes.clone());
        let carried = (cuda.transport == Transport::Staged)
            .then(|| -> Carried { Box::new(move |from, until| recent.overlapping(from, until)) });
        let when_asked = OnDemand::start(
            on_demand::BurstSettings {
                carried,
                schedule: BurstSchedule::from_env(agent::warn),
                newest_step: Box::new(move || stepping.newest_step()),
                ..on_demand::BurstSettings::when_asked(cuda.cupti.clone(), now)
            },
            move |done| asking.burst_asked(done),
            move |burst| reporting.burst(burst),
        );
        Self { _each_second: each_second, _when_asked: when_asked }
    }
}

fn make(control: &mut dyn Control, cuda: &mut Cuda) -> Result<TransportState, CommError> {
    let nodes = groups::ranks_per_node(cuda.ranks_per_node, control.world_size())?;
    cuda.ranks_per_node = nodes.filter(|_| cuda.transport == Transport::Nccl);
    cuda.device.bind().map_err(refused("choosing the GPU"))?;
    match cuda.transport {
        Transport::Staged => Ok(TransportState::Staged(Default::default())),
        Transport::Nccl => Groups::join(control, cuda).map(TransportState::Nccl),
    }
}

/// Converts the error of a device to an error of this host.
fn working<T>(result: Result<T, DeviceError>) -> Result<T, CommError> {
    result.map_err(refused("working on the GPU"))
}

/// Converts the error of a library to an error of this host.
fn refused<E: ToString>(doing: &'static str) -> impl Fn(E) -> CommError {
    move |error| CommError::System { doing: doing.into(), reason: error.to_string() }
}
