//! The backend for training on a CPU core.

use agent::{Agent, HostTimes, StepMarks};
use candle_core::{Device, Result, Storage, Tensor, Var};
use reducer::ring::Ring;
use reducer::{Host, Instruments, Options, Parameter, ReduceError, Reduced, Reducer};

use super::Backend;
use crate::adamw::{AdamW, InPlace};
use crate::trouble::SlowAdapter;

/// The core of this rank.
pub struct Cpu;

impl Backend for Cpu {
    type Memory = Host;
    type Times = HostTimes;
    type Moments = InPlace;

    fn device(&self) -> Device {
        Device::Cpu
    }

    fn reducer(
        &self,
        parameters: Vec<Parameter>,
        comm: SlowAdapter<Ring>,
        options: Options,
        instruments: Instruments,
    ) -> std::result::Result<Reducer, ReduceError> {
        Reducer::new(parameters, Box::new(comm), options, instruments)
    }

    fn marks(agent: &Agent, _reducer: &Reducer) -> StepMarks {
        agent.step_marks()
    }

    fn lend<T>(tensor: &Tensor, take: impl FnOnce(&[f32]) -> T) -> Result<T> {
        let tensor = tensor.contiguous()?;
        let (storage, layout) = tensor.storage_and_layout();
        let Storage::Cpu(storage) = &*storage else { candle_core::bail!("the tensor is not in host memory") };
        let start = layout.start_offset();
        Ok(take(&storage.as_slice::<f32>()?[start..start + layout.shape().elem_count()]))
    }

    fn are_finite(&self, reduced: &Reduced<'_>) -> Result<bool> {
        let mut gradients = reduced.gradients().filter_map(|(_, gradient)| gradient);
        Ok(gradients.all(|gradient| gradient.iter().all(|value| value.is_finite())))
    }

    fn update(
        &self,
        optimizer: &AdamW<InPlace>,
        index: usize,
        var: &Var,
        gradient: &[f32],
        unscale: f32,
    ) -> Result<()> {
        optimizer.update(index, var, gradient, unscale)
    }
}
