//! Gradients in the memory of NVIDIA GPUs, reduced while the backward pass goes on, timed by the device itself.
//!
//! ```text
//! compute stream   | kernel | scale |r0| kernel | scale |r1|             |wait| optimizer |
//! urgent stream              (wait r0)| all-reduce 0 |e0|(wait r1)| all-reduce 1 |e1|
//! ```
//!
//! With NCCL the training thread does not wait for the device: it arranges work, steps ahead if it can. A gradient is
//! scaled into its bucket by a kernel behind the one that made it; an event on the compute stream (`r`) says that the
//! bucket is ready and lets the urgent stream begin; an event behind the collective (`e`) lets the optimizer begin. Both
//! orders are needed anyway, so that observing costs no more than that these two events keep their times. They are read
//! later, when the device has come past them, and placed on the host's clock.
//!
//! With [`Cuda::ranks_per_node`] the all-reduce of the picture is three of NCCL's collectives, between the same two events,
//! and as before one bucket of the records:
//!
//! ```text
//! urgent stream   (wait r0)| reduce-scatter in the node | all-reduce across nodes | all-gather in the node |e0|
//! ```
//!
//! Collectives are NCCL's, or *staged*: copied to pinned memory, reduced by the [`Control`] communicator, and copied
//! back, for which the end of a step waits. Staged is for ranks that share a GPU, which NCCL refuses, and for where there
//! is no NCCL. With NCCL, the control communicator is what the ranks meet over, and what finds out who is to blame when a
//! collective does not end: NCCL itself would wait forever.
//!
//! ```no_run
//! use agent::{Agent, Job};
//! use reducer::cuda::{Cuda, Device, DeviceTimes, Transport};
//! use reducer::ring::{Config, Ring};
//! use reducer::{Instruments, Options, Parameter, Reducer, Share};
//! use wire::{event::SpanKind, ids::Step};
//!
//! let agent = Agent::from_env(Job { name: "m".into(), sample_unit: "tokens".into(), parameters: 1_000 });
//! let ring = Ring::connect(&Config::from_env()?)?; // the ranks meet as torchrun's variables say
//! let device = Device::open(0)?;
//! let compute = device.stream()?;
//! let cuda = Cuda::new(device.clone(), compute.clone(), Transport::Nccl);
//! let parameters = vec![Parameter::new("weight", [1_000])];
//! let mut reducer =
//!     Reducer::on_device(parameters, Box::new(ring), cuda, Options::default(), Instruments::of(&agent))?;
//! let mut marks = agent.step_marks_by(DeviceTimes::of(&reducer, agent.recorder()));
//! let gradient = device.zeros(1_000, &compute)?; // what a backward pass makes, on `compute`
//! let weight = reducer.id("weight").unwrap();
//!
//! let step = marks.begin_step(Step(0));
//! marks.enter(SpanKind::Backward);
//! reducer.begin_step(step, Share::even(reducer.world_size()))?;
//! reducer.mark_ready(weight, gradient.as_view())?;
//! let averages = reducer.finish_step()?; // there in the order of `compute`
//! marks.enter(SpanKind::Optimizer);
//! let _average = averages.gradient(weight);
//! marks.end_step(64);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod carrier;
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
use gpu::cupti::on_demand::{self, Carried, Every, OnDemand};
pub use gpu::device::{CudaSlice, CudaStream, CudaView, Device, DeviceError};
use gpu::nvml::sampler::{Wanted, Watch};
use wire::clock::MonoNanos;
use wire::device::DeviceFigure;

use crate::communicator::Control;
use crate::error::{CommError, ReduceError};
use crate::model::Parameter;
use crate::reducer::{Instruments, Options, Reducer};
use carrier::{DeviceCarrier, Way};
use clock::Bound;
use groups::Groups;
pub use memory::DeviceMemory;
use recent::Recent;
pub use times::DeviceTimes;

/// Points in time that wait to be read: some hundred steps' worth, should the communication thread be held up.
const UNREAD: usize = 4_096;

/// What carries gradients between GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// NCCL, found at run time: each rank has a GPU of its own.
    Nccl,
    /// The control communicator, through pinned host memory.
    Staged,
}

