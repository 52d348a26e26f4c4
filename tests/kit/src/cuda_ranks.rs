//! Ranks of a job on the fake GPU: threads of this process, with NCCL or without.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use cudarc::driver::CudaSlice;
use gpu::device::Device;
use reducer::bucketing::Caps;
use reducer::cuda::{Cuda, DeviceMemory, Transport};
use reducer::{Control, Instruments, Options, ParamId, Parameter, ReduceError, Reducer, Share, local};
use wire::ids::Step;

use crate::fake_gpu;

/// The number of elements of a parameter: a megabyte. An all-reduce of the fake GPU takes 20 us plus 1 ns per five
/// bytes.
pub const FLOATS: usize = 250_000;
/// The number of parameters of a model.
pub const PARAMETERS: u32 = 3;

/// Serializes tests, because the fake GPU is one machine for the whole process.
static MACHINE: Mutex<()> = Mutex::new(());

/// The parts from which a rank creates its reducer.
pub struct Rig {
    /// The control connection between the ranks.
    pub control: Box<dyn Control>,
    /// The device of the rank.
    pub cuda: Cuda,
}

impl Rig {
    /// Creates the reducer of a model with [`PARAMETERS`] parameters of [`FLOATS`] elements each.
    ///
    /// # Errors
    /// Returns the errors of [`Reducer::on_device`].
    pub fn reducer(
        self,
        options: Options,
        instruments: Instruments,
    ) -> Result<Reducer<DeviceMemory>, ReduceError> {
        let parameters = (0..PARAMETERS).map(|id| Parameter::new(format!("p{id}"), [FLOATS])).collect();
        Reducer::on_device(parameters, self.control, self.cuda, options, instruments)
    }
}

/// Returns options that put each parameter into its own bucket.
#[must_use]
pub fn options() -> Options {
    Options { caps: Caps { first_bytes: 1, other_bytes: 1 }, ..Options::default() }
}

/// Runs `body` on one thread per rank. Each of the two devices gets half of the ranks.
///
/// # Errors
/// Returns the error of the lowest rank that failed.
///
/// # Panics
/// Panics if a rank panics.
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
        threads.into_iter().map(|thread| thread.join().expect("a rank panicked")).collect()
    })
}

/// Runs steps until the reducer fails, and returns its error. Each step waits for the device, like a job that reads its
/// loss.
///
/// # Errors
/// Returns an error if the device fails, or if a thousand steps succeed.
pub fn step_until_error(rig: Rig, spoil: impl Fn(u64)) -> anyhow::Result<ReduceError> {
    step_until_error_with(rig, spoil, |_| {})
}

/// Runs steps like [`step_until_error`], and calls `begun` when the collectives of a step are on the device.
///
/// # Errors
/// Returns the errors of [`step_until_error`].
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
    anyhow::bail!("a thousand steps succeeded without an error")
}
