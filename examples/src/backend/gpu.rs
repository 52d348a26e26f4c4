//! The backend for training on a GPU. candle computes on its own stream, and the reducer works concurrently on another.

use agent::launcher;
use agent::{Agent, StepMarks};
use anyhow::{Context as _, bail};
use candle_core::backend::BackendDevice as _;
use candle_core::op::BackpropOp;
use candle_core::{CudaDevice, CudaStorage, Device, Result, Storage, Tensor, Var};
use reducer::cuda::{self, Cuda, CudaView, DeviceMemory, DeviceTimes, Transport};
use reducer::ring::Ring;
use reducer::{Instruments, Options, Parameter, ReduceError, Reduced, Reducer};

use super::Backend;
use crate::adamw::{AdamW, OfTensors};
use crate::options::{GradientTransport, JobOptions};
use crate::trouble::{SlowAdapter, SlowPhase};

/// The GPU of this rank.
pub struct Gpu {
    candle: CudaDevice,
    cuda: Cuda,
}

impl Gpu {
    /// Opens the GPU with index `LOCAL_RANK` modulo the number of GPUs.
    ///
    /// # Errors
    /// Returns an error if there is no GPU, or if the planted trouble has no effect on a GPU.
    pub fn open(options: &JobOptions) -> anyhow::Result<Self> {
        let (rank, ranks) = local()?;
        let devices = cuda::Device::count().context("--device cuda")?;
        let fits = if ranks <= devices { GradientTransport::Nccl } else { GradientTransport::Staged };
        let transport = options.transport.unwrap_or(fits);
        refuse(options.trouble.slow_phase, transport)?;
        if options.ranks_per_node.is_some() && transport == GradientTransport::Staged {
            bail!("--ranks-per-node groups ranks for NCCL: add --transport nccl");
        }
        let ordinal = rank % devices;
        let device = cuda::Device::open(ordinal).context("--device cuda")?;
        device.keep_memory().context("--device cuda")?;
        let candle = CudaDevice::new(ordinal).context("--device cuda")?;
        let transport = match transport {
            GradientTransport::Nccl => Transport::Nccl,
            GradientTransport::Staged => Transport::Staged,
        };
        let new = Cuda::new(device, candle.cuda_stream(), transport);
        let cuda = Cuda { ranks_per_node: options.ranks_per_node, ..new };
        Ok(Self { candle, cuda })
    }

    fn tensor(&self, gradient: &CudaView<'_, f32>, shape: &candle_core::Shape) -> Result<Tensor> {
        let copied = self.cuda.compute.clone_dtod(gradient).map_err(candle_core::Error::wrap)?;
        let storage = Storage::Cuda(CudaStorage::wrap_cuda_slice(copied, self.candle.clone()));
        Ok(Tensor::from_storage(storage, shape, BackpropOp::none(), false))
    }
}

/// Returns the local rank and the number of ranks on this host. If the launcher sets neither, both count the whole job.
fn local() -> anyhow::Result<(usize, usize)> {
    let Some(place) = launcher::membership()? else { return Ok((0, 1)) };
    let rank = place.local_rank.unwrap_or(place.rank);
    Ok((rank as usize, place.local_world_size.unwrap_or(place.world_size) as usize))
}

/// Rejects trouble without effect: planted trouble uses processor time, and a busy GPU does not wait for the processor.
fn refuse(planted: Option<SlowPhase>, transport: GradientTransport) -> anyhow::Result<()> {
    match planted {
        Some(SlowPhase::Compute | SlowPhase::Work) => {
            bail!("--slow-phase compute and work delay the processor, but a GPU does not wait for it")
        }
        Some(SlowPhase::Network) if transport == GradientTransport::Nccl => {
            bail!("--slow-phase network delays transfers through host memory: add --transport staged")
        }
        _ => Ok(()),
    }
}

impl Backend for Gpu {
    type Memory = DeviceMemory;
    type Times = DeviceTimes;
    type Moments = OfTensors;

    fn device(&self) -> Device {
        Device::Cuda(self.candle.clone())
    }

    fn reducer(
        &self,
        parameters: Vec<Parameter>,
        comm: SlowAdapter<Ring>,
        options: Options,
        instruments: Instruments,
    ) -> std::result::Result<Reducer<DeviceMemory>, ReduceError> {
        Reducer::on_device(parameters, Box::new(comm), self.cuda.clone(), options, instruments)
    }

    fn marks(agent: &Agent, reducer: &Reducer<DeviceMemory>) -> StepMarks<DeviceTimes> {
        agent.step_marks_by(DeviceTimes::new(reducer, agent.recorder()))
    }

    fn lend<T>(tensor: &Tensor, take: impl FnOnce(CudaView<'_, f32>) -> T) -> Result<T> {
        let tensor = tensor.contiguous()?;
        let (storage, layout) = tensor.storage_and_layout();
        let Storage::Cuda(storage) = &*storage else { candle_core::bail!("the tensor is not on a GPU") };
        let start = layout.start_offset();
        Ok(take(storage.as_cuda_slice::<f32>()?.slice(start..start + layout.shape().elem_count())))
    }

    /// Asks the device once for all gradients: a value that is not finite stays so when it is multiplied by 0 and added
    /// up.
    fn are_finite(&self, reduced: &Reduced<'_, DeviceMemory>) -> Result<bool> {
        let mut sum = Tensor::zeros((), candle_core::DType::F32, &self.device())?;
        for (_, gradient) in reduced.gradients() {
            if let Some(gradient) = gradient {
                let values = self.tensor(&gradient, &gradient.len().into())?;
                sum = (sum + (values * 0.0)?.sum_all()?)?;
            }
        }
        Ok(sum.to_scalar::<f32>()? == 0.0)
    }

    fn update(
        &self,
        optimizer: &AdamW<OfTensors>,
        index: usize,
        var: &Var,
        gradient: CudaView<'_, f32>,
        unscale: f32,
    ) -> Result<()> {
        optimizer.update(index, var, &self.tensor(&gradient, var.shape())?, unscale)
    }
}