/// A rank's GPU and how it is used.
#[derive(Clone)]
pub struct Cuda {
    /// The GPU.
    pub device: Device,
    /// The stream on which gradients are made and averages are used. Only the thread that calls the reducer works on it, so
    /// that it may be that thread's own default stream, as candle's is. Where memory is allocated by cudarc on it, see
    /// [`Device::keep_memory`].
    pub compute: Arc<CudaStream>,
    /// What carries gradients.
    pub transport: Transport,
    /// With NCCL: how many consecutive ranks have GPUs that are closer to each other than to all others, which as a rule
    /// are those of a node; the same on all ranks. A bucket then goes by way of nodes: its sum over a node's ranks is dealt
    /// out to them, each reduces its shard with those that have the same one on other nodes, and the shards are gathered
    /// on each node. Between nodes goes the size of a bucket divided by this number, instead of a bucket. The world must
    /// be a multiple; 1, and all ranks, are the same as `None`: one collective of all. Needs NCCL 2.18.
    pub ranks_per_node: Option<u32>,
    /// NCCL's library, where it is not to be looked for.
    pub nccl: Option<PathBuf>,
    /// NVML's library, where it is not the loader's.
    pub nvml: Option<PathBuf>,
    /// CUPTI's library, where it is not to be looked for.
    pub cupti: Option<PathBuf>,
    /// How long a collective may take from when this rank's device has come to it.
    pub timeout: Duration,
    /// The clock of the records.
    #[doc(hidden)]
    pub now: fn() -> MonoNanos,
}

impl Cuda {
    /// With a timeout of one minute, as the ring has.
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
    /// Makes a reducer for parameters on a GPU; the ranks meet over `control`. Use [`DeviceTimes`] to mark its steps.
    ///
    /// # Errors
    /// As [`Reducer::new`]; and, on every rank, when one rank's GPU or NCCL cannot be used, or the ranks do not fill nodes of
    /// [`Cuda::ranks_per_node`].
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
        let carrier =
            DeviceCarrier::new(control, made?, &cuda, unread, failure.clone(), bound.clone(), recent.clone());
        let carrier = carrier.inspect_err(|error| give_up.abort(&error.to_string()))?;
        let is_observed = instruments.training.is_enabled();
        let looks = is_observed.then(|| Looks::start(&cuda, &instruments.notes, bound, recent));
        let memory = DeviceMemory::new(cuda, sender, failure, looks);
        Self::with(parameters, memory, carrier, options, instruments)
    }
}

/// Looks at the device, until this is dropped.
pub(crate) struct Looks {
    _each_second: Watch,
    _when_asked: OnDemand,
}

impl Looks {
    /// Tells the server once a second what the device does, and how well its clock is known; and when it asks, every kernel
    /// of a short while.
    fn start(cuda: &Cuda, notes: &Notes, bound: Bound, recent: Recent) -> Self {
        let (pci_bus_id, now) = (cuda.device.pci_bus_id.clone(), cuda.now);
        let samples = notes.clone();
        let each_second =
            Watch::start(Wanted { pci_bus_id, file: cuda.nvml.clone(), now }, move |mut sample| {
                let nanos = bound.load(Ordering::Relaxed);
                if nanos > 0 {
                    sample.figures.insert(DeviceFigure::ClockErrorBoundNanoseconds, nanos);
                }
                samples.device(sample)
            });
        let (asking, telling, stepping) = (notes.clone(), notes.clone(), notes.clone());
        let carried = (cuda.transport == Transport::Staged)
            .then(|| -> Carried { Box::new(move |from, until| recent.between(from, until)) });
        let when_asked = OnDemand::start(
            on_demand::Wanted {
                carried,
                every: Every::from_env(agent::warn),
                newest_step: Box::new(move || stepping.newest_step()),
                ..on_demand::Wanted::when_asked(cuda.cupti.clone(), now)
            },
            move |done| asking.burst_asked(done),
            move |burst| telling.burst(burst),
        );
        Self { _each_second: each_second, _when_asked: when_asked }
    }
}

fn make(control: &mut dyn Control, cuda: &mut Cuda) -> Result<Way, CommError> {
    let nodes = groups::ranks_per_node(cuda.ranks_per_node, control.world_size())?;
    cuda.ranks_per_node = nodes.filter(|_| cuda.transport == Transport::Nccl);
    cuda.device.bind().map_err(refused("choosing the GPU"))?;
    match cuda.transport {
        Transport::Staged => Ok(Way::Staged(Default::default())),
        Transport::Nccl => Groups::join(control, cuda).map(Way::Nccl),
    }
}

/// The error of a device as one of this host.
fn working<T>(result: Result<T, DeviceError>) -> Result<T, CommError> {
    result.map_err(refused("working on the GPU"))
}

/// The error of a library as one of this host.
fn refused<E: ToString>(doing: &'static str) -> impl Fn(E) -> CommError {
    move |error| CommError::System { doing: doing.into(), reason: error.to_string() }
}
