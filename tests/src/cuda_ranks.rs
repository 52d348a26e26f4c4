//! Ranks of a job on the stand-in for a GPU: threads of this process, with NCCL or without.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use cudarc::driver::CudaSlice;
use gpu::device::Device;
use reducer::bucketing::Caps;
use reducer::cuda::{Cuda, DeviceMemory, Transport};
use reducer::{Control, Instruments, Options, ParamId, Parameter, ReduceError, Reducer, Share, local};
use wire::ids::Step;

use crate::fake_gpu;

/// Elements of a parameter, a megabyte: an all-reduce of the stand-in takes 20 us and a nanosecond for each five bytes.
pub const FLOATS: usize = 250_000;
/// Parameters of a model.
pub const PARAMETERS: u32 = 3;

/// The stand-in is one machine for the whole process: tests take turns.
static MACHINE: Mutex<()> = Mutex::new(());

/// What a rank makes a reducer of.
pub struct Rig {
    /// Where the ranks meet.
    pub control: Box<dyn Control>,
    /// Its device.
    pub cuda: Cuda,
}

impl Rig {
    /// Of the model with [`PARAMETERS`] of [`FLOATS`].
    ///
    /// # Errors
    /// As [`Reducer::on_device`].
    pub fn reducer(
        self,
        options: Options,
        instruments: Instruments,
    ) -> Result<Reducer<DeviceMemory>, ReduceError> {
        let parameters = (0..PARAMETERS).map(|id| Parameter::new(format!("p{id}"), [FLOATS])).collect();
        Reducer::on_device(parameters, self.control, self.cuda, options, instruments)
    }
}

/// A bucket for each parameter.
#[must_use]
pub fn options() -> Options {
    Options { caps: Caps { first_bytes: 1, other_bytes: 1 }, ..Options::default() }
}

/// Runs `body` on as many threads as ranks; of the two devices each has half of them.
///
/// # Errors
/// Those of the ranks, the first one's first.
///
/// # Panics
/// When a rank does.
pub fn ranks<T: Send>(
    size: u32,
    transport: Transport,
    timeout: Duration,
    body: impl Fn(Rig) -> anyhow::Result<T> + Sync,
) -> anyhow::Result<Vec<T>> {
    let _one_at_a_time = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    fake_gpu::library();
    std::thread::scope(|scope| {
        let body = &body;
        let start = |control: local::Local| {
            scope.spawn(move || {
                let ordinal = reducer::Communicator::rank(&control).0 as usize % 2;
                let device = Device::open(ordinal)?;
                let compute = device.stream()?;
                let cuda = Cuda {
                    nccl: Some(fake_gpu::path()),
                    nvml: Some(fake_gpu::path()),
                    timeout,
                    now: fake_gpu::now,
                    ..Cuda::new(device, compute, transport)
                };
                body(Rig { control: Box::new(control), cuda })
            })
        };
        let threads: Vec<_> = local::world(size, Duration::from_secs(20)).into_iter().map(start).collect();
        threads.into_iter().map(|thread| thread.join().expect("no rank panics")).collect()
    })
}

/// Steps until the reducer says that it cannot go on. The device is waited for after each, as a job does that looks at
/// its loss.
///
/// # Errors
/// Of the device; and when nothing goes wrong in a thousand steps.
pub fn step_until_error(rig: Rig, spoil: impl Fn(u64)) -> anyhow::Result<ReduceError> {
    step_until_error_with(rig, spoil, |_| {})
}

/// As above; `begun` is called when a step's collectives are on the device.
///
/// # Errors
/// As above.
pub fn step_until_error_with(
    rig: Rig,
    spoil: impl Fn(u64),
    begun: impl Fn(u64),
) -> anyhow::Result<ReduceError> {
    let share = Share::even(rig.control.world_size());
    let compute = rig.cuda.compute.clone();
    let gradient: CudaSlice<f32> = compute.clone_htod(&vec![1.0_f32; FLOATS])?;
    let mut reducer = rig.reducer(options(), Instruments::none())?;
    let mut one_step = |step: u64| {
        spoil(step);
        reducer.begin_step(agent::StepContext { step: Step(step), shadow: false }, share)?;
        for id in (0..PARAMETERS).rev() {
            reducer.mark_ready(ParamId(id), gradient.as_view())?;
        }
        reducer.finish_step().map(drop)
    };
    for step in 0..1_000 {
        match one_step(step) {
            Ok(()) => {
                begun(step);
                compute.synchronize()?;
            }
            Err(error) => return Ok(error),
        }
    }
    anyhow::bail!("a thousand steps and no error")
}
